/* How a response is sent to the client who asked for it: as events, or whole. Loop. */
#ifndef SERVER_API_OPENAI_RESPONSE_EVENTS_H
#define SERVER_API_OPENAI_RESPONSE_EVENTS_H

#include "server/api/openai/response.h"

extern const struct response_renderer response_renderer;

/* Answers with a stream that tells a response which has begun and failed with err: its prompt does
 * not fit into the context, and programs that shorten their history look for that event. r and
 * created_s are the response's; r lies in the exchange's arena. */
enum status response_refuse_in_stream(struct exchange *x, struct response *r, struct model *model,
                                      uint64_t created_s, struct error *err) MUST_CHECK;

#endif
