/* Whole answers to requests that generate nothing. Loop. */
#ifndef SERVER_API_ANSWER_H
#define SERVER_API_ANSWER_H

#include "base/json_writer.h"

struct exchange;

/* Answers with the body that w has written, or says that memory was short. */
void answer_json(struct exchange *x, struct json_writer *w, const struct buf *body);
/* Answers likewise once what the request has changed is durable, or with UNAVAILABLE where that
 * cannot be known. The exchange has no handler. */
void answer_json_kept(struct exchange *x, struct json_writer *w, const struct buf *body);

/* The field of err that its text does not name, for APIs whose errors have no place for it; "":
 * there is none. */
const char *answer_unsaid_field(const struct error *err);

#endif
