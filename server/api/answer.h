/* Whole answers that are no generation. */
#ifndef SERVER_API_ANSWER_H
#define SERVER_API_ANSWER_H

#include "server/json/writer.h"

struct exchange;

/* Answers with the body that w has written, or says that memory was short. */
void answer_json(struct exchange *x, struct json_writer *w, const struct buf *body);

#endif
