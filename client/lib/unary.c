/* Any unary method: bytes in, bytes out. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "client/lib/parts.h"

struct unary_call {
    struct parley_call base;
    void *data; /* NULL until the response has arrived */
    size_t len;
    parley_unary_fn then;
    void *arg;
};

static enum status keep_response(struct parley_call *call, const void *data, size_t len,
                                 struct error *err)
{
    struct unary_call *u = (struct unary_call *)call;

    u->data = try_alloc(len + 1, 1); /* not NULL for an empty message */
    if (u->data == NULL)
        return error_no_memory(err, len, "a response");
    memcpy(u->data, data, len);
    u->len = len;
    return STATUS_OK;
}

static void unary_end(struct parley_call *call, const struct parley_error *err)
{
    struct unary_call *u = (struct unary_call *)call;
    struct parley_error outcome = *err;
    struct error missing = {0};

    if (outcome.status == PARLEY_OK && u->data == NULL) {
        (void)error_set(&missing, STATUS_INTERNAL, "the server answered without a response");
        outcome_of_failure(&outcome, &missing);
    }
    if (outcome.status != PARLEY_OK) {
        free(u->data);
        u->data = NULL;
        u->len = 0;
    }
    u->then(u->arg, u->data, u->len, &outcome);
}

struct parley_call *parley_unary_start(struct parley_channel *channel, const char *method,
                                       const void *request, size_t request_len,
                                       uint32_t deadline_ms, parley_unary_fn then, void *arg)
{
    static const struct call_kind kind = {false, keep_response, unary_end, NULL};
    const struct call_start how = {
        .method = method, .bytes = request, .len = request_len, .deadline_ms = deadline_ms};
    struct parley_call *call = parley_call_make(sizeof(struct unary_call), &kind);
    struct unary_call *u = (struct unary_call *)call;

    if (u == NULL)
        return NULL;
    u->then = then;
    u->arg = arg;
    parley_call_start(channel, call, &how);
    return call;
}

/* --- and wait --- */

struct unary_wait {
    struct waiter waiter;
    void *data;
    size_t len;
};

static void take_response(void *arg, void *data, size_t len, const struct parley_error *err)
{
    struct unary_wait *w = arg;

    w->data = data;
    w->len = len;
    waiter_tell(&w->waiter, err);
}

enum parley_status parley_unary(struct parley_channel *channel, const char *method,
                                const void *request, size_t request_len, uint32_t deadline_ms,
                                void **ret_data, size_t *ret_len, struct parley_error *ret_err)
{
    struct unary_wait w = {.data = NULL};
    struct parley_error short_of;
    struct parley_call *call;
    struct error err = {0};
    enum parley_status rc;

    assert(channel_may_wait(channel));
    waiter_init(&w.waiter);
    call =
        parley_unary_start(channel, method, request, request_len, deadline_ms, take_response, &w);
    if (call == NULL) {
        (void)error_no_memory(&err, sizeof(struct unary_call), "a call");
        outcome_of_failure(&short_of, &err);
        waiter_tell(&w.waiter, &short_of);
    }
    parley_call_unref(call);
    rc = waiter_wait(&w.waiter, channel, ret_err);
    if (rc == PARLEY_OK) {
        *ret_data = w.data;
        *ret_len = w.len;
    }
    return rc;
}
