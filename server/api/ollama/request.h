/* Ollama's requests for a reply, read from their JSON. Results borrow the JSON and lie in the given
 * arena. Unknown fields are ignored; known but unsupported ones are refused. */
#ifndef SERVER_API_OLLAMA_REQUEST_H
#define SERVER_API_OLLAMA_REQUEST_H

#include "server/api/request.h"

struct ollama_request {
    struct request base;
    bool is_empty; /* the request has no message or prompt: it only loads or unloads the model */
};

/* Read the body of /api/chat and of /api/generate. INVALID names the field. */
enum status ollama_request_chat(struct ollama_request *out, const json_t *body, struct arena *arena,
                                struct error *err) MUST_CHECK;
enum status ollama_request_generate(struct ollama_request *out, const json_t *body,
                                    struct arena *arena, struct error *err) MUST_CHECK;

#endif
