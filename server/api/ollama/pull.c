/* /api/pull: a model that is served needs no pull; one of the hub is fetched into its cache, for
 * administrators alone, and a stream says how far it is. A client that goes away ends its pull. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/arena.h"
#include "base/json_writer.h"
#include "server/access/access.h"
#include "server/api/ollama/error.h"
#include "server/api/resolution.h"
#include "server/api/routes.h"
#include "server/http/exchange.h"
#include "server/json/fields.h"
#include "server/model/models.h"
#include "server/model/pulls.h"
#include "server/server.h"

enum { NAME_MAX_BYTES = 400 };

struct ollama_pull {
    struct model_pull wait;
    struct exchange *exchange;
    bool is_streamed, has_begun, is_over;
    enum pull_stage stage, told_stage;
    bool is_new; /* there is something to tell */
    char etag[65], told_etag[65];
    uint64_t total, completed;
    char served[MODEL_NAME_SERVED_MAX + 1]; /* once it is over; "": err says why */
    struct error err;
};

/* --- what is told --- */

static void ollama_pull_line(struct json_writer *w, const char *status)
{
    json_begin_object(w, NULL);
    json_write_text(w, "status", status);
}

static void ollama_pull_line_end(struct json_writer *w)
{
    json_end_object(w);
    json_write_around(w, "\n");
}

static void ollama_pull_write_file(const struct ollama_pull *p, struct json_writer *w)
{
    char status[64];

    (void)snprintf(status, sizeof(status), "pulling %.12s", p->etag);
    ollama_pull_line(w, status);
    json_write_format(w, "digest", "%s:%s", strlen(p->etag) == 64 ? "sha256" : "sha1", p->etag);
    json_write_unsigned(w, "total", p->total);
    json_write_unsigned(w, "completed", p->completed);
    ollama_pull_line_end(w);
}

static void ollama_pull_write(struct ollama_pull *p, struct json_writer *w)
{
    static const char *const names[] = {[PULL_LISTING] = "pulling manifest",
                                        [PULL_WAITING] = "waiting for another program",
                                        [PULL_CHECKING] = "verifying sha256 digest",
                                        [PULL_LINKING] = "writing manifest"};

    if (p->stage == PULL_FETCHING) {
        ollama_pull_write_file(p, w);
    } else if (p->stage != p->told_stage || strcmp(p->etag, p->told_etag) != 0 || !p->has_begun) {
        ollama_pull_line(w, names[p->stage]);
        ollama_pull_line_end(w);
    }
    p->told_stage = p->stage;
    (void)snprintf(p->told_etag, sizeof(p->told_etag), "%s", p->etag);
    p->has_begun = true;
}

static void ollama_pull_write_end(const struct ollama_pull *p, struct json_writer *w)
{
    if (p->served[0] == '\0') {
        json_begin_object(w, NULL);
        json_write_text(w, "error", p->err.text);
    } else {
        ollama_pull_line(w, "success");
        json_write_text(w, "model", p->served);
    }
    ollama_pull_line_end(w);
}

static void ollama_pull_answer(struct ollama_pull *p)
{
    struct json_writer w;
    struct buf body;

    if (p->served[0] == '\0') {
        exchange_fail(p->exchange, &p->err);
        return;
    }
    buf_init(&body, 1 << 10);
    w = json_writer_begin(&body);
    ollama_pull_write_end(p, &w);
    (void)!json_writer_end(&w); /* it has room */
    exchange_reply(p->exchange, 200, "application/json", body.data, body.len);
    buf_deinit(&body);
}

static void ollama_pull_write_ready(struct exchange *x, void *state)
{
    struct ollama_pull *p = state;
    struct json_writer w;

    if (p->is_over && !exchange_is_streaming(x) && (!p->is_streamed || p->served[0] == '\0')) {
        ollama_pull_answer(p);
        return;
    }
    if (!p->is_streamed || (!p->is_new && !p->is_over))
        return;
    w = json_writer_begin(exchange_stream(x));
    if (p->is_new)
        ollama_pull_write(p, &w);
    p->is_new = false;
    if (p->is_over)
        ollama_pull_write_end(p, &w);
    if (json_writer_end(&w) != STATUS_OK || p->is_over)
        exchange_end(x);
}

/* --- the pull --- */

static void on_ollama_progress(struct model_pull *w, const struct pull_progress *now)
{
    struct ollama_pull *p = container_of(w, struct ollama_pull, wait);

    if (now->stage == PULL_LISTING && !p->has_begun && !p->is_new)
        return; /* an error of the list is an answer of its own */
    p->stage = now->stage;
    (void)snprintf(p->etag, sizeof(p->etag), "%s", now->etag == NULL ? "" : now->etag);
    p->total = now->file_bytes;
    p->completed = now->file_done;
    p->is_new = true;
    exchange_notify(p->exchange);
}

static void on_ollama_done(struct model_pull *w, const char *served, const struct error *err)
{
    struct ollama_pull *p = container_of(w, struct ollama_pull, wait);

    p->is_over = true;
    p->err = *err;
    (void)snprintf(p->served, sizeof(p->served), "%s", served == NULL ? "" : served);
    exchange_notify(p->exchange);
}

/* A pull may take hours, and the next one goes on. */
static void ollama_pull_drain(struct exchange *x, void *state)
{
    model_pull_cancel(&((struct ollama_pull *)state)->wait);
}

static void ollama_pull_closed(struct exchange *x, void *state)
{
    model_pull_leave(&((struct ollama_pull *)state)->wait);
}

/* Ollama's words for the hub become ours; NULL: the name is another one. */
static const char *hub_name(char out[NAME_MAX_BYTES], const char *name)
{
    static const char *const hosts[] = {"hf:", "hf.co/", "huggingface.co/"};
    static const char latest[] = ":latest";
    size_t len;

    for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++) {
        if (strncasecmp(name, hosts[i], strlen(hosts[i])) != 0)
            continue;
        (void)snprintf(out, NAME_MAX_BYTES, "hf:%s", name + strlen(hosts[i]));
        len = strlen(out);
        if (len > sizeof(latest) && strcmp(out + len - sizeof(latest) + 1, latest) == 0)
            out[len - sizeof(latest) + 1] = '\0'; /* which clients add */
        return out;
    }
    return NULL;
}

static enum status ollama_pull_begin(struct exchange *x, const char *name, bool is_streamed,
                                     struct error *err)
{
    static const struct exchange_handler handler = {.on_write_ready = ollama_pull_write_ready,
                                                    .drain = ollama_pull_drain,
                                                    .on_close = ollama_pull_closed};
    struct ollama_pull *p;

    if ((exchange_principal(x)->roles & ACCESS_ROLE_ADMIN) == 0)
        return error_because(err, STATUS_DENIED, REASON_ROLE_MISSING, NULL,
                             "to pull a model needs a key with the role admin");
    p = arena_alloc(exchange_arena(x), 1, sizeof(*p));
    if (p == NULL)
        return error_no_memory(err, sizeof(*p), "a pull");
    *p = (struct ollama_pull){.wait.progress = on_ollama_progress,
                              .wait.done = on_ollama_done,
                              .exchange = x,
                              .is_streamed = is_streamed};
    if (model_pull_start(&p->wait, exchange_server(x)->models, name, err) != STATUS_OK)
        return err->status;
    exchange_set_stream_type(x, "application/x-ndjson");
    exchange_set_handler(x, &handler, p);
    return STATUS_OK;
}

static enum status ollama_pull(struct exchange *x, const json_t *body, struct error *err)
{
    static const char done[] = "{\"status\":\"success\"}\n";
    const char *name = "", *of_hub;
    bool is_streamed = true;
    char text[NAME_MAX_BYTES];
    struct model *m;

    if (field_text(&name, body, "name", err) != STATUS_OK ||
        field_text(&name, body, "model", err) != STATUS_OK ||
        field_bool(&is_streamed, body, "stream", err) != STATUS_OK)
        return err->status;
    if (name[0] == '\0')
        return error_field(err, "model", "is missing");
    of_hub = hub_name(text, name);
    if (of_hub != NULL)
        return ollama_pull_begin(x, of_hub, is_streamed, err);
    if (resolution_find_model(&m, x, name, err) != STATUS_OK)
        return err->status;
    exchange_reply(x, 200, "application/x-ndjson", done, sizeof(done) - 1);
    return STATUS_OK;
}

static void ollama_pull_serve(struct exchange *x)
{
    resolution_serve(x, ollama_pull);
}

static const struct route rows[] = {
    {"/api/pull", .methods = METHOD_POST, .serve = ollama_pull_serve, .api = &ollama_api},
};
const struct route_table ollama_pull_routes = {rows, sizeof(rows) / sizeof(rows[0])};
