/* The channel's thread polls its completion queue and runs every callback, or hands them over to
 * the thread that polls the channel. Close: live calls are cancelled; the last one's end signals
 * is_empty; then the queue is shut down, and its thread ends and is joined. */
#include <assert.h>
#include <grpc/grpc_security.h>
#include <grpc/support/log.h>
#include <grpc/support/time.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "client/lib/parts.h"
#include "client/lib/reach.h"
#include "proto/exit.h"
#include "proto/locks.h"

/* --- a channel that its user polls --- */

static void channel_hand_over(struct parley_channel *channel, struct call_op *op, bool ok)
{
    const uint64_t one = 1;

    /* Pairs with the start of the operation, perhaps in a dispatch: see struct call_op. */
    assert(atomic_load_explicit(&op->is_out, memory_order_acquire));
    (void)pthread_mutex_lock(&channel->lock);
    op->ok = ok;
    list_push(&channel->back, &op->link);
    (void)!write(channel->fd, &one,
                 sizeof(one)); /* fails only if the descriptor is readable already */
    (void)pthread_mutex_unlock(&channel->lock);
}

void parley_channel_dispatch(struct parley_channel *channel)
{
    struct list back;
    struct link *l;
    uint64_t ignored;

    assert(channel->fd >= 0 && !channel->is_in_dispatch);
    channel->is_in_dispatch = true;
    list_init(&back);
    (void)pthread_mutex_lock(&channel->lock);
    (void)!read(channel->fd, &ignored, sizeof(ignored)); /* harmless if there is nothing to read */
    list_move(&channel->back, &back);
    (void)pthread_mutex_unlock(&channel->lock);
    while ((l = list_pop(&back)) != NULL) {
        struct call_op *op = container_of(l, struct call_op, link);

        parley_call_op_back(op, op->ok);
    }
    channel->is_in_dispatch = false;
}

void channel_dispatch_next(struct parley_channel *channel, int timeout_ms)
{
    struct pollfd fd = {.fd = channel->fd, .events = POLLIN};

    (void)poll(&fd, 1, timeout_ms); /* a signal may end the wait early: the caller checks again */
    parley_channel_dispatch(channel);
}

int parley_channel_fd(const struct parley_channel *channel)
{
    return channel->fd;
}

bool channel_may_wait(const struct parley_channel *channel)
{
    return !pthread_equal(channel->thread, pthread_self()) &&
           (channel->fd < 0 || !channel->is_in_dispatch);
}

/* --- the thread --- */

static void channel_pass_on(struct parley_channel *channel, struct call_op *op, bool ok)
{
    if (channel->fd < 0)
        parley_call_op_back(op, ok);
    else
        channel_hand_over(channel, op, ok);
}

static void *channel_poll_queue(void *arg)
{
    struct parley_channel *channel = arg;
    struct call_op *op;
    struct list pauses;
    grpc_event event;

    list_init(&pauses);
    for (;;) {
        event = grpc_completion_queue_next(channel->queue, pauses_next_end(&pauses), NULL);
        if (event.type == GRPC_QUEUE_SHUTDOWN)
            return NULL;
        op = event.type == GRPC_OP_COMPLETE ? event.tag : NULL; /* NULL: look at the pauses */
        if (op != NULL && !call_op_is_pause(op)) {
            channel_pass_on(channel, op, event.success != 0);
            continue;
        }
        if (op != NULL)
            list_push(&pauses, &op->link);
        while ((op = pauses_take_over(&pauses)) != NULL)
            channel_pass_on(channel, op, true);
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

static grpc_channel *connect_lazily(const char *address,
                                    const struct parley_channel_options *options)
{
    static const struct {
        const char *key;
        int value;
    } ints[] = {
        {GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1}, /* so that each channel has its own connection */
        {GRPC_ARG_ENABLE_HTTP_PROXY, 0}, /* proxies in the environment are meant for the web */
        {GRPC_ARG_ENABLE_RETRIES,
         0}, /* no retries by gRPC: the caller retries, with the turn's number */
        {GRPC_ARG_ENABLE_CHANNELZ, 0},
        {GRPC_ARG_ENABLE_CENSUS, 0},
        {GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, 1 << 30}, /* a verified conversation may be long */
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
    core = grpc_channel_create(address, credentials, &all);
    grpc_channel_credentials_release(credentials);
    return core;
}

/* A header's value: printable ASCII. False: it is none, or there is no memory. */
static bool channel_set_key(struct parley_channel *channel, const char *key)
{
    static const char bearer[] = "Bearer ";
    size_t len = strlen(key);
    char *value;

    if (!reach_is_key(key))
        return false;
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
    (void)pthread_cond_destroy(&channel->is_settled);
    if (channel->fd >= 0)
        (void)close(channel->fd); /* nothing is written to it any more */
    (void)pthread_mutex_destroy(&channel->lock);
    if (channel->n_keys > 0)
        grpc_slice_unref(channel->key.value);
    free(channel->address);
    free(channel);
}

/* gRPC would only say that there is no connection. */
static void channel_check_pem(struct parley_channel *channel,
                              const struct parley_channel_options *options)
{
    const struct {
        const char *name, *text, *block;
    } all[] = {{"ca", options->ca, "CERTIFICATE"},
               {"certificate", options->certificate, "CERTIFICATE"},
               {"private_key", options->private_key, "PRIVATE KEY"}};
    struct parley_error *err = &channel->malformed;

    for (size_t i = 0; i < 3 && err->status == PARLEY_OK && options->is_tls; i++) {
        const char *fault = all[i].text == NULL ? NULL : reach_pem_fault(all[i].text, all[i].block);

        if (fault == NULL)
            continue;
        *err = (struct parley_error){.status = PARLEY_INVALID_ARGUMENT, .reason = "PEM_MALFORMED"};
        (void)snprintf(err->text, sizeof(err->text), "%s %s", all[i].name, fault); /* it fits */
        (void)snprintf(err->field, sizeof(err->field), "%s", all[i].name);
    }
}

/* What a channel has beside gRPC. */
static bool channel_init(struct parley_channel *channel,
                         const struct parley_channel_options *options)
{
    char address[REACH_ADDRESS_SIZE];

    channel->fd = -1;
    atomic_init(&channel->patience_ms, PARLEY_PATIENCE_MS);
    atomic_init(&channel->is_reached, false);
    channel->is_tls = options->is_tls;
    (void)reach_address(address, options->address, &channel->malformed); /* calls then fail */
    channel_check_pem(channel, options);
    channel->address = try_strndup(address, strlen(address));
    if (channel->address == NULL)
        return false;
    if (options->is_polled) {
        channel->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (channel->fd < 0)
            return false;
    }
    return options->key == NULL || channel_set_key(channel, options->key);
}

static struct parley_channel *channel_make(const struct parley_channel_options *options)
{
    struct parley_channel *channel = try_alloc(1, sizeof(*channel));
    pthread_condattr_t monotonic;

    if (channel == NULL)
        return NULL;
    if (!channel_init(channel, options)) {
        if (channel->fd >= 0)
            (void)close(channel->fd); /* nothing was written to it */
        free(channel->address);
        free(channel);
        return NULL;
    }
    (void)exit_keeps_openssl();           /* a failure leaves OpenSSL as it is */
    (void)locks_unchecked();              /* a failure only makes calls slower */
    if (getenv("GRPC_VERBOSITY") == NULL) /* else its user wants to see gRPC's log */
        gpr_set_log_verbosity((gpr_log_severity)(GPR_LOG_SEVERITY_ERROR + 1));
    grpc_init();
    list_init(&channel->live);
    (void)pthread_mutex_init(&channel->lock, NULL); /* neither can fail on Linux */
    (void)pthread_cond_init(&channel->is_empty, NULL);
    list_init(&channel->back);
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&channel->is_settled, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
    channel->core = connect_lazily(channel->address, options);
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

static bool channel_is_quiet(struct parley_channel *channel)
{
    bool is_quiet;

    (void)pthread_mutex_lock(&channel->lock);
    is_quiet = list_is_empty(&channel->live);
    (void)pthread_mutex_unlock(&channel->lock);
    return is_quiet;
}

void parley_channel_close(struct parley_channel *channel)
{
    if (channel == NULL)
        return;
    assert(channel_may_wait(channel));
    (void)pthread_mutex_lock(&channel->lock);
    for (struct link *l = list_first(&channel->live); l != NULL; l = list_next(&channel->live, l))
        parley_call_cancel(container_of(l, struct parley_call, link));
    (void)pthread_mutex_unlock(&channel->lock);
    while (channel->fd >= 0 && !channel_is_quiet(channel))
        channel_dispatch_next(channel, -1);
    (void)pthread_mutex_lock(&channel->lock);
    while (!list_is_empty(&channel->live))
        (void)pthread_cond_wait(&channel->is_empty, &channel->lock);
    (void)pthread_mutex_unlock(&channel->lock);
    grpc_completion_queue_shutdown(channel->queue);
    (void)pthread_join(channel->thread, NULL);
    channel_free(channel);
}
