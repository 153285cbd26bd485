/* What requests whose answer is made of embeddings have in common: their texts, and the exchange
 * that waits for them. */
#ifndef SERVER_API_EMBEDDING_REQUEST_H
#define SERVER_API_EMBEDDING_REQUEST_H

#include <jansson.h>

#include "base/arena.h"
#include "base/json_writer.h"
#include "base/status.h"
#include "server/conversation/embeddings.h"

struct exchange;

/* A string, a list of strings, token ids, or a list of lists of ids, copied to arena.
 * STATUS_INVALID naming the field where it is missing, where one is empty, and where there are too
 * many. */
enum status embedding_request_inputs(struct prompt_input **out, size_t *ret_n, const json_t *body,
                                     const char *name, struct arena *arena,
                                     struct error *err) MUST_CHECK;

struct embedding_answer {
    struct exchange *exchange;
    struct embeddings *embeddings;
    struct model *model;
    size_t n_inputs;
    bool is_base64;
    void *state; /* the writer's */
    void (*write)(const struct embedding_answer *a, struct json_writer *w);
};

/* Writes the values of the i-th embedding as an array. */
void embedding_answer_write_values(const struct embedding_answer *a, size_t i, const char *name,
                                   struct json_writer *w);
/* Writes the member "usage" as OpenAI has it. */
void embedding_answer_write_usage(const struct embedding_answer *a, struct json_writer *w);

/* Computes r's embeddings, whose principal is set here, then answers with what write writes. inputs
 * and state live as long as the exchange. */
enum status embedding_answer_start(struct exchange *x, struct embeddings_request *r,
                                   void (*write)(const struct embedding_answer *a,
                                                 struct json_writer *w),
                                   bool is_base64, void *state, struct error *err) MUST_CHECK;

#endif
