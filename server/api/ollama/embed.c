/* POST /api/embed, and /api/embeddings of older clients. */
#include <string.h>

#include "server/api/answer.h"
#include "server/api/embedding_request.h"
#include "server/api/known_fields.h"
#include "server/api/ollama/error.h"
#include "server/api/resolution.h"
#include "server/api/routes.h"
#include "server/conversation/conversations.h"
#include "server/http/exchange.h"
#include "server/json/field_table.h"
#include "server/json/fields.h"
#include "server/model/model.h"
#include "server/server.h"

enum { OLLAMA_NO_VECTOR_MAX_BYTES = 4096 };

struct ollama_embedding {
    const char *model; /* as the request names it */
    uint64_t started_us;
};

struct ollama_embed_body {
    const char *model;
    uint32_t dimensions;
};

#define TO(member) offsetof(struct ollama_embed_body, member)

/* The texts have a reader of their own. keep_alive, options and truncate change no vector: a text
 * that is too long is refused. */
static const struct field_row body_rows[] = {
    {"dimensions", FIELD_WHOLE, .to = TO(dimensions), .least = 0, .most = UINT32_MAX},
    {"model", FIELD_TEXT, .to = TO(model)},
};
static const struct field_table of_body = FIELD_TABLE(body_rows);

static uint64_t ollama_embed_now_us(const struct exchange *x)
{
    return env_now_us(exchange_server(x)->conversations->config.env);
}

static void ollama_embed_write(const struct embedding_answer *a, struct json_writer *w)
{
    const struct ollama_embedding *e = a->state;

    json_begin_object(w, NULL);
    json_write_text(w, "model", e->model);
    json_begin_array(w, "embeddings");
    for (size_t i = 0; i < a->n_inputs; i++)
        embedding_answer_write_values(a, i, NULL, w);
    json_end_array(w);
    json_write_unsigned(w, "total_duration",
                        (ollama_embed_now_us(a->exchange) - e->started_us) * 1000);
    json_write_unsigned(w, "load_duration", 0);
    json_write_unsigned(w, "prompt_eval_count", embeddings_n_tokens(a->embeddings));
    json_end_object(w);
}

static void ollama_embed_write_one(const struct embedding_answer *a, struct json_writer *w)
{
    json_begin_object(w, NULL);
    embedding_answer_write_values(a, 0, "embedding", w);
    json_end_object(w);
}

/* A request without text asks for no vector: clients send it to have the model loaded. */
static bool ollama_embeds_nothing(const json_t *input, bool is_old)
{
    return input == NULL || (json_is_string(input) && json_string_length(input) == 0) ||
           (!is_old && json_is_array(input) && json_array_size(input) == 0);
}

static enum status ollama_embed_answer_empty(struct exchange *x, const char *name, bool is_old,
                                             struct error *err)
{
    struct json_writer w;
    struct model *model;
    struct buf out;

    if (resolution_find_model(&model, x, name, err) != STATUS_OK)
        return err->status;
    buf_init(&out, OLLAMA_NO_VECTOR_MAX_BYTES);
    w = json_writer_begin(&out);
    json_begin_object(&w, NULL);
    if (!is_old)
        json_write_text(&w, "model", name[0] == '\0' ? model->name : name);
    json_begin_array(&w, is_old ? "embedding" : "embeddings");
    json_end_array(&w);
    json_end_object(&w);
    answer_json(x, &w, &out);
    buf_deinit(&out);
    return STATUS_OK;
}

static enum status ollama_embed_start(struct exchange *x, const json_t *body, bool is_old,
                                      struct error *err)
{
    struct arena *arena = exchange_arena(x);
    struct ollama_embedding *e = arena_alloc(arena, 1, sizeof(*e));
    struct embeddings_request r = {.keeps_length = is_old};
    struct prompt_input *inputs;
    struct ollama_embed_body given = {.model = ""};

    if (e == NULL)
        return error_no_memory(err, sizeof(*e), "a request");
    if (is_old && json_is_array(field(body, "prompt")))
        return error_field(err, "prompt", "must be a text: /api/embed takes lists");
    if (field_table_read(&of_body, &given, body, err) != STATUS_OK ||
        known_fields_name_others(x, body, &of_body, FIELDS_OF_OLLAMA_EMBED, err) != STATUS_OK)
        return err->status;
    if (ollama_embeds_nothing(field(body, is_old ? "prompt" : "input"), is_old))
        return ollama_embed_answer_empty(x, given.model, is_old, err);
    if (embedding_request_inputs(&inputs, &r.n_inputs, body, is_old ? "prompt" : "input", arena,
                                 err) != STATUS_OK ||
        resolution_find_model(&r.model, x, given.model, err) != STATUS_OK)
        return err->status;
    if (given.model[0] == '\0')
        given.model = r.model->name;
    *e = (struct ollama_embedding){.model = arena_strndup(arena, given.model, strlen(given.model)),
                                   .started_us = ollama_embed_now_us(x)};
    if (e->model == NULL)
        return error_no_memory(err, strlen(given.model), "a request");
    r.inputs = inputs;
    r.dimensions = given.dimensions;
    return embedding_answer_start(x, &r, is_old ? ollama_embed_write_one : ollama_embed_write,
                                  false, e, err);
}

static enum status ollama_embed_begin(struct exchange *x, const json_t *body, struct error *err)
{
    return ollama_embed_start(x, body, false, err);
}

static enum status ollama_embed_begin_old(struct exchange *x, const json_t *body, struct error *err)
{
    return ollama_embed_start(x, body, true, err);
}

static void ollama_embed_serve(struct exchange *x)
{
    resolution_serve(x, ollama_embed_begin);
}

static void ollama_embed_serve_old(struct exchange *x)
{
    resolution_serve(x, ollama_embed_begin_old);
}

static const struct route rows[] = {
    {"/api/embed", .methods = METHOD_POST, .serve = ollama_embed_serve, .api = &ollama_api},
    {"/api/embeddings", .methods = METHOD_POST, .serve = ollama_embed_serve_old,
     .api = &ollama_api},
};
const struct route_table ollama_embed_routes = {rows, sizeof(rows) / sizeof(rows[0])};
