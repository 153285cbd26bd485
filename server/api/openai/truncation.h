/* "truncation": "auto" of Responses: a history that the context does not hold loses its oldest
 * messages. */
#ifndef SERVER_API_OPENAI_TRUNCATION_H
#define SERVER_API_OPENAI_TRUNCATION_H

#include "server/api/request.h"

struct model;

/* Drops messages of r's prompt from the front, up to a user's, so that the rest fits with room for
 * a reply: max_tokens if r says it, else an eighth of the context. The instructions (NULL: none)
 * and the system's messages at the head stay. Where not even the last user's message fits, nothing
 * is dropped. r fits the model. */
enum status truncation_apply(struct request *r, const char *instructions, const struct model *m,
                             struct arena *arena, struct error *err) MUST_CHECK;

#endif
