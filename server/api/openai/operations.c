/* Operations without a conversation: models, health, metrics. */
#include <string.h>

#include "server/api/answer.h"
#include "server/api/metrics.h"
#include "server/api/openai/error.h"
#include "server/api/openai/request.h"
#include "server/api/resolution.h"
#include "server/api/routes.h"
#include "server/conversation/conversations.h"
#include "server/http/exchange.h"
#include "server/journal/journal.h"
#include "server/json/fields.h"
#include "server/model/model.h"
#include "server/model/models.h"
#include "server/server.h"

enum { LIST_MAX_BYTES = 64 << 10, MODELS_PATH = sizeof("/v1/models") };

/* --- models --- */

static const char *pooling_name(enum pooling p)
{
    return p == POOLING_LAST ? "last" : p == POOLING_CLS ? "cls" : "mean";
}

/* As OpenAI's and as Anthropic's clients read it. */
static void write_model(struct json_writer *w, const struct server *server, const struct model *m)
{
    uint64_t created_ms = server->conversations->config.unix_ms;

    json_begin_object(w, NULL);
    json_write_text(w, "id", m->name);
    json_write_text(w, "object", "model");
    json_write_unsigned(w, "created", created_ms / 1000);
    json_write_text(w, "owned_by", "parley");
    json_write_text(w, "type", "model");
    json_write_text(w, "display_name", m->name);
    json_write_time(w, "created_at", created_ms);
    json_write_text(w, "lifecycle", "active");
    if (m->info.text.context > 0) {
        json_write_unsigned(w, "max_model_len", m->info.text.context);
        json_write_unsigned(w, "max_input_tokens", m->info.text.context);
        json_write_unsigned(w, "max_tokens", m->info.text.context);
    }
    if (m->info.text.n_embedding > 0) {
        json_write_unsigned(w, "embedding_dimensions", m->info.text.n_embedding);
        json_write_text(w, "pooling", pooling_name(m->info.text.pooling));
    }
    json_end_object(w);
}

static void models_serve(struct exchange *x)
{
    const struct server *server = exchange_server(x);
    const struct models *all = server->models;
    struct json_writer w;
    struct buf body;
    const char *first = NULL, *last = NULL;

    buf_init(&body, LIST_MAX_BYTES);
    w = json_writer_begin(&body);
    json_begin_object(&w, NULL);
    json_write_text(&w, "object", "list");
    json_begin_array(&w, "data");
    for (size_t i = 0; i < all->n_loaded; i++) {
        const struct model *m = all->loaded[i];

        if (m->is_vacant)
            continue;
        first = first != NULL ? first : m->name;
        last = m->name;
        write_model(&w, server, m);
    }
    json_end_array(&w);
    json_write_bool(&w, "has_more", false);
    if (first != NULL) {
        json_write_text(&w, "first_id", first);
        json_write_text(&w, "last_id", last);
    }
    json_end_object(&w);
    answer_json(x, &w, &body);
    buf_deinit(&body);
}

static void model_serve(struct exchange *x)
{
    struct json_writer w;
    struct error err;
    struct model *m;
    struct buf body;

    if (resolution_find_model(&m, x, exchange_path(x) + MODELS_PATH, &err) != STATUS_OK) {
        exchange_fail(x, &err);
        return;
    }
    buf_init(&body, LIST_MAX_BYTES);
    w = json_writer_begin(&body);
    write_model(&w, exchange_server(x), m);
    answer_json(x, &w, &body);
    buf_deinit(&body);
}

/* --- health and metrics --- */

/* Of daemons that share a journal another one may store what this one cannot: a balancer is to ask
 * that one. Without others, what is stored can still be read here. */
static void health_degrade(struct exchange *x, const struct journal *journal, const char *trouble)
{
    struct buf body;
    struct json_writer w;
    struct error err;

    buf_init(&body, LIST_MAX_BYTES);
    w = json_writer_begin(&body);
    json_begin_object(&w, NULL);
    json_write_text(&w, "status", "degraded");
    json_write_text(&w, "journal", trouble);
    json_end_object(&w);
    if (json_writer_end(&w) == STATUS_OK) {
        exchange_reply(x, journal_is_shared(journal) ? 503 : 200, "application/json", body.data,
                       body.len);
    } else {
        (void)error_no_memory(&err, 0, "the answer");
        exchange_fail(x, &err);
    }
    buf_deinit(&body);
}

static void health_serve(struct exchange *x)
{
    const struct server *server = exchange_server(x);
    const struct journal *journal = server->conversations->keeping.journal;
    const char *trouble = journal_trouble(journal);
    struct error err;

    if (trouble == NULL && journal != NULL && !journal_has_lease(journal))
        trouble = "this daemon was silent for longer than --lease";
    if (server->state == SERVER_SERVING && trouble != NULL) {
        health_degrade(x, journal, trouble);
        return;
    }
    if (server->state == SERVER_SERVING) {
        exchange_reply(x, 200, "application/json", "{\"status\":\"ok\"}", 15);
        return;
    }
    (void)error_set(&err, STATUS_UNAVAILABLE, "the server is %s", server_state_name(server->state));
    exchange_fail(x, &err);
}

static void metrics_serve(struct exchange *x)
{
    struct buf body;

    buf_init(&body, METRICS_MAX_BYTES);
    metrics_render(exchange_server(x), &body);
    exchange_reply(x, 200, METRICS_CONTENT_TYPE, body.len == 0 ? "" : body.data, body.len);
    buf_deinit(&body);
}

enum { LOOK = METHOD_GET | METHOD_HEAD };

static const struct route rows[] = {
    {"/v1/models", .methods = LOOK, .serve = models_serve, .api = &openai_api},
    {"/v1/models/", true, LOOK, .serve = model_serve, .api = &openai_api, .has_slashes = true},
    {"/health", .methods = LOOK, .always = true, .serve = health_serve, .api = &openai_api,
     .access = ACCESS_OPEN},
    {"/metrics", .methods = LOOK, .always = true, .serve = metrics_serve, .api = &openai_api,
     .access = ACCESS_ADMIN},
};
const struct route_table openai_operations_routes = {rows, sizeof(rows) / sizeof(rows[0])};
