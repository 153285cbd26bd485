/* parley.v1.Store, what sends versions: Pull, Watch. A value that is being sent is kept until its
 * call is over, whatever becomes of its key. */
#include <stdlib.h>

#include "parley/v1/store.pb-c.h"
#include "server/api/parley/methods.h"
#include "server/api/parley/placed_call.h"
#include "server/call/subscription.h"
#include "server/server.h"
#include "server/store/stores.h"

enum { STORE_PART_BYTES = 1 << 20 };

/* --- Pull --- */

struct store_pull {
    struct store_value *value; /* NULL: there is none to send */
    bool is_not_modified, has_begun, is_over;
    size_t n_sent;
};

static void store_pull_write_ready(struct call *call, void *state)
{
    Parley__V1__StorePullResponse response = PARLEY__V1__STORE_PULL_RESPONSE__INIT;
    Parley__V1__StorePullHeader header = PARLEY__V1__STORE_PULL_HEADER__INIT;
    struct store_pull *p = state;
    struct store_value *v = p->value;
    size_t size_bytes = v == NULL || p->is_not_modified ? 0 : v->size_bytes;

    if (p->is_over)
        return;
    if (!p->has_begun) {
        p->has_begun = true;
        response.what_case = PARLEY__V1__STORE_PULL_RESPONSE__WHAT_HEADER;
        response.header = &header;
        header.found = v != NULL;
        header.not_modified = p->is_not_modified;
        header.size_bytes = size_bytes;
        if (v != NULL) {
            header.version = v->version;
            header.content_type = v->content_type;
            header.crc32c = v->crc;
        }
    } else {
        size_t left = size_bytes - p->n_sent;

        response.what_case = PARLEY__V1__STORE_PULL_RESPONSE__WHAT_DATA;
        response.data.data = v->bytes + p->n_sent;
        response.data.len = left < STORE_PART_BYTES ? left : STORE_PART_BYTES;
        p->n_sent += response.data.len;
    }
    p->is_over = p->n_sent == size_bytes;
    if (p->is_over)
        call_finish_with(call, &response.base);
    else
        call_write(call, &response.base, false);
}

static void store_pull_on_close(struct call *call, void *state, enum status why)
{
    struct store_pull *p = state;

    store_value_unref(p->value);
}

static void store_start_pull(struct call *call, const Parley__V1__StorePullRequest *m)
{
    static const struct call_handler handler = {.on_write_ready = store_pull_write_ready,
                                                .on_close = store_pull_on_close};
    struct server *server = call_server(call);
    struct store_pull *p = arena_alloc(call_arena(call), 1, sizeof(*p));
    struct store_key *k;
    struct error err;
    enum status rc;

    if (p == NULL)
        rc = error_no_memory(&err, sizeof(*p), "a call");
    else
        rc = stores_find(&k, server->stores, call_principal(call), ACCESS_READ, m->key, &err);
    if (rc != STATUS_OK && (rc != STATUS_NOT_FOUND || p == NULL)) {
        call_finish(call, &err);
        return;
    }
    if (rc == STATUS_OK) {
        p->value = m->has_version ? store_key_version(k, m->version) : store_key_newest(k);
        if (p->value != NULL)
            (void)store_value_ref(p->value);
        p->is_not_modified =
            p->value != NULL && m->has_if_newer_than && p->value->version == m->if_newer_than;
    }
    call_set_handler(call, &handler, p);
    call_notify(call);
}

/* --- Watch --- */

struct store_watch {
    struct subscription base;
    struct store_key *key; /* NULL after it was deleted */
    struct store_subscriber subscriber;
    bool is_due; /* there is a version to tell */
};

static void store_watch_pushed(struct store_subscriber *subscriber)
{
    struct store_watch *w = container_of(subscriber, struct store_watch, subscriber);

    w->is_due = true;
    call_notify(w->base.call);
}

static void store_watch_closing(struct store_subscriber *subscriber, const struct error *why)
{
    struct store_watch *w = container_of(subscriber, struct store_watch, subscriber);

    w->key = NULL;
    subscription_end(&w->base, why);
}

static void store_watch_write_ready(struct call *call, void *state)
{
    Parley__V1__StoreVersion message = PARLEY__V1__STORE_VERSION__INIT;
    struct store_watch *w = state;
    const struct store_value *newest;

    if (w->base.is_over || !w->is_due)
        return;
    w->is_due = false;
    newest = store_key_newest(w->key);
    if (newest == NULL)
        return;
    message.version = newest->version;
    message.size_bytes = newest->size_bytes;
    call_write(call, &message.base, false);
}

static void store_watch_on_close(struct call *call, void *state, enum status why)
{
    struct store_watch *w = state;

    store_key_unsubscribe(&w->subscriber);
    free(w);
}

static void store_start_watch(struct call *call, const Parley__V1__StoreWatchRequest *request)
{
    static const struct call_handler handler = {.on_write_ready = store_watch_write_ready,
                                                .drain = subscription_drain,
                                                .on_close = store_watch_on_close};
    struct server *server = call_server(call);
    struct store_watch *w;
    struct store_key *k;
    struct error err;

    if (stores_find(&k, server->stores, call_principal(call), ACCESS_READ, request->key, &err) !=
        STATUS_OK) {
        call_finish(call, &err);
        return;
    }
    w = call_state(call, sizeof(*w));
    if (w == NULL)
        return;
    w->key = k;
    w->is_due = true;
    w->subscriber =
        (struct store_subscriber){.pushed = store_watch_pushed, .closing = store_watch_closing};
    store_key_subscribe(k, &w->subscriber);
    subscription_start(&w->base, call, &handler);
}

#define STORE_PULL_METHODS(METHOD)                                                    \
    METHOD(SERVER_STREAM, KEY, "Store/Pull", store_pull_request, store_pull_response, \
           store_start_pull)                                                          \
    METHOD(SERVER_STREAM, KEY, "Store/Watch", store_watch_request, store_version, store_start_watch)

#define PARLEY_PLACE JOURNAL_PLACE_KEYS
PLACED_TABLE(store_pull_methods, STORE_PULL_METHODS)
