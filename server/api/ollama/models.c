/* Ollama's lists of models, and what it has that is not served here. */
#include <stdio.h>
#include <string.h>

#include "agents/reply/reply_format.h"
#include "server/api/answer.h"
#include "server/api/ollama/error.h"
#include "server/api/resolution.h"
#include "server/api/routes.h"
#include "server/conversation/conversations.h"
#include "server/http/exchange.h"
#include "server/json/fields.h"
#include "server/model/model.h"
#include "server/model/models.h"
#include "server/server.h"

/* OLLAMA_VERSION: of the API, for clients that ask whether a server is too old for them. */
#define OLLAMA_VERSION "0.12.11"
#define OLLAMA_NEVER "2318-01-01T00:00:00Z" /* when a model expires that does not */

enum { OLLAMA_LIST_MAX_BYTES = 64 << 10, DIGEST_CHARS = 64 };

static void ollama_write_tagged(struct json_writer *w, const char *key, const struct model *m)
{
    json_write_format(w, key, "%s%s", m->name, strchr(m->name, ':') == NULL ? ":latest" : "");
}

static const char *ollama_family(const struct model *m)
{
    return m->info.architecture != NULL && m->info.architecture[0] != '\0' ? m->info.architecture
                                                                           : m->info.kind;
}

static void ollama_write_details(struct json_writer *w, const struct model *m)
{
    const char *family = ollama_family(m);

    json_begin_object(w, "details");
    json_write_text(w, "parent_model", "");
    json_write_text(w, "format", m->path == NULL ? "" : "gguf");
    json_write_text(w, "family", family);
    json_begin_array(w, "families");
    json_write_text(w, NULL, family);
    json_end_array(w);
    json_write_text(w, "parameter_size", "");
    json_write_text(w, "quantization_level", "");
    json_end_object(w);
}

static void ollama_write_digest(struct json_writer *w, const char *version)
{
    static const char zeros[] = "0000000000000000000000000000000000000000000000000000000000000000";
    size_t len = strnlen(version, DIGEST_CHARS);

    json_write_format(w, "digest", "%s%.*s", zeros + len, (int)len, version);
}

/* Of the server: when its models were loaded is not known. */
static uint64_t ollama_start_ms(const struct exchange *x)
{
    return exchange_server(x)->conversations->config.unix_ms;
}

/* What /api/tags and /api/ps have in common. */
static void ollama_write_model(struct json_writer *w, const struct model *m)
{
    ollama_write_tagged(w, "name", m);
    ollama_write_tagged(w, "model", m);
    json_write_unsigned(w, "size", m->info.weight_bytes);
    ollama_write_digest(w, m->info.version);
    ollama_write_details(w, m);
}

static void ollama_list(struct exchange *x, bool is_running)
{
    const struct models *models = exchange_server(x)->models;
    struct json_writer w;
    struct buf body;

    buf_init(&body, OLLAMA_LIST_MAX_BYTES);
    w = json_writer_begin(&body);
    json_begin_object(&w, NULL);
    json_begin_array(&w, "models");
    for (size_t i = 0; i < models->n_loaded; i++) {
        const struct model *m = models->loaded[i];

        if (m->is_vacant)
            continue;
        json_begin_object(&w, NULL);
        ollama_write_model(&w, m);
        if (is_running) {
            json_write_unsigned(&w, "size_vram", m->info.weight_bytes);
            json_write_unsigned(&w, "context_length", m->info.text.context);
            json_write_text(&w, "expires_at", OLLAMA_NEVER);
        } else {
            json_write_time(&w, "modified_at", ollama_start_ms(x));
        }
        json_end_object(&w);
    }
    json_end_array(&w);
    json_end_object(&w);
    answer_json(x, &w, &body);
    buf_deinit(&body);
}

static void ollama_tags_serve(struct exchange *x)
{
    ollama_list(x, false);
}

static void ollama_ps_serve(struct exchange *x)
{
    ollama_list(x, true);
}

/* The model of a body: "model", or "name" of older clients. */
static enum status ollama_named_model(struct model **out, struct exchange *x, const json_t *body,
                                      struct error *err)
{
    const char *name = "";

    if (field_text(&name, body, "name", err) != STATUS_OK ||
        field_text(&name, body, "model", err) != STATUS_OK)
        return err->status;
    if (name[0] == '\0')
        return error_field(err, "model", "is missing");
    return resolution_find_model(out, x, name, err);
}

/* Clients offer tools and thoughts only where these say so. */
static void ollama_write_capabilities(struct json_writer *w, const struct model *m)
{
    const struct reply_format *f = m->info.text.reply_format;

    json_begin_array(w, "capabilities");
    json_write_text(w, NULL, "completion");
    if (f != NULL && f->takes_tools)
        json_write_text(w, NULL, "tools");
    if (f != NULL && f->thoughts != NULL)
        json_write_text(w, NULL, "thinking");
    if (m->info.text.n_embedding > 0)
        json_write_text(w, NULL, "embedding");
    json_end_array(w);
}

/* A member whose name begins with the model's family. */
static void ollama_write_of_family(struct json_writer *w, const struct model *m, const char *what,
                                   size_t value)
{
    char name[128];

    (void)snprintf(name, sizeof(name), "%.100s.%s", ollama_family(m), what);
    json_write_unsigned(w, name, value);
}

static enum status ollama_show(struct exchange *x, const json_t *body, struct error *err)
{
    struct json_writer w;
    struct model *m;
    struct buf out;

    if (ollama_named_model(&m, x, body, err) != STATUS_OK)
        return err->status;
    buf_init(&out, OLLAMA_LIST_MAX_BYTES);
    w = json_writer_begin(&out);
    json_begin_object(&w, NULL);
    ollama_write_details(&w, m);
    json_begin_object(&w, "model_info");
    json_write_text(&w, "general.architecture", ollama_family(m));
    ollama_write_of_family(&w, m, "context_length", m->info.text.context);
    ollama_write_of_family(&w, m, "vocab_size", m->info.text.n_vocab);
    json_end_object(&w);
    json_write_format(&w, "parameters", "temperature %g\ntop_k %u\ntop_p %g\nmin_p %g",
                      (double)m->info.defaults.temperature, m->info.defaults.top_k,
                      (double)m->info.defaults.top_p, (double)m->info.defaults.min_p);
    json_write_time(&w, "modified_at", ollama_start_ms(x));
    ollama_write_capabilities(&w, m);
    json_end_object(&w);
    answer_json(x, &w, &out);
    buf_deinit(&out);
    return STATUS_OK;
}

static void ollama_show_serve(struct exchange *x)
{
    resolution_serve(x, ollama_show);
}

/* --- what is not served --- */

static void ollama_refuse_serve(struct exchange *x)
{
    struct error err;

    (void)error_set(&err, STATUS_UNIMPLEMENTED,
                    "%s is not served: models are files that parleyd is started with",
                    exchange_path(x));
    exchange_fail_as(x, 501, &err);
}

/* --- probes --- */

static void ollama_version_serve(struct exchange *x)
{
    static const char version[] = "{\"version\":\"" OLLAMA_VERSION "\"}";

    exchange_reply(x, 200, "application/json", version, sizeof(version) - 1);
}

enum { LOOKS = METHOD_GET | METHOD_HEAD };

static const struct route rows[] = {
    {"/api/version", .methods = LOOKS, .always = true, .serve = ollama_version_serve,
     .api = &ollama_api},
    {"/api/tags", .methods = LOOKS, .serve = ollama_tags_serve, .api = &ollama_api},
    {"/api/ps", .methods = LOOKS, .serve = ollama_ps_serve, .api = &ollama_api},
    {"/api/show", .methods = METHOD_POST, .serve = ollama_show_serve, .api = &ollama_api},
    {"/api/push", .methods = METHOD_POST, .serve = ollama_refuse_serve, .api = &ollama_api},
    {"/api/create", .methods = METHOD_POST, .serve = ollama_refuse_serve, .api = &ollama_api},
    {"/api/copy", .methods = METHOD_POST, .serve = ollama_refuse_serve, .api = &ollama_api},
    {"/api/delete", .methods = METHOD_DELETE, .serve = ollama_refuse_serve, .api = &ollama_api},
    {"/api/blobs/", true, METHOD_POST, .serve = ollama_refuse_serve, .api = &ollama_api},
};
const struct route_table ollama_models_routes = {rows, sizeof(rows) / sizeof(rows[0])};
