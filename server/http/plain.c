/* What is answered without a conversation: models, health, metrics, tokens. */
#include <stdio.h>
#include <string.h>

#include "server/daemon.h"
#include "server/http/binding.h"
#include "server/http/exchange.h"
#include "server/http/fields.h"
#include "server/http/request.h"
#include "server/http/routes.h"
#include "server/metrics.h"

enum { LIST_MAX_BYTES = 64 << 10, TOKENS_MAX_BYTES = 64 << 20, MODELS_PATH = sizeof("/v1/models") };

static void reply_json(struct exchange *x, enum status rc, const struct buf *body)
{
    struct error err;

    if (rc == STATUS_OK) {
        exchange_reply(x, 200, "application/json", body->data, body->len);
        return;
    }
    (void)error_set(&err, STATUS_EXHAUSTED, "out of memory for the answer");
    exchange_fail(x, &err);
}

/* --- models --- */

static enum status append_model(struct buf *out, const struct daemon *d, const struct model *m)
{
    unsigned long long created_s =
        (conversations_unix_ms(&d->conversations) - (env_now_us(&d->env) - d->start_us) / 1000) /
        1000;
    enum status rc = buf_printf(out,
                                "{\"id\":\"%s\",\"object\":\"model\",\"created\":%llu,"
                                "\"owned_by\":\"parley\"",
                                m->name, created_s);

    if (rc == STATUS_OK && m->info.context > 0)
        rc = buf_printf(out, ",\"max_model_len\":%zu", m->info.context);
    return rc != STATUS_OK ? rc : buf_append_text(out, "}");
}

void models_serve(struct exchange *x)
{
    const struct daemon *d = exchange_daemon(x);
    struct buf body;
    enum status rc;

    buf_init(&body, LIST_MAX_BYTES);
    rc = buf_append_text(&body, "{\"object\":\"list\",\"data\":[");
    for (size_t i = 0; rc == STATUS_OK && i < d->n_models; i++) {
        if (i > 0)
            rc = buf_append_text(&body, ",");
        if (rc == STATUS_OK)
            rc = append_model(&body, d, d->models[i]);
    }
    if (rc == STATUS_OK)
        rc = buf_append_text(&body, "]}");
    reply_json(x, rc, &body);
    buf_deinit(&body);
}

void model_serve(struct exchange *x)
{
    struct error err;
    struct model *m;
    struct buf body;

    if (binding_model(&m, x, exchange_path(x) + MODELS_PATH, &err) != STATUS_OK) {
        exchange_fail(x, &err);
        return;
    }
    buf_init(&body, LIST_MAX_BYTES);
    reply_json(x, append_model(&body, exchange_daemon(x), m), &body);
    buf_deinit(&body);
}

/* --- health and metrics --- */

void health_serve(struct exchange *x)
{
    const struct daemon *d = exchange_daemon(x);
    struct error err;

    if (d->state == DAEMON_SERVING) {
        exchange_reply(x, 200, "application/json", "{\"status\":\"ok\"}", 15);
        return;
    }
    (void)error_set(&err, STATUS_UNAVAILABLE, "the server is %s", daemon_state_name(d));
    exchange_fail(x, &err);
}

void metrics_serve(struct exchange *x)
{
    struct buf body;

    buf_init(&body, METRICS_MAX_BYTES);
    metrics_render(exchange_daemon(x), &body);
    exchange_reply(x, 200, METRICS_CONTENT_TYPE, body.len == 0 ? "" : body.data, body.len);
    buf_deinit(&body);
}

/* --- tokens --- */

static enum status speaker(struct model **out, struct exchange *x, const json_t *body,
                           struct error *err)
{
    const char *name = "";

    if (field_text(&name, body, "model", err) != STATUS_OK ||
        binding_model(out, x, name, err) != STATUS_OK || model_check_ready(*out, err) != STATUS_OK)
        return err->status;
    if ((*out)->agent->type->tokenize == NULL)
        return error_field(err, "model", "'%s' has no vocabulary", (*out)->name);
    return STATUS_OK;
}

static enum status append_ids(struct buf *out, const struct model *m, const struct buf *ids)
{
    const int32_t *id = (const int32_t *)(const void *)ids->data;
    size_t n = ids->len / sizeof(id[0]);
    enum status rc =
        buf_printf(out, "{\"count\":%zu,\"max_model_len\":%zu,\"tokens\":[", n, m->info.context);

    for (size_t i = 0; rc == STATUS_OK && i < n; i++)
        rc = buf_printf(out, i == 0 ? "%d" : ",%d", id[i]);
    return rc != STATUS_OK ? rc : buf_append_text(out, "]}");
}

/* As a chat completion would have them for its prompt. */
static enum status messages_to_ids(struct buf *ids, struct exchange *x, const struct model *m,
                                   const json_t *body, const json_t *messages, struct error *err)
{
    bool is_replied = true, goes_on = false;
    struct prompt p = {0};

    if (field_bool(&is_replied, body, "add_generation_prompt", err) != STATUS_OK ||
        field_bool(&goes_on, body, "continue_final_message", err) != STATUS_OK)
        return err->status;
    if (goes_on)
        return error_field(err, "continue_final_message", "is not served here");
    if (m->agent->type->render == NULL)
        return error_field(err, "messages", "have no form that '%s' reads", m->name);
    if (request_messages(&p, messages, "messages", exchange_arena(x), err) != STATUS_OK)
        return err->status;
    return m->agent->type->render(m->agent, p.messages, p.n_messages, is_replied, ids, err);
}

static enum status prompt_to_ids(struct buf *ids, struct exchange *x, const struct model *m,
                                 const json_t *body, struct error *err)
{
    const json_t *prompt = field(body, "prompt"), *messages = NULL;

    if (field_array(&messages, body, "messages", err) != STATUS_OK)
        return err->status;
    if (messages != NULL)
        return messages_to_ids(ids, x, m, body, messages, err);
    if (!json_is_string(prompt))
        return prompt == NULL ? error_field(err, "prompt", "is missing, and so are messages")
                              : field_wrong(err, "prompt", "a string", prompt);
    return m->agent->type->tokenize(m->agent, json_string_value(prompt), json_string_length(prompt),
                                    ids, err);
}

static enum status tokenize(struct exchange *x, const json_t *body, struct error *err)
{
    struct model *m;
    struct buf ids, out;
    enum status rc;

    if (speaker(&m, x, body, err) != STATUS_OK)
        return err->status;
    buf_init(&ids, TOKENS_MAX_BYTES);
    buf_init(&out, TOKENS_MAX_BYTES);
    rc = prompt_to_ids(&ids, x, m, body, err);
    if (rc == STATUS_OK)
        reply_json(x, append_ids(&out, m, &ids), &out);
    buf_deinit(&ids);
    buf_deinit(&out);
    return rc;
}

static enum status take_ids(int32_t **out, const json_t *list, struct arena *arena,
                            struct error *err)
{
    size_t n = json_array_size(list);
    int32_t *ids = arena_alloc(arena, n, sizeof(ids[0]));

    if (ids == NULL)
        return error_no_memory(err, n * sizeof(ids[0]), "tokens");
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(list, i);

        if (!json_is_integer(id))
            return field_wrong(err, "tokens", "a list of ids", id);
        if (json_integer_value(id) < 0 || json_integer_value(id) > INT32_MAX)
            return error_field(err, "tokens", "has the id %lld", (long long)json_integer_value(id));
        ids[i] = (int32_t)json_integer_value(id);
    }
    *out = ids;
    return STATUS_OK;
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
    if (take_ids(&ids, list, exchange_arena(x), err) != STATUS_OK)
        return err->status;
    buf_init(&text, TOKENS_MAX_BYTES);
    buf_init(&out, TOKENS_MAX_BYTES);
    rc = m->agent->type->detokenize(m->agent, ids, json_array_size(list), &text, err);
    if (rc == STATUS_OK) {
        bool is_whole =
            buf_append_text(&out, "{\"prompt\":") == STATUS_OK &&
            buf_append_json(&out, text.len == 0 ? "" : text.data, text.len) == STATUS_OK &&
            buf_append_text(&out, "}") == STATUS_OK;

        reply_json(x, is_whole ? STATUS_OK : STATUS_EXHAUSTED, &out);
    }
    buf_deinit(&text);
    buf_deinit(&out);
    return rc;
}

void tokenize_serve(struct exchange *x)
{
    binding_serve(x, tokenize);
}

void detokenize_serve(struct exchange *x)
{
    binding_serve(x, detokenize);
}
