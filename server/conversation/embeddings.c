#include "server/conversation/embeddings.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "server/model/model.h"

struct embeddings {
    struct prompt_batch *batch;
    bool keeps_length;
    size_t width;
    float values[]; /* [n_inputs][width] */
};

/* The first values of the model's, scaled to length 1; sums in f64, in order. */
static void embedding_take_values(const struct embeddings *e, const float *from, float *out)
{
    double sum = 0, factor = 1;

    for (size_t i = 0; i < e->width; i++)
        sum += (double)from[i] * (double)from[i];
    if (!e->keeps_length && sum > 0)
        factor = 1 / sqrt(sum);
    for (size_t i = 0; i < e->width; i++)
        out[i] = (float)((double)from[i] * factor);
}

static enum status embeddings_take(void *arg, size_t input, struct completed_turn *done,
                                   struct error *err)
{
    struct embeddings *e = arg;

    embedding_take_values(e, done->results->embedding, e->values + input * e->width);
    return STATUS_OK;
}

enum status embeddings_open(struct embeddings **out, struct conversations *all,
                            const struct embeddings_request *r, void (*notify)(void *arg),
                            void *arg, struct error *err)
{
    const struct agent_info *info = &r->model->info;
    const bool ranks = r->pooling == POOLING_RANK;
    const size_t n_all = ranks ? 1 : info->text.n_embedding;
    size_t width = r->dimensions == 0 ? n_all : r->dimensions, n_values;
    struct embeddings *e;
    const struct prompt_batch_request prompts = {
        .principal = r->principal,
        .model = r->model,
        .inputs = r->inputs,
        .n_inputs = r->n_inputs,
        .wants = {.pooling = r->pooling == POOLING_NONE ? info->text.pooling : r->pooling},
        .deadline_us = r->deadline_us,
    };

    if (n_all == 0)
        return error_because(err, STATUS_UNIMPLEMENTED, REASON_MODEL_UNSUITABLE, "model",
                             "model '%s' does not compute embeddings%s", r->model->name,
                             info->text.ranks ? ": it ranks documents (/v1/rerank)" : "");
    if (width > n_all)
        return error_field(err, "dimensions", "is %zu, an embedding of '%s' has %zu", width,
                           r->model->name, n_all);
    n_values = r->n_inputs * width;
    e = try_alloc(1, sizeof(*e) + n_values * sizeof(e->values[0]));
    if (e == NULL)
        return error_no_memory(err, n_values * sizeof(e->values[0]), "embeddings");
    e->keeps_length = r->keeps_length || ranks;
    e->width = width;
    if (prompt_batch_open(&e->batch, all, &prompts,
                          &(struct prompt_batch_events){notify, embeddings_take, arg, e},
                          err) != STATUS_OK) {
        embeddings_close(e);
        return err->status;
    }
    *out = e;
    return STATUS_OK;
}

void embeddings_close(struct embeddings *e)
{
    if (e == NULL)
        return;
    prompt_batch_close(e->batch);
    free(e);
}

enum status embeddings_advance(struct embeddings *e, bool *ret_is_done, struct error *err)
{
    return prompt_batch_advance(e->batch, ret_is_done, err);
}

const float *embeddings_values(const struct embeddings *e, size_t i)
{
    return e->values + i * e->width;
}

size_t embeddings_width(const struct embeddings *e)
{
    return e->width;
}

uint64_t embeddings_n_tokens(const struct embeddings *e)
{
    return prompt_batch_n_tokens(e->batch);
}

uint64_t embeddings_n_cached(const struct embeddings *e)
{
    return prompt_batch_n_cached(e->batch);
}
