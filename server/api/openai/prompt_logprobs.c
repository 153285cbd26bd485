#include "server/api/openai/prompt_logprobs.h"

#include <stdio.h>

#include "server/api/generation.h"

enum { DECODED_MAX_BYTES = 4096 };

static void prompt_logprobs_write_one(const struct generation *g, int32_t id, float logprob,
                                      uint32_t rank, struct json_writer *w)
{
    struct buf text;
    char name[16];

    buf_init(&text, DECODED_MAX_BYTES);
    json_writer_fail(w, generation_token(g, id, &text));
    (void)snprintf(name, sizeof(name), "%d", id);
    json_begin_object(w, name);
    generation_write_logprob(w, "logprob", logprob);
    json_write_unsigned(w, "rank", rank);
    json_write_string(w, "decoded_token", text.data, text.len);
    json_end_object(w);
    buf_deinit(&text);
}

/* The token itself comes first, then the likeliest. */
static void prompt_logprobs_write_token(const struct generation *g, const struct prompt_token *t,
                                        struct json_writer *w)
{
    json_begin_object(w, NULL);
    prompt_logprobs_write_one(g, t->id, t->logprob, t->rank, w);
    for (uint32_t k = 0; w->rc == STATUS_OK && k < t->n_top && k < g->request->n_prompt_top; k++) {
        if (t->top[k].id == t->id)
            continue;
        prompt_logprobs_write_one(g, t->top[k].id, t->top[k].logprob, k + 1, w);
    }
    json_end_object(w);
}

void prompt_logprobs_write(const struct generation *g, const struct choice *c,
                           struct json_writer *w)
{
    const struct prompt_token *tokens;
    size_t n = 0;

    if (!g->request->has_prompt_logprobs)
        return;
    tokens = reader_prompt(&c->reader, &n);
    json_begin_array(w, "prompt_logprobs");
    for (size_t i = 0; w->rc == STATUS_OK && i < n; i++) {
        if (i == 0)
            json_write_null(w, NULL);
        else
            prompt_logprobs_write_token(g, &tokens[i], w);
    }
    json_end_array(w);
}
