/* The channel's thread polls its completion queue and runs every callback. Close: live calls are
 * cancelled; the last one's end signals is_empty; then the queue is shut down, and its thread ends
 * and is joined. */
#include <assert.h>
#include <grpc/grpc_security.h>
#include <grpc/support/time.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "client/lib/parts.h"
#include "grpc/health/v1/health.pb-c.h"
#include "proto/codec.h"
#include "proto/locks.h"

static void *channel_poll_queue(void *arg)
{
    struct parley_channel *channel = arg;
    grpc_event event;

    for (;;) {
        event =
            grpc_completion_queue_next(channel->queue, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
        if (event.type == GRPC_QUEUE_SHUTDOWN)
            return NULL;
        parley_call_op_back(event.tag, event.success != 0);
    }
}

static grpc_channel_credentials *channel_credentials(const struct parley_channel_options *options)
{
    grpc_ssl_pem_key_cert_pair own = {options->private_key, options->certificate};

    if (!options->is_tls)
        return grpc_insecure_credentials_create();
    return grpc_ssl_credentials_create(options->ca, options->certificate == NULL ? NULL : &own,
                                       NULL, NULL);
}

static grpc_channel *connect_lazily(const struct parley_channel_options *options)
{
    static const struct {
        const char *key;
        int value;
    } ints[] = {
        {GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1}, /* a channel is a connection */
        {GRPC_ARG_ENABLE_HTTP_PROXY, 0},         /* a proxy of the environment is for the web */
        {GRPC_ARG_ENABLE_RETRIES, 0},            /* turns have numbers: the caller retries */
        {GRPC_ARG_ENABLE_CHANNELZ, 0},
        {GRPC_ARG_ENABLE_CENSUS, 0},
        {GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, 128 << 20}, /* a turn of a transcript may be long */
        {GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100},
        {GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2000},
        {GRPC_ARG_KEEPALIVE_TIME_MS, 60000}, /* detects a server whose host is down */
    };
    grpc_arg args[sizeof(ints) / sizeof(ints[0])];
    const grpc_channel_args all = {sizeof(args) / sizeof(args[0]), args};
    grpc_channel_credentials *credentials = channel_credentials(options);
    grpc_channel *core;

    for (size_t i = 0; i < all.num_args; i++) {
        args[i].type = GRPC_ARG_INTEGER;
        args[i].key = (char *)(uintptr_t)ints[i].key; /* gRPC only reads it */
        args[i].value.integer = ints[i].value;
    }
    core = grpc_channel_create(options->address, credentials, &all);
    grpc_channel_credentials_release(credentials);
    return core;
}

/* A header's value: printable ASCII. False: it is none, or there is no memory. */
static bool channel_set_key(struct parley_channel *channel, const char *key)
{
    static const char bearer[] = "Bearer ";
    size_t len = strlen(key);
    char *value;

    for (size_t i = 0; i < len; i++) {
        if (key[i] < '!' || key[i] > '~')
            return false;
    }
    value = try_alloc(1, sizeof(bearer) + len);
    if (value == NULL)
        return false;
    memcpy(value, bearer, sizeof(bearer) - 1);
    memcpy(value + sizeof(bearer) - 1, key, len + 1);
    channel->key.key = grpc_slice_from_static_string("authorization");
    channel->key.value = grpc_slice_from_copied_string(value);
    channel->n_keys = 1;
    free(value);
    return true;
}

/* The queue is drained and the thread has been joined. */
static void channel_free(struct parley_channel *channel)
{
    grpc_channel_destroy(channel->core);
    grpc_completion_queue_destroy(channel->queue);
    grpc_shutdown_blocking();
    (void)pthread_cond_destroy(&channel->is_empty);
    (void)pthread_mutex_destroy(&channel->lock);
    if (channel->n_keys > 0)
        grpc_slice_unref(channel->key.value);
    free(channel->address);
    free(channel);
}

static struct parley_channel *channel_make(const struct parley_channel_options *options)
{
    struct parley_channel *channel = try_alloc(1, sizeof(*channel));

    if (channel == NULL)
        return NULL;
    channel->address = try_strndup(options->address, strlen(options->address));
    if (channel->address == NULL ||
        (options->key != NULL && !channel_set_key(channel, options->key))) {
        free(channel->address);
        free(channel);
        return NULL;
    }
    (void)locks_unchecked(); /* without it calls cost more */
    grpc_init();
    list_init(&channel->live);
    (void)pthread_mutex_init(&channel->lock, NULL); /* neither can fail on Linux */
    (void)pthread_cond_init(&channel->is_empty, NULL);
    channel->core = connect_lazily(options);
    channel->queue = grpc_completion_queue_create_for_next(NULL);
    if (pthread_create(&channel->thread, NULL, channel_poll_queue, channel) != 0) {
        grpc_completion_queue_shutdown(channel->queue);
        (void)channel_poll_queue(channel); /* only its shutdown event is in it */
        channel_free(channel);
        return NULL;
    }
    return channel;
}

/* Threads inherit the mask of signals: gRPC's and the channel's take none, so that the caller's
 * handlers run on the caller's threads. A fault or a profiler's tick concerns the thread itself. */
struct parley_channel *parley_channel_open_with(const struct parley_channel_options *options)
{
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT, SIGPROF};
    struct parley_channel *channel;
    sigset_t blocked, before;

    (void)sigfillset(&blocked);
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
        (void)sigdelset(&blocked, own[i]);
    (void)pthread_sigmask(SIG_BLOCK, &blocked, &before); /* cannot fail */
    channel = channel_make(options);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return channel;
}

struct parley_channel *parley_channel_open(const char *address)
{
    const struct parley_channel_options options = {.address = address};

    return parley_channel_open_with(&options);
}

void parley_channel_close(struct parley_channel *channel)
{
    if (channel == NULL)
        return;
    assert(!pthread_equal(channel->thread, pthread_self()));
    (void)pthread_mutex_lock(&channel->lock);
    for (struct link *l = list_first(&channel->live); l != NULL; l = list_next(&channel->live, l))
        parley_call_cancel(container_of(l, struct parley_call, link));
    while (!list_is_empty(&channel->live))
        (void)pthread_cond_wait(&channel->is_empty, &channel->lock);
    (void)pthread_mutex_unlock(&channel->lock);
    grpc_completion_queue_shutdown(channel->queue);
    (void)pthread_join(channel->thread, NULL);
    channel_free(channel);
}

/* --- waiting for a server --- */

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
        (void)snprintf(err.text, sizeof(err.text),
                       "%s does not serve within %u ms; is parleyd running? start it with parleyd, "
                       "or ./run chat",
                       channel->address, timeout_ms);
    }
    if (ret_err != NULL)
        *ret_err = err;
    return err.status;
}
