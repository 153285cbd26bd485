/* POST /rerank, /v1/rerank, /v2/rerank: documents in the order of their likeness to a query, as
 * Jina and Cohere have it. The score is that of the model's own head, which reads query and
 * document as one text; of a model without one it is the cosine of their embeddings. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "server/api/embedding_request.h"
#include "server/api/known_fields.h"
#include "server/api/openai/error.h"
#include "server/api/resolution.h"
#include "server/api/routes.h"
#include "server/http/exchange.h"
#include "server/json/field_table.h"
#include "server/model/model.h"
#include "server/server.h"

enum { RERANK_MAX_DOCUMENTS = EMBEDDINGS_MAX_INPUTS - 1 };

struct rerank_place {
    size_t index; /* of the document in the request */
    double score;
};

/* The inputs are the query, then the documents; of a model that ranks, the documents alone, each
 * with the query. */
struct rerank_request {
    const char *model;
    uint32_t top_n; /* 0: all */
    bool returns_documents;
    bool ranks; /* the model has a head for it */
    size_t n;
    struct prompt_input *documents; /* [n] */
    struct rerank_place *places;    /* [n] */
};

/* clang-format off */
/* query and documents have a reader of their own. */
static const struct field_row body_rows[] = {
    {"max_chunks_per_doc", FIELD_ANY, .refused = "is not supported: a document is read whole", .is_off = field_is_empty},
    {"max_tokens_per_doc", FIELD_ANY, .refused = "is not supported: a document is read whole", .is_off = field_is_empty},
    {"model", FIELD_TEXT, .to = offsetof(struct rerank_request, model)},
    {"rank_fields", FIELD_ANY, .refused = "is not supported: send documents as strings", .is_off = field_is_empty},
    {"return_documents", FIELD_BOOL, .to = offsetof(struct rerank_request, returns_documents)},
    {"top_n", FIELD_WHOLE, .to = offsetof(struct rerank_request, top_n), .least = 1, .most = UINT32_MAX},
    {"truncate_prompt_tokens", FIELD_ANY, .refused = "is not supported: a text is read whole", .is_off = field_is_empty},
};
/* clang-format on */
static const struct field_table of_body = FIELD_TABLE(body_rows);

/* The head's score, or the cosine of vectors of length 1. */
static double rerank_score(const struct rerank_request *r, const struct embeddings *e,
                           size_t document)
{
    const float *a = embeddings_values(e, 0), *b = embeddings_values(e, !r->ranks + document);
    double sum = 0;

    if (r->ranks)
        return (double)b[0];
    for (size_t i = 0; i < embeddings_width(e); i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

/* The best first, of equals the first. */
static int by_score(const void *a, const void *b)
{
    const struct rerank_place *x = a, *y = b;

    if (x->score != y->score)
        return x->score < y->score ? 1 : -1;
    return (x->index > y->index) - (x->index < y->index);
}

static void rerank_write_place(const struct rerank_request *r, const struct rerank_place *place,
                               struct json_writer *w)
{
    json_begin_object(w, NULL);
    json_write_unsigned(w, "index", place->index);
    json_write_real(w, "relevance_score", place->score, 9);
    if (r->returns_documents) {
        json_begin_object(w, "document");
        json_write_text(w, "text",
                        r->ranks ? r->documents[place->index].document
                                 : r->documents[place->index].text);
        json_end_object(w);
    }
    json_end_object(w);
}

static void rerank_write(const struct embedding_answer *a, struct json_writer *w)
{
    const struct rerank_request *r = a->state;
    const struct server *server = exchange_server(a->exchange);
    const size_t n = r->top_n == 0 || r->top_n > r->n ? r->n : r->top_n;
    unsigned long long id;

    for (size_t i = 0; i < r->n; i++)
        r->places[i] = (struct rerank_place){i, rerank_score(r, a->embeddings, i)};
    qsort(r->places, r->n, sizeof(*r->places), by_score);
    server->env->random(server->env->self, &id, sizeof(id));
    json_begin_object(w, NULL);
    json_write_format(w, "id", "rerank-%016llx", id);
    json_write_text(w, "object", "list");
    json_write_text(w, "model", a->model->name);
    json_begin_array(w, "results");
    for (size_t i = 0; i < n; i++)
        rerank_write_place(r, &r->places[i], w);
    json_end_array(w);
    embedding_answer_write_usage(a, w);
    json_end_object(w);
}

/* A text, or an object with one. */
static enum status rerank_take_text(struct prompt_input *out, const json_t *value, const char *name,
                                    struct arena *arena, struct error *err)
{
    const json_t *text = json_is_object(value) ? json_object_get(value, "text") : value;
    const size_t n = json_string_length(text);
    char *copy;

    if (!json_is_string(text) || n == 0)
        return error_field(err, name,
                           "must be a text that is not empty, or a list of such texts "
                           "or of objects with a 'text'");
    copy = arena_alloc(arena, n + 1, 1);
    if (copy == NULL)
        return error_no_memory(err, n + 1, "a text");
    memcpy(copy, json_string_value(text), n + 1);
    *out = (struct prompt_input){.text = copy, .len = n};
    return STATUS_OK;
}

/* The query, then the documents. */
static enum status rerank_take_texts(struct rerank_request *r, struct prompt_input **ret_all,
                                     const json_t *body, struct arena *arena, struct error *err)
{
    const json_t *documents = json_object_get(body, "documents"), *one;
    struct prompt_input *all;
    size_t i;

    r->n = json_array_size(documents);
    if (r->n == 0 || r->n > RERANK_MAX_DOCUMENTS)
        return error_field(err, "documents", "must be a list of 1 to %d texts",
                           RERANK_MAX_DOCUMENTS);
    all = arena_alloc(arena, r->n + 1, sizeof(*all));
    r->places = arena_alloc(arena, r->n, sizeof(*r->places));
    if (all == NULL || r->places == NULL)
        return error_no_memory(err, r->n * sizeof(*all), "texts");
    if (rerank_take_text(all, json_object_get(body, "query"), "query", arena, err) != STATUS_OK)
        return err->status;
    json_array_foreach(documents, i, one)
    {
        if (rerank_take_text(all + 1 + i, one, "documents", arena, err) != STATUS_OK)
            return err->status;
    }
    r->documents = all + 1;
    *ret_all = all;
    return STATUS_OK;
}

/* Gives each document the query, as a model with a head reads them. */
static void rerank_pair(struct rerank_request *r, const struct prompt_input *query)
{
    for (size_t i = 0; i < r->n; i++) {
        struct prompt_input *d = &r->documents[i];

        *d = (struct prompt_input){
            .text = query->text, .len = query->len, .document = d->text, .document_len = d->len};
    }
}

static enum status rerank_begin(struct exchange *x, const json_t *body, struct error *err)
{
    struct arena *arena = exchange_arena(x);
    struct rerank_request *r = arena_alloc(arena, 1, sizeof(*r));
    struct embeddings_request texts = {0};
    struct prompt_input *all = NULL;

    if (r == NULL)
        return error_no_memory(err, sizeof(*r), "a request");
    *r = (struct rerank_request){.model = ""};
    if (field_table_read(&of_body, r, body, err) != STATUS_OK ||
        known_fields_name_others(x, body, &of_body, FIELDS_OF_EMBEDDINGS, err) != STATUS_OK ||
        rerank_take_texts(r, &all, body, arena, err) != STATUS_OK ||
        resolution_find_model(&texts.model, x, r->model, err) != STATUS_OK)
        return err->status;
    r->ranks = texts.model->info.text.ranks;
    if (r->ranks) {
        rerank_pair(r, all);
        texts.pooling = POOLING_RANK;
    }
    texts.inputs = r->ranks ? r->documents : all;
    texts.n_inputs = r->n + !r->ranks;
    return embedding_answer_start(x, &texts, rerank_write, false, r, err);
}

static void rerank_serve(struct exchange *x)
{
    resolution_serve(x, rerank_begin);
}

static const struct route rows[] = {
    {"/v1/rerank", .methods = METHOD_POST, .serve = rerank_serve, .api = &openai_api},
    {"/v2/rerank", .methods = METHOD_POST, .serve = rerank_serve, .api = &openai_api},
    {"/rerank", .methods = METHOD_POST, .serve = rerank_serve, .api = &openai_api},
};
const struct route_table openai_rerank_routes = {rows, sizeof(rows) / sizeof(rows[0])};
