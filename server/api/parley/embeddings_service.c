/* parley.v1.Embeddings. The embeddings' notification notifies the call, which takes what is done,
 * and answers once all is. A peer that goes away ends them. */
#include <string.h>

#include "parley/v1/embeddings.pb-c.h"
#include "server/access/access.h"
#include "server/api/parley/methods.h"
#include "server/conversation/embeddings.h"
#include "server/model/model.h"
#include "server/model/models.h"
#include "server/server.h"

/* Bound of one answer's memory. */
#define EMBEDDINGS_MAX_BYTES ((size_t)64 << 20)

struct embed_call {
    struct call *call;
    struct embeddings *embeddings; /* NULL: over */
    struct model *model;
    size_t n_inputs;
};

static void embed_notify(void *arg)
{
    struct embed_call *e = arg;

    call_notify(e->call);
}

static enum status embed_answer(Parley__V1__EmbeddingsEmbedResponse *out,
                                const struct embed_call *e, Parley__V1__Usage *usage,
                                struct arena *arena, struct error *err)
{
    Parley__V1__Embedding *all = arena_alloc(arena, e->n_inputs, sizeof(*all));

    out->embeddings = arena_alloc(arena, e->n_inputs, sizeof(out->embeddings[0]));
    if (all == NULL || out->embeddings == NULL)
        return error_no_memory(err, e->n_inputs * sizeof(*all), "embeddings");
    for (size_t i = 0; i < e->n_inputs; i++) {
        parley__v1__embedding__init(&all[i]);
        all[i].values = (float *)embeddings_values(e->embeddings, i); /* only read */
        all[i].n_values = embeddings_width(e->embeddings);
        out->embeddings[i] = &all[i];
    }
    out->n_embeddings = e->n_inputs;
    out->model = e->model->name;
    out->version = e->model->info.version;
    usage->prompt_tokens = (uint32_t)embeddings_n_tokens(e->embeddings);
    usage->cached_tokens = (uint32_t)embeddings_n_cached(e->embeddings);
    out->usage = usage;
    return STATUS_OK;
}

static void embed_reply(struct embed_call *e)
{
    Parley__V1__EmbeddingsEmbedResponse response = PARLEY__V1__EMBEDDINGS_EMBED_RESPONSE__INIT;
    Parley__V1__Usage usage = PARLEY__V1__USAGE__INIT;
    struct arena arena;
    struct error err;

    arena_init(&arena, EMBEDDINGS_MAX_BYTES);
    if (embed_answer(&response, e, &usage, &arena, &err) == STATUS_OK)
        call_reply(e->call, &response.base);
    else
        call_finish(e->call, &err);
    arena_deinit(&arena);
}

static void embed_write_ready(struct call *call, void *state)
{
    struct embed_call *e = state;
    bool is_done = false;
    struct error err;

    if (e->embeddings == NULL)
        return;
    if (embeddings_advance(e->embeddings, &is_done, &err) != STATUS_OK)
        call_finish(call, &err);
    else if (is_done)
        embed_reply(e);
    else
        return;
    embeddings_close(e->embeddings);
    e->embeddings = NULL;
}

static void embed_on_close(struct call *call, void *state, enum status why)
{
    struct embed_call *e = state;

    embeddings_close(e->embeddings);
    e->embeddings = NULL;
}

static enum status embed_take_input(struct prompt_input *out,
                                    const Parley__V1__EmbeddingInput *from, struct error *err)
{
    *out = (struct prompt_input){0};
    if (from->input_case == PARLEY__V1__EMBEDDING_INPUT__INPUT_TEXT && from->text[0] != '\0') {
        out->text = from->text;
        out->len = strlen(from->text);
        return STATUS_OK;
    }
    if (from->input_case == PARLEY__V1__EMBEDDING_INPUT__INPUT_TOKENS && from->tokens->n_ids > 0) {
        out->ids = from->tokens->ids;
        out->n_ids = from->tokens->n_ids;
        return STATUS_OK;
    }
    return error_field(err, "inputs", "has an entry that is empty");
}

static enum status embed_take_inputs(struct embeddings_request *out,
                                     const Parley__V1__EmbeddingsEmbedRequest *from,
                                     struct arena *arena, struct error *err)
{
    struct prompt_input *inputs;

    if (from->n_inputs == 0)
        return error_field(err, "inputs", "is empty");
    if (from->n_inputs > EMBEDDINGS_MAX_INPUTS)
        return error_field(err, "inputs", "has %zu entries, at most %d are allowed", from->n_inputs,
                           EMBEDDINGS_MAX_INPUTS);
    inputs = arena_alloc(arena, from->n_inputs, sizeof(inputs[0]));
    if (inputs == NULL)
        return error_no_memory(err, from->n_inputs * sizeof(inputs[0]), "texts");
    for (size_t i = 0; i < from->n_inputs; i++)
        if (embed_take_input(&inputs[i], from->inputs[i], err) != STATUS_OK)
            return err->status;
    out->inputs = inputs;
    out->n_inputs = from->n_inputs;
    return STATUS_OK;
}

static enum status embed_begin(struct embed_call *e, const Parley__V1__EmbeddingsEmbedRequest *from,
                               struct server *server, struct error *err)
{
    struct embeddings_request r = {
        .principal = call_principal(e->call)->id,
        .dimensions = from->dimensions,
        .keeps_length = from->no_normalise,
        .deadline_us = call_deadline_us(e->call),
    };

    if (embed_take_inputs(&r, from, call_arena(e->call), err) != STATUS_OK ||
        models_get(&r.model, server->models, from->model, err) != STATUS_OK ||
        model_check_ready(r.model, err) != STATUS_OK)
        return err->status;
    e->model = r.model;
    e->n_inputs = r.n_inputs;
    return embeddings_open(&e->embeddings, server->conversations, &r, embed_notify, e, err);
}

static void start_embed(struct call *call, const Parley__V1__EmbeddingsEmbedRequest *request)
{
    static const struct call_handler handler = {.on_write_ready = embed_write_ready,
                                                .on_close = embed_on_close};
    struct server *server = call_server(call);
    struct embed_call *e = arena_alloc(call_arena(call), 1, sizeof(*e));
    struct error err;

    if (e == NULL) {
        (void)error_no_memory(&err, sizeof(*e), "embeddings");
        call_finish(call, &err);
        return;
    }
    *e = (struct embed_call){.call = call};
    if (embed_begin(e, request, server, &err) != STATUS_OK) {
        call_finish(call, &err);
        return;
    }
    call_set_handler(call, &handler, e);
    embed_notify(e);
}

#define EMBEDDINGS_SERVICE_METHODS(METHOD)                                                      \
    METHOD(UNARY, KEY, "Embeddings/Embed", embeddings_embed_request, embeddings_embed_response, \
           start_embed)

PARLEY_TABLE(embeddings_service_methods, EMBEDDINGS_SERVICE_METHODS)
