/* Ollama's requests for a reply, read from their JSON. Results borrow the JSON and lie in the given
 * arena. Fields that are not known are named as left out; known but unsupported ones are refused.
 */
#ifndef SERVER_API_OLLAMA_REQUEST_H
#define SERVER_API_OLLAMA_REQUEST_H

#include "server/api/request.h"

struct ollama_request {
    struct request base;
    bool is_empty; /* the request has no message or prompt: it only loads or unloads the model */
    bool is_chat;  /* what is said has the form of a chat: it is not raw, and no gap is filled */
    const int32_t *context; /* [n_context], behind which the prompt goes on */
    size_t n_context;
};

/* Read the body of /api/chat and of /api/generate. INVALID names the field. */
enum status ollama_request_chat(struct ollama_request *out, const json_t *body, struct arena *arena,
                                struct error *err) MUST_CHECK;
enum status ollama_request_generate(struct ollama_request *out, const json_t *body,
                                    struct arena *arena, struct error *err) MUST_CHECK;

#endif
