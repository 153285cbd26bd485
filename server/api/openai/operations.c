/* Operations without a conversation: models, health, metrics, tokens. */
#include <stdio.h>
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
#include "server/json/writer.h"
#include "server/model/model.h"
#include "server/model/models.h"
#include "server/server.h"

enum { LIST_MAX_BYTES = 64 << 10, TOKENS_MAX_BYTES = 64 << 20, MODELS_PATH = sizeof("/v1/models") };

/* --- models --- */

/* As OpenAI's and as Anthropic's clients read it. */
static void write_model(struct json_writer *w, const struct server *server, const struct model *m)
{
    uint64_t created_ms = server->conversations->config.unix_ms;

    json_writef(
        w,
        "{\"id\":\"%s\",\"object\":\"model\",\"created\":%llu,"
        "\"owned_by\":\"parley\",\"type\":\"model\",\"display_name\":\"%s\",\"created_at\":",
        m->name, (unsigned long long)(created_ms / 1000), m->name);
    json_write_time(w, created_ms);
    if (m->info.context > 0)
        json_writef(w, ",\"max_model_len\":%zu", m->info.context);
    if (m->info.n_embedding > 0)
        json_writef(w, ",\"embedding_dimensions\":%zu,\"pooling\":\"%s\"", m->info.n_embedding,
                    m->info.pooling == POOLING_LAST ? "last" : "mean");
    json_write(w, "}");
}

static void models_serve(struct exchange *x)
{
    const struct server *server = exchange_server(x);
    const struct models *all = server->models;
    struct json_writer w;
    struct buf body;
    const char *first = NULL, *last = NULL;
    size_t n = 0;

    buf_init(&body, LIST_MAX_BYTES);
    w = json_writer_begin(&body);
    json_write(&w, "{\"object\":\"list\",\"data\":[");
    for (size_t i = 0; i < all->n_loaded; i++) {
        const struct model *m = all->loaded[i];

        if (m->is_vacant)
            continue;
        first = first != NULL ? first : m->name;
        last = m->name;
        json_write(&w, n++ == 0 ? "" : ",");
        write_model(&w, server, m);
    }
    json_write(&w, "],\"has_more\":false");
    if (n > 0)
        json_writef(&w, ",\"first_id\":\"%s\",\"last_id\":\"%s\"", first, last);
    json_write(&w, "}");
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

static void health_serve(struct exchange *x)
{
    const struct server *server = exchange_server(x);
    const char *trouble = journal_trouble(server->conversations->keeping.journal);
    struct error err;

    if (server->state == SERVER_SERVING && trouble != NULL) {
        struct buf body;
        struct json_writer w;

        buf_init(&body, LIST_MAX_BYTES);
        w = json_writer_begin(&body);
        json_write(&w, "{\"status\":\"degraded\",\"journal\":");
        json_write_string(&w, trouble, strlen(trouble));
        json_write(&w, "}");
        exchange_reply(x, 200, "application/json", body.len == 0 ? "{}" : body.data,
                       body.len == 0 ? 2 : body.len);
        buf_deinit(&body);
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

/* --- tokens --- */

static enum status speaker(struct model **out, struct exchange *x, const json_t *body,
                           struct error *err)
{
    const char *name = "";

    if (field_text(&name, body, "model", err) != STATUS_OK ||
        resolution_find_model(out, x, name, err) != STATUS_OK ||
        model_check_ready(*out, err) != STATUS_OK)
        return err->status;
    if ((*out)->agent->type->tokenize == NULL)
        return error_field(err, "model", "'%s' has no vocabulary", (*out)->name);
    return STATUS_OK;
}

/* llama-server's clients name the text content, and are answered with the ids alone. */
static void write_ids(struct json_writer *w, const struct model *m, const json_t *body,
                      const struct buf *ids)
{
    const int32_t *id = (const int32_t *)(const void *)ids->data;
    size_t n = ids->len / sizeof(id[0]);

    json_write(w, "{");
    if (field(body, "content") == NULL)
        json_writef(w, "\"count\":%zu,\"max_model_len\":%zu,", n, m->info.context);
    json_write(w, "\"tokens\":[");
    for (size_t i = 0; i < n; i++)
        json_writef(w, i == 0 ? "%d" : ",%d", id[i]);
    json_write(w, "]}");
}

/* The same ids as of a chat completion's prompt. */
static enum status messages_to_ids(struct buf *ids, struct exchange *x, const struct model *m,
                                   const json_t *body, const json_t *messages, struct error *err)
{
    bool is_replied = true, goes_on = false;
    struct prompt p = {0};
    struct request r = {.prompts = &p, .n_prompts = 1};

    if (field_bool(&is_replied, body, "add_generation_prompt", err) != STATUS_OK ||
        field_bool(&goes_on, body, "continue_final_message", err) != STATUS_OK)
        return err->status;
    if (goes_on)
        return error_field(err, "continue_final_message", "is not served here");
    if (m->agent->type->render == NULL)
        return error_field(err, "messages", "have no form that '%s' reads", m->name);
    if (request_messages(&p, messages, "messages", exchange_arena(x), err) != STATUS_OK ||
        request_tools(&r, body, TOOLS_OF_CHAT, exchange_arena(x), err) != STATUS_OK ||
        request_variables(&r, body, NULL, exchange_arena(x), err) != STATUS_OK ||
        request_fit_model(&r, m->info.reply_format, exchange_arena(x), err) != STATUS_OK)
        return err->status;
    return m->agent->type->render(m->agent, p.messages, p.n_messages, p.tool_use.tools,
                                  r.variables.json, is_replied, ids, err);
}

static enum status prompt_to_ids(struct buf *ids, struct exchange *x, const struct model *m,
                                 const json_t *body, struct error *err)
{
    const char *name = field(body, "content") != NULL ? "content" : "prompt";
    const json_t *prompt = field(body, name), *messages = NULL;
    bool parses_special = true;

    if (field_array(&messages, body, "messages", err) != STATUS_OK ||
        field_bool(&parses_special, body, "parse_special", err) != STATUS_OK)
        return err->status;
    if (messages != NULL)
        return messages_to_ids(ids, x, m, body, messages, err);
    if (!json_is_string(prompt))
        return prompt == NULL ? error_field(err, "prompt", "is missing, and so are messages")
                              : field_wrong(err, name, "a string", prompt);
    return m->agent->type->tokenize(m->agent, json_string_value(prompt), json_string_length(prompt),
                                    parses_special, ids, err);
}

static enum status tokenize(struct exchange *x, const json_t *body, struct error *err)
{
    struct json_writer w;
    struct model *m;
    struct buf ids, out;
    enum status rc;

    if (speaker(&m, x, body, err) != STATUS_OK)
        return err->status;
    buf_init(&ids, TOKENS_MAX_BYTES);
    buf_init(&out, TOKENS_MAX_BYTES);
    rc = prompt_to_ids(&ids, x, m, body, err);
    if (rc == STATUS_OK) {
        w = json_writer_begin(&out);
        write_ids(&w, m, body, &ids);
        answer_json(x, &w, &out);
    }
    buf_deinit(&ids);
    buf_deinit(&out);
    return rc;
}

static enum status detokenize(struct exchange *x, const json_t *body, struct error *err)
{
    const json_t *list = NULL;
    struct model *m;
    struct buf text, out;
    int32_t *ids = NULL;
    enum status rc;

    if (speaker(&m, x, body, err) != STATUS_OK ||
        field_array(&list, body, "tokens", err) != STATUS_OK)
        return err->status;
    if (list == NULL)
        return error_field(err, "tokens", "is missing");
    if (field_token_ids(&ids, list, "tokens", "a list of ids", exchange_arena(x), err) != STATUS_OK)
        return err->status;
    buf_init(&text, TOKENS_MAX_BYTES);
    buf_init(&out, TOKENS_MAX_BYTES);
    rc = m->agent->type->detokenize(m->agent, ids, json_array_size(list), &text, err);
    if (rc == STATUS_OK) {
        struct json_writer w = json_writer_begin(&out);

        json_write(&w, "{\"prompt\":");
        json_write_string(&w, text.len == 0 ? "" : text.data, text.len);
        json_write(&w, ",\"content\":");
        json_write_string(&w, text.len == 0 ? "" : text.data, text.len);
        json_write(&w, "}");
        answer_json(x, &w, &out);
    }
    buf_deinit(&text);
    buf_deinit(&out);
    return rc;
}

/* Writes "name":"TOKEN", or null where there is none. */
static void write_token_field(struct json_writer *w, const struct model *m, const char *name,
                              int32_t id)
{
    struct error ignored;
    struct buf text;

    buf_init(&text, LIST_MAX_BYTES);
    if (id >= 0)
        json_writer_fail(w, m->agent->type->detokenize(m->agent, &id, 1, &text, &ignored));
    json_writef(w, "\"%s\":", name);
    if (id >= 0)
        json_write_string(w, text.len == 0 ? "" : text.data, text.len);
    else
        json_write(w, "null");
    json_write(w, ",");
    buf_deinit(&text);
}

/* Of the default model: what programs that evaluate models look for before they send ids. */
static void tokenizer_info_serve(struct exchange *x)
{
    const struct agent_info *info;
    struct error err = {0};
    struct json_writer w;
    struct model *m;
    struct buf out;

    if (resolution_find_model(&m, x, "", &err) == STATUS_OK && m->agent->type->detokenize == NULL)
        (void)error_field(&err, "model", "'%s' has no vocabulary", m->name);
    if (err.status != STATUS_OK) {
        exchange_fail(x, &err);
        return;
    }
    info = &m->info;
    buf_init(&out, TOKENS_MAX_BYTES);
    w = json_writer_begin(&out);
    json_write(&w, "{\"tokenizer_class\":\"PreTrainedTokenizerFast\",");
    write_token_field(&w, m, "bos_token", info->bos);
    write_token_field(&w, m, "eos_token", info->eos);
    write_token_field(&w, m, "pad_token", info->eos); /* nothing is padded */
    json_writef(&w, "\"add_bos_token\":%s,\"model_max_length\":%zu,\"chat_template\":",
                info->adds_bos ? "true" : "false", info->context);
    if (info->chat_template != NULL)
        json_write_string(&w, info->chat_template, info->chat_template_len);
    else
        json_write(&w, "null");
    json_write(&w, "}");
    answer_json(x, &w, &out);
    buf_deinit(&out);
}

static void tokenize_serve(struct exchange *x)
{
    resolution_serve(x, tokenize);
}

static void detokenize_serve(struct exchange *x)
{
    resolution_serve(x, detokenize);
}

enum { LOOK = METHOD_GET | METHOD_HEAD };

static const struct route rows[] = {
    {"/v1/models", .methods = LOOK, .serve = models_serve, .api = &openai_api},
    {"/v1/models/", true, LOOK, .serve = model_serve, .api = &openai_api, .has_slashes = true},
    {"/tokenize", .methods = METHOD_POST, .serve = tokenize_serve, .api = &openai_api},
    {"/detokenize", .methods = METHOD_POST, .serve = detokenize_serve, .api = &openai_api},
    {"/tokenizer_info", .methods = LOOK, .serve = tokenizer_info_serve, .api = &openai_api},
    {"/health", .methods = LOOK, .always = true, .serve = health_serve, .api = &openai_api,
     .access = ACCESS_OPEN},
    {"/metrics", .methods = LOOK, .always = true, .serve = metrics_serve, .api = &openai_api,
     .access = ACCESS_ADMIN},
};
const struct route_table operations_routes = {rows, sizeof(rows) / sizeof(rows[0])};
