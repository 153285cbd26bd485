/* Waits until a server is ready: a watch of gRPC's health service. */
#include <stdio.h>

#include "base/arena.h"
#include "base/clock.h"
#include "client/lib/parts.h"
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

enum parley_status parley_channel_wait(struct parley_channel *channel, uint32_t timeout_ms,
                                       struct parley_error *ret_err)
{
    Grpc__Health__V1__HealthCheckRequest request = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
    struct call_start how = {.method = "/grpc.health.v1.Health/Watch",
                             .request = &request.base,
                             .waits_for_server = true};
    const uint64_t end_ms = clock_ms() + timeout_ms;
    struct health_wait w = {false};
    struct parley_error err = {0};
    uint64_t now;

    do {
        now = clock_ms();
        how.deadline_ms = now < end_ms ? (uint32_t)(end_ms - now) : 1;
        (void)request_wait(channel, &how, true, on_health, &w, &err);
        /* UNAVAILABLE: the server was there and stopped; it may return. */
    } while (!w.is_serving && err.status == PARLEY_UNAVAILABLE && clock_ms() < end_ms);
    if (w.is_serving) {
        err = (struct parley_error){0};
    } else if (err.status == PARLEY_DEADLINE_EXCEEDED) {
        (void)snprintf(
            err.text, sizeof(err.text),
            "%s did not become ready within %u ms; is parleyd running? start it with parleyd, "
            "or ./run chat",
            channel->address, timeout_ms);
    }
    if (ret_err != NULL)
        *ret_err = err;
    return err.status;
}
