/* Whole answers that are no generation. */
#ifndef SERVER_API_ANSWER_H
#define SERVER_API_ANSWER_H

#include "base/json_writer.h"

struct exchange;

/* Answers with the body that w has written, or says that memory was short. */
void answer_json(struct exchange *x, struct json_writer *w, const struct buf *body);
/* The same, of a request that has no handler, once what it has changed is durable; UNAVAILABLE if
 * that cannot be known. */
void answer_json_kept(struct exchange *x, struct json_writer *w, const struct buf *body);

#endif
