/* What a front does with all of its exchanges: front.h without the connections, which are
 * connection.c's. */
#include <assert.h>

#include "server/access/access.h"
#include "server/http/exchange.h"
#include "server/http/exchange_parts.h"
#include "server/http/front.h"
#include "server/http/http2.h"
#include "server/http/websocket.h"

enum {
    LONG_BODY_BYTES = 200, /* of a request that has a constraint, or is large */
    TURN_US = 5000,        /* after so long no further long body is read in a turn of the loop */
};

void front_init(struct http_front *f, const struct http_config *config,
                void (*stay_awake)(struct http_front *f))
{
    *f = (struct http_front){.config = *config, .stay_awake = stay_awake};
    list_init(&f->connections);
    list_init(&f->exchanges);
    list_init(&f->notified);
    list_init(&f->http2_due);
    list_init(&f->websockets_due);
}

void front_deinit(struct http_front *f)
{
    assert(list_is_empty(&f->exchanges));
}

/* The request is complete and has a body that may take long to read: a schema's automata do. */
static bool may_take_long(const struct exchange *x)
{
    size_t len = 0;

    if (x->state == EXCHANGE_DUE)
        (void)exchange_body(x, &len); /* its length alone is wanted */
    return len >= LONG_BODY_BYTES;
}

/* Bodies that may take long come last, and wait for the loop's next turn once this one was long: so
 * a request that takes none waits for one of them, not for all. */
void front_serve(struct http_front *f)
{
    const uint64_t begin_us = env_now_us(f->config.env);
    struct list notified, large;

    list_init(&notified);
    list_init(&large);
    list_move(&f->notified, &notified);
    while (!list_is_empty(&notified)) {
        struct exchange *x = container_of(list_first(&notified), struct exchange, notified);

        if (may_take_long(x)) {
            list_remove(&x->notified);
            list_push(&large, &x->notified);
        } else {
            exchange_serve(x);
        }
    }
    while (!list_is_empty(&large)) {
        exchange_serve(container_of(list_first(&large), struct exchange, notified));
        if (env_now_us(f->config.env) - begin_us > TURN_US)
            break;
    }
    list_move(&f->notified, &large); /* notified meanwhile: behind those that wait already */
    list_move(&large, &f->notified);
    http2_flush_due(f);
    websocket_flush_due(f);
}

void front_drain(struct http_front *f)
{
    f->is_draining = true;
    for (struct link *l = list_first(&f->exchanges); l != NULL; l = list_next(&f->exchanges, l))
        exchange_tell_drain(container_of(l, struct exchange, link));
    front_close_idle(f);
}

bool front_end(struct http_front *f)
{
    struct error err;

    (void)error_draining(&err);
    f->is_draining = true;
    for (struct link *l = list_first(&f->exchanges); l != NULL; l = list_next(&f->exchanges, l))
        exchange_end_with(container_of(l, struct exchange, link), &err);
    front_close_idle(f);
    front_sweep(f);
    return list_is_empty(&f->connections);
}

void front_check_keys(struct http_front *f)
{
    struct link *at = list_first(&f->exchanges), *next;

    for (; at != NULL; at = next) {
        struct exchange *x = container_of(at, struct exchange, link);

        next = list_next(&f->exchanges, at);
        if (x->access != NULL && x->state != EXCHANGE_LINGERING &&
            access_key_is_revoked(f->config.access, x->access))
            x->sink->close(x->sink);
    }
}
