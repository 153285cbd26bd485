/* Ollama's context: token ids of a prompt and its reply, behind which a further prompt goes on. */
#ifndef SERVER_API_OLLAMA_CONTEXT_H
#define SERVER_API_OLLAMA_CONTEXT_H

#include "server/api/ollama/request.h"

struct model;

/* Makes of the request's prompt, which is messages, one of ids: the context, what the model's chat
 * template writes between a reply and the next message, and the messages. They lie in the arena.
 * INVALID: the model has no such template. */
enum status ollama_context_continue(struct ollama_request *r, const struct model *m,
                                    struct arena *arena, struct error *err) MUST_CHECK;

#endif
