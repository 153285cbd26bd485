/* POST /score, /v1/score: vLLM's comparison of texts, by the model's own head, or else by the
 * cosines of their embeddings. */
#include <string.h>

#include "base/env.h"
#include "server/api/embedding_request.h"
#include "server/api/known_fields.h"
#include "server/api/openai/error.h"
#include "server/api/resolution.h"
#include "server/api/routes.h"
#include "server/conversation/conversations.h"
#include "server/http/exchange.h"
#include "server/json/field_table.h"
#include "server/model/model.h"
#include "server/server.h"

enum { SCORE_MAX_TEXTS = EMBEDDINGS_MAX_INPUTS / 2 };

/* The inputs are the n_first first texts, then the second ones; of a model that ranks the second
 * ones alone, each with its first one. */
struct score_request {
    size_t n_first, n_second;
    bool ranks;
};

/* clang-format off */
/* text_1 and text_2 have a reader of their own. */
static const struct field_row body_rows[] = {
    {"activation", FIELD_ANY, .refused = "must be true: a score is a cosine, or from 0 to 1", .is_off = field_is_true},
    {"data_1", FIELD_ANY, .refused = "is not supported: send text_1", .is_off = field_is_empty},
    {"data_2", FIELD_ANY, .refused = "is not supported: send text_2", .is_off = field_is_empty},
    {"model", FIELD_TEXT, .to = 0},
    {"truncate_prompt_tokens", FIELD_ANY, .refused = "is not supported: a text is read whole", .is_off = field_is_empty},
    {"use_activation", FIELD_ANY, .refused = "must be true: a score is a cosine, or from 0 to 1", .is_off = field_is_true},
};
/* clang-format on */
static const struct field_table of_body = FIELD_TABLE(body_rows);

/* The head's score, or the cosine of vectors of length 1. */
static double score_of(const struct score_request *s, const struct embeddings *e, size_t i)
{
    const float *a = embeddings_values(e, s->ranks || s->n_first > 1 ? i : 0);
    const float *b = embeddings_values(e, s->ranks ? i : s->n_first + i);
    double sum = 0;

    if (s->ranks)
        return (double)a[0];
    for (size_t k = 0; k < embeddings_width(e); k++)
        sum += (double)a[k] * (double)b[k];
    return sum;
}

static void score_write(const struct embedding_answer *a, struct json_writer *w)
{
    const struct score_request *s = a->state;
    const struct server *server = exchange_server(a->exchange);
    unsigned long long id;

    server->env->random(server->env->self, &id, sizeof(id));
    json_begin_object(w, NULL);
    json_write_format(w, "id", "score-%016llx", id);
    json_write_text(w, "object", "list");
    json_write_unsigned(w, "created", conversations_unix_ms(server->conversations) / 1000);
    json_write_text(w, "model", a->model->name);
    json_begin_array(w, "data");
    for (size_t i = 0; i < s->n_second; i++) {
        json_begin_object(w, NULL);
        json_write_unsigned(w, "index", i);
        json_write_text(w, "object", "score");
        json_write_real(w, "score", score_of(s, a->embeddings, i), 9);
        json_end_object(w);
    }
    json_end_array(w);
    embedding_answer_write_usage(a, w);
    json_end_object(w);
}

static enum status score_take_texts(struct prompt_input **out, size_t *ret_n, const json_t *body,
                                    const char *name, struct arena *arena, struct error *err)
{
    if (embedding_request_inputs(out, ret_n, body, name, arena, err) != STATUS_OK)
        return err->status;
    if (*ret_n > SCORE_MAX_TEXTS)
        return error_field(err, name, "has %zu entries, at most %d are allowed", *ret_n,
                           SCORE_MAX_TEXTS);
    return STATUS_OK;
}

/* Of a model that ranks, which reads texts and no token ids here. */
static enum status score_begin_pairs(struct exchange *x, struct embeddings_request *r,
                                     struct score_request *s, const struct prompt_input *first,
                                     struct prompt_input *second, struct error *err)
{
    for (size_t i = 0; i < s->n_second; i++) {
        const struct prompt_input *query = &first[s->n_first == 1 ? 0 : i];
        struct prompt_input *d = &second[i];

        if (query->text == NULL || d->text == NULL)
            return error_field(err, query->text == NULL ? "text_1" : "text_2",
                               "must be texts: this model reads pairs of them");
        *d = (struct prompt_input){
            .text = query->text, .len = query->len, .document = d->text, .document_len = d->len};
    }
    r->inputs = second;
    r->n_inputs = s->n_second;
    r->pooling = POOLING_RANK;
    return embedding_answer_start(x, r, score_write, false, s, err);
}

static enum status score_begin(struct exchange *x, const json_t *body, struct error *err)
{
    struct arena *arena = exchange_arena(x);
    struct score_request *s = arena_alloc(arena, 1, sizeof(*s));
    struct prompt_input *first, *second, *all;
    struct embeddings_request r = {0};
    const char *model = "";

    if (s == NULL)
        return error_no_memory(err, sizeof(*s), "a request");
    if (field_table_read(&of_body, &model, body, err) != STATUS_OK ||
        known_fields_name_others(x, body, &of_body, FIELDS_OF_EMBEDDINGS, err) != STATUS_OK ||
        score_take_texts(&first, &s->n_first, body, "text_1", arena, err) != STATUS_OK ||
        score_take_texts(&second, &s->n_second, body, "text_2", arena, err) != STATUS_OK ||
        resolution_find_model(&r.model, x, model, err) != STATUS_OK)
        return err->status;
    if (s->n_first != 1 && s->n_first != s->n_second)
        return error_field(err, "text_2", "has %zu entries, it must have as many as text_1, %zu",
                           s->n_second, s->n_first);
    s->ranks = r.model->info.text.ranks;
    if (s->ranks)
        return score_begin_pairs(x, &r, s, first, second, err);
    r.n_inputs = s->n_first + s->n_second;
    all = arena_alloc(arena, r.n_inputs, sizeof(*all));
    if (all == NULL)
        return error_no_memory(err, r.n_inputs * sizeof(*all), "texts");
    memcpy(all, first, s->n_first * sizeof(*all));
    memcpy(all + s->n_first, second, s->n_second * sizeof(*all));
    r.inputs = all;
    return embedding_answer_start(x, &r, score_write, false, s, err);
}

static void score_serve(struct exchange *x)
{
    resolution_serve(x, score_begin);
}

static const struct route rows[] = {
    {"/v1/score", .methods = METHOD_POST, .serve = score_serve, .api = &openai_api},
    {"/score", .methods = METHOD_POST, .serve = score_serve, .api = &openai_api},
};
const struct route_table openai_score_routes = {rows, sizeof(rows) / sizeof(rows[0])};
