#include "server/conversation/prompt_scores.h"

#include <assert.h>
#include <stdlib.h>

#include "base/alloc.h"

struct prompt_scores {
    struct prompt_batch *batch;
    size_t n_inputs, size_bytes;
    struct completed_turn *done[]; /* [n_inputs] NULL: not yet */
};

static enum status prompt_scores_take(void *arg, size_t input, struct completed_turn *done,
                                      struct error *err)
{
    struct prompt_scores *s = arg;
    const struct prompt_results *results = done->results;

    s->size_bytes += results->n_tokens * sizeof(results->tokens[0]);
    for (size_t i = 0; i < results->n_tokens; i++)
        s->size_bytes += results->tokens[i].n_top * sizeof(results->tokens[i].top[0]);
    if (s->size_bytes > PROMPT_SCORES_MAX_BYTES)
        return error_because(err, STATUS_RANGE, REASON_REPLY_TOO_LONG, "inputs",
                             "have more than %d bytes of scores: ask for fewer inputs, or for "
                             "fewer of the likeliest tokens",
                             PROMPT_SCORES_MAX_BYTES);
    s->done[input] = completed_turn_ref(done);
    return STATUS_OK;
}

enum status prompt_scores_open(struct prompt_scores **out, struct conversations *all,
                               const struct prompt_scores_request *r, void (*notify)(void *arg),
                               void *arg, struct error *err)
{
    struct prompt_scores *s;
    const struct prompt_batch_request prompts = {
        .principal = r->principal,
        .model = r->model,
        .inputs = r->inputs,
        .n_inputs = r->n_inputs,
        .wants = {.logprobs = true, .n_tops = r->n_tops},
        .deadline_us = r->deadline_us,
    };

    s = try_alloc(1, sizeof(*s) + r->n_inputs * sizeof(struct completed_turn *));
    if (s == NULL)
        return error_no_memory(err, r->n_inputs * sizeof(struct completed_turn *), "scores");
    s->n_inputs = r->n_inputs;
    if (prompt_batch_open(&s->batch, all, &prompts,
                          &(struct prompt_batch_events){notify, prompt_scores_take, arg, s},
                          err) != STATUS_OK) {
        prompt_scores_close(s);
        return err->status;
    }
    *out = s;
    return STATUS_OK;
}

void prompt_scores_close(struct prompt_scores *s)
{
    if (s == NULL)
        return;
    prompt_batch_close(s->batch);
    for (size_t i = 0; i < s->n_inputs; i++)
        completed_turn_unref(s->done[i]);
    free(s);
}

enum status prompt_scores_advance(struct prompt_scores *s, bool *ret_is_done, struct error *err)
{
    return prompt_batch_advance(s->batch, ret_is_done, err);
}

const struct prompt_token *prompt_scores_tokens(const struct prompt_scores *s, size_t i,
                                                size_t *ret_n)
{
    const struct prompt_results *results;

    assert(i < s->n_inputs);
    results = s->done[i]->results;
    *ret_n = results->n_tokens;
    return results->tokens;
}

const struct prompt_batch *prompt_scores_batch(const struct prompt_scores *s)
{
    return s->batch;
}
