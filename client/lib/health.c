/* Waits until a server is ready: a watch of gRPC's health service. */
#include <stdio.h>

#include "base/arena.h"
#include "base/clock.h"
#include "client/lib/parts.h"
#include "client/lib/reach.h"
#include "grpc/health/v1/health.pb-c.h"
#include "proto/codec.h"

struct health_wait {
    bool is_serving;
};

static enum status on_health(void *arg, const void *data, size_t len, struct error *err)
{
    struct health_wait *w = arg;
    ProtobufCMessage *m = NULL;
    struct arena arena;
    enum status rc;

    arena_init(&arena, DECODED_MAX_BYTES);
    rc = codec_decode(&m, &grpc__health__v1__health_check_response__descriptor, data, len,
                      CODEC_ANY_FIELDS, &arena, err);
    if (rc == STATUS_OK && ((Grpc__Health__V1__HealthCheckResponse *)m)->status ==
                               GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING) {
        w->is_serving = true;
        rc = error_set(err, STATUS_CANCELLED, "it serves: the watch may end");
    }
    arena_deinit(&arena);
    return rc;
}

/* Watches until the server serves, or until the deadline. */
static enum parley_status watch_health(struct parley_channel *channel, uint32_t deadline_ms,
                                       struct parley_error *ret_err)
{
    Grpc__Health__V1__HealthCheckRequest request = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
    const struct call_start how = {.method = "/grpc.health.v1.Health/Watch",
                                   .request = &request.base,
                                   .waits_for_server = true,
                                   .deadline_ms = deadline_ms};
    struct health_wait w = {false};

    (void)request_wait(channel, &how, true, on_health, &w, ret_err);
    if (w.is_serving)
        *ret_err = (struct parley_error){0};
    return ret_err->status;
}

/* A watch waits for a connection and does not tell what prevents it. A call that does not wait
 * fails with the cause. True: there is none, the server serves, and only the watch was too slow. */
static bool ask_cause(struct parley_channel *channel, uint32_t deadline_ms,
                      struct parley_error *ret_err)
{
    Grpc__Health__V1__HealthCheckRequest request = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
    const struct call_start how = {.method = "/grpc.health.v1.Health/Check",
                                   .request = &request.base,
                                   .deadline_ms = deadline_ms};
    struct health_wait w = {false};

    (void)request_wait(channel, &how, false, on_health, &w, ret_err);
    return w.is_serving;
}

enum { WATCH_MS = 250, CAUSE_MS = 1000 };

enum parley_status parley_channel_wait(struct parley_channel *channel, uint32_t timeout_ms,
                                       struct parley_error *ret_err)
{
    const uint64_t end_ms = clock_ms() + timeout_ms;
    struct parley_error err = channel->malformed, cause = {0};
    uint64_t now = clock_ms();
    bool is_over = err.status != PARLEY_OK;

    while (!is_over) {
        uint64_t left_ms = now < end_ms ? end_ms - now : 1;

        (void)watch_health(channel, (uint32_t)(left_ms < WATCH_MS ? left_ms : WATCH_MS), &err);
        /* UNAVAILABLE: the server was there and stopped; it may return. */
        is_over = err.status != PARLEY_UNAVAILABLE && err.status != PARLEY_DEADLINE_EXCEEDED;
        if (err.status == PARLEY_DEADLINE_EXCEEDED && ask_cause(channel, CAUSE_MS, &cause)) {
            err = cause = (struct parley_error){0};
            is_over = true;
        }
        now = clock_ms();
        is_over = is_over || now >= end_ms || reach_is_final(&cause);
    }
    if (err.status == PARLEY_DEADLINE_EXCEEDED && cause.status == PARLEY_DEADLINE_EXCEEDED)
        reach_explain_silence(&err, channel->address);
    else if (err.status == PARLEY_DEADLINE_EXCEEDED && cause.reason[0] != '\0') {
        err = cause;
        err.status = PARLEY_DEADLINE_EXCEEDED;
    } else if (err.status == PARLEY_DEADLINE_EXCEEDED) {
        (void)snprintf(err.text, sizeof(err.text),
                       "parleyd at %s answers, but was not ready within %u ms", channel->address,
                       timeout_ms);
    }
    if (reach_is_final(&err) && err.status != PARLEY_INVALID_ARGUMENT)
        err.status = PARLEY_FAILED_PRECONDITION;
    if (ret_err != NULL)
        *ret_err = err;
    return err.status;
}
