/* Operations without a conversation: models, health, metrics, tokens. */
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

enum { LIST_MAX_BYTES = 64 << 10, TOKENS_MAX_BYTES = 64 << 20, MODELS_PATH = sizeof("/v1/models") };

/* --- models --- */

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
    if (m->info.text.context > 0)
        json_write_unsigned(w, "max_model_len", m->info.text.context);
    if (m->info.text.n_embedding > 0) {
        json_write_unsigned(w, "embedding_dimensions", m->info.text.n_embedding);
        json_write_text(w, "pooling", m->info.text.pooling == POOLING_LAST ? "last" : "mean");
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
        json_begin_object(&w, NULL);
        json_write_text(&w, "status", "degraded");
        json_write_text(&w, "journal", trouble);
        json_end_object(&w);
        answer_json(x, &w, &body);
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
    if ((*out)->agent->type->text == NULL)
        return error_field(err, "model", "'%s' has no vocabulary", (*out)->name);
    return STATUS_OK;
}

/* llama-server's clients name the text content, and are answered with the ids alone. */
static void write_ids(struct json_writer *w, const struct model *m, const json_t *body,
                      const struct buf *ids)
{
    const int32_t *id = (const int32_t *)(const void *)ids->data;
    size_t n = ids->len / sizeof(id[0]);

    json_begin_object(w, NULL);
    if (field(body, "content") == NULL) {
        json_write_unsigned(w, "count", n);
        json_write_unsigned(w, "max_model_len", m->info.text.context);
    }
    json_begin_array(w, "tokens");
    for (size_t i = 0; i < n; i++)
        json_write_signed(w, NULL, id[i]);
    json_end_array(w);
    json_end_object(w);
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
    if (m->agent->type->text == NULL)
        return error_field(err, "messages", "have no form that '%s' reads", m->name);
    if (request_messages(&p, messages, "messages", exchange_arena(x), err) != STATUS_OK ||
        request_tools(&r, body, TOOLS_OF_CHAT, exchange_arena(x), err) != STATUS_OK ||
        request_variables(&r, body, NULL, exchange_arena(x), err) != STATUS_OK ||
        request_fit_model(&r, m->info.text.reply_format, exchange_arena(x), err) != STATUS_OK)
        return err->status;
    return m->agent->type->text->render(m->agent, p.messages, p.n_messages, p.tool_use.tools,
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
    return m->agent->type->text->tokenize(m->agent, json_string_value(prompt),
                                          json_string_length(prompt), parses_special, ids, err);
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
    rc = m->agent->type->text->detokenize(m->agent, ids, json_array_size(list), &text, err);
    if (rc == STATUS_OK) {
        struct json_writer w = json_writer_begin(&out);

        json_begin_object(&w, NULL);
        json_write_string(&w, "prompt", text.data, text.len);
        json_write_string(&w, "content", text.data, text.len);
        json_end_object(&w);
        answer_json(x, &w, &out);
    }
    buf_deinit(&text);
    buf_deinit(&out);
    return rc;
}

/* Writes a token's text; null where id is none. */
static void write_token_field(struct json_writer *w, const struct model *m, const char *name,
                              int32_t id)
{
    struct error ignored;
    struct buf text;

    buf_init(&text, LIST_MAX_BYTES);
    if (id >= 0)
        json_writer_fail(w, m->agent->type->text->detokenize(m->agent, &id, 1, &text, &ignored));
    if (id >= 0)
        json_write_string(w, name, text.data, text.len);
    else
        json_write_null(w, name);
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

    if (resolution_find_model(&m, x, "", &err) == STATUS_OK && m->agent->type->text == NULL)
        (void)error_field(&err, "model", "'%s' has no vocabulary", m->name);
    if (err.status != STATUS_OK) {
        exchange_fail(x, &err);
        return;
    }
    info = &m->info;
    buf_init(&out, TOKENS_MAX_BYTES);
    w = json_writer_begin(&out);
    json_begin_object(&w, NULL);
    json_write_text(&w, "tokenizer_class", "PreTrainedTokenizerFast");
    write_token_field(&w, m, "bos_token", info->text.bos);
    write_token_field(&w, m, "eos_token", info->text.eos);
    write_token_field(&w, m, "pad_token", info->text.eos); /* nothing is padded */
    json_write_bool(&w, "add_bos_token", info->text.adds_bos);
    json_write_unsigned(&w, "model_max_length", info->text.context);
    if (info->text.chat_template != NULL)
        json_write_string(&w, "chat_template", info->text.chat_template,
                          info->text.chat_template_len);
    else
        json_write_null(&w, "chat_template");
    json_end_object(&w);
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
const struct route_table openai_operations_routes = {rows, sizeof(rows) / sizeof(rows[0])};
