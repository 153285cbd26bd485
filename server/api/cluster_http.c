/* parley.v1.Cluster's Http: a request of HTTP that another daemon passes on is answered as if it
 * had come to this daemon's port. Each message brings a part of the request; the answer's bytes go
 * back as they come, and the exchange is choked while a message is on its way.
 *
 * Failure: if the other daemon cancels, the exchange ends as if its client had hung up. */
#include "parley/v1/cluster.pb-c.h"

#include <string.h>

#include "base/buf.h"
#include "server/access/access.h"
#include "server/call/methods.h"
#include "server/http/inner.h"
#include "server/server.h"

#define ANSWER_MAX_BYTES ((size_t)64 << 20)

struct cluster_http {
    struct call *call;
    struct inner *inner; /* NULL: the head has not come */
    struct buf out;      /* of the answer, not written yet */
    bool is_ended, is_cut;
};

static bool cluster_http_write(void *arg, const char *data, size_t len)
{
    struct cluster_http *h = arg;

    call_notify(h->call);
    return buf_append(&h->out, data, len) == STATUS_OK;
}

static bool cluster_http_is_choked(void *arg)
{
    return ((struct cluster_http *)arg)->out.len > 0;
}

static void cluster_http_end(void *arg, bool is_cut)
{
    struct cluster_http *h = arg;

    h->is_ended = true;
    h->is_cut = is_cut;
    call_notify(h->call);
}

static void cluster_http_write_ready(struct call *call, void *state)
{
    Parley__V1__ClusterHttpResponse message = PARLEY__V1__CLUSTER_HTTP_RESPONSE__INIT;
    struct cluster_http *h = state;
    struct error err;

    if (h->out.len > 0) {
        message.data = (ProtobufCBinaryData){h->out.len, (uint8_t *)h->out.data};
        call_write(call, &message.base, false);
        buf_clear(&h->out);
        if (h->inner != NULL)
            inner_notify(h->inner);
    } else if (h->is_cut) {
        (void)error_set(&err, STATUS_UNAVAILABLE, "the answer was cut off");
        call_finish(call, &err);
    } else if (h->is_ended) {
        call_finish(call, NULL);
    }
}

/* Returns whether the request can be read on. */
static bool cluster_http_begin(struct cluster_http *h,
                               const Parley__V1__ClusterHttpRequest *request)
{
    static const struct inner_handler handler = {
        .write = cluster_http_write, .is_choked = cluster_http_is_choked, .end = cluster_http_end};
    struct server *server = call_server(h->call);
    const struct access_key *key;
    struct error err;
    enum status rc;

    rc = access_admit_as(&key, server->access, ACCESS_KEY, call_principal(h->call)->name, &err);
    if (rc == STATUS_OK && server->http == NULL)
        rc = error_set(&err, STATUS_UNIMPLEMENTED,
                       "the parleyd that has the conversation serves no HTTP: give it --http");
    if (rc == STATUS_OK)
        rc = inner_open(&h->inner, server->http, (const char *)request->head.data,
                        request->head.len, key, &handler, h, &err);
    if (rc != STATUS_OK)
        call_finish(h->call, &err);
    return rc == STATUS_OK;
}

static void cluster_http_message(struct call *call, void *state, const ProtobufCMessage *message,
                                 struct arena *arena)
{
    const Parley__V1__ClusterHttpRequest *request = (const Parley__V1__ClusterHttpRequest *)message;
    struct cluster_http *h = state;
    struct error err;

    if (h->inner == NULL && request == NULL) {
        (void)error_field(&err, "head", "is missing");
        call_finish(call, &err);
    } else if (request == NULL) {
        inner_whole(h->inner);
    } else if (h->inner != NULL || cluster_http_begin(h, request)) {
        if (request->body.len > 0)
            inner_take(h->inner, (const char *)request->body.data, request->body.len);
        call_read(call);
    }
}

static void cluster_http_on_close(struct call *call, void *state, enum status why)
{
    struct cluster_http *h = state;

    inner_close(h->inner);
    buf_deinit(&h->out);
}

static void cluster_http_start(struct call *call)
{
    static const struct call_handler handler = {.on_write_ready = cluster_http_write_ready,
                                                .message = cluster_http_message,
                                                .on_close = cluster_http_on_close};
    struct cluster_http *h = arena_alloc(call_arena(call), 1, sizeof(*h));
    struct error err;

    if (h == NULL)
        (void)error_no_memory(&err, sizeof(*h), "a request");
    else if (!call_is_passed_on(call))
        (void)error_because(&err, STATUS_DENIED, REASON_ROLE_MISSING, NULL,
                            "only another parleyd of the cluster may ask this: use the HTTP port");
    if (h == NULL || !call_is_passed_on(call)) {
        call_finish(call, &err);
        return;
    }
    h->call = call;
    buf_init(&h->out, ANSWER_MAX_BYTES);
    call_set_handler(call, &handler, h);
    call_read(call);
}

#define CLUSTER_HTTP_METHODS(METHOD)                                               \
    METHOD(BIDI, KEY, "/parley.v1.Cluster/Http", parley__v1__cluster_http_request, \
           parley__v1__cluster_http_response, cluster_http_start)

CALL_TABLE(cluster_http_methods, CLUSTER_HTTP_METHODS)
