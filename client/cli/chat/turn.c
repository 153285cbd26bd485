/* The happy path: cli_turn_run starts the turn; callbacks on the channel's thread append what has
 * come and wake the caller's thread, which shows it. A Ctrl-C cancels the turn at the server. The
 * library goes on with a turn whose connection breaks. */
#include "client/cli/chat/turn.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/env.h"
#include "cli/output/interrupt.h"
#include "client/cli/connection.h"
#include "parley/v1/conversations.pb-c.h"

/* The channel's thread stores events in the turn and wakes the caller's thread, which polls for
 * them and for Ctrl-C. A Ctrl-C asks the server to cancel the turn, so that it ends in order and
 * its partial reply is kept; if that fails, or at a second Ctrl-C, the call itself is cancelled. */

enum {
    CANCEL_MS = 2000, /* time limit of a cancel */
    LOOK_MS = 250,    /* between two looks whether the connection was lost */
    MAX_REPLY_BYTES = 64 << 20,
};

static void cli_turn_wake(const struct cli_turn *x)
{
    uint64_t one = 1;

    /* Fails only if the counter has reached 2^64 - 1. */
    (void)!write(x->event_fd, &one, sizeof(one));
}

static void on_progress(void *arg, uint32_t done, uint32_t total)
{
    struct cli_turn *x = arg;

    pthread_mutex_lock(&x->lock);
    x->n_read = done;
    x->n_to_read = total;
    x->has_progress = true;
    cli_turn_wake(x);
    pthread_mutex_unlock(&x->lock);
}

static json_t *logprob_json(const struct parley_token *token)
{
    json_t *top = json_array();

    for (size_t i = 0; i < token->n_top; i++)
        (void)json_array_append_new(top, json_pack("{si,sf}", "id", (int)token->top[i].id,
                                                   "logprob", (double)token->top[i].logprob));
    return json_pack("{si,sf,so}", "id", (int)token->id, "logprob", (double)token->logprob, "top",
                     top);
}

static void on_piece(void *arg, const char *text, size_t len, const struct parley_token *tokens,
                     size_t n_tokens)
{
    struct cli_turn *x = arg;

    pthread_mutex_lock(&x->lock);
    if (x->first_us == 0)
        x->first_us = env_now_us(&env_real) - x->sent_us;
    if (buf_append(&x->reply, text, len) != STATUS_OK)
        x->is_overfull = true;
    for (size_t i = 0; x->keeps_tokens && i < n_tokens; i++) {
        (void)json_array_append_new(x->token_ids, json_integer(tokens[i].id));
        if (x->turn->want_logprobs > 0)
            (void)json_array_append_new(x->logprobs, logprob_json(&tokens[i]));
    }
    cli_turn_wake(x);
    pthread_mutex_unlock(&x->lock);
}

static void on_done(void *arg, const struct parley_done *done)
{
    struct cli_turn *x = arg;

    pthread_mutex_lock(&x->lock);
    (void)snprintf(x->finish_reason, sizeof(x->finish_reason), "%s", done->finish_reason);
    x->usage = done->usage;
    x->timings = done->timings;
    x->turn_done = done->turn;
    x->is_done = true;
    pthread_mutex_unlock(&x->lock);
}

static void on_end(void *arg, const struct parley_error *err)
{
    struct cli_turn *x = arg;

    pthread_mutex_lock(&x->lock);
    x->err = *err;
    x->has_ended = true;
    cli_turn_wake(x); /* with the lock held: the turn may be freed right after */
    pthread_mutex_unlock(&x->lock);
}

/* Shows new events. The lock is released only during the caller's functions, which may be slow;
 * they get a copy. */
static void show_news(struct cli_turn *x, struct buf *fresh)
{
    uint32_t n_read, n_to_read;
    bool has_progress, is_overfull;

    pthread_mutex_lock(&x->lock);
    has_progress = x->has_progress && x->reply.len == 0;
    x->has_progress = false;
    n_read = x->n_read;
    n_to_read = x->n_to_read;
    is_overfull = x->is_overfull;
    buf_clear(fresh);
    if (x->reply.len > x->n_shown &&
        buf_append(fresh, x->reply.data + x->n_shown, x->reply.len - x->n_shown) != STATUS_OK)
        is_overfull = true;
    x->n_shown += fresh->len;
    pthread_mutex_unlock(&x->lock);

    if (has_progress && x->progress != NULL)
        x->progress(x->arg, n_read, n_to_read);
    if (fresh->len > 0 && x->show != NULL && !x->show(x->arg, fresh->data, fresh->len))
        x->was_stopped = true;
    if (is_overfull)
        x->was_stopped = true;
}

static bool has_ended(struct cli_turn *x)
{
    bool ended;

    pthread_mutex_lock(&x->lock);
    ended = x->has_ended;
    pthread_mutex_unlock(&x->lock);
    return ended;
}

static bool ask_to_cancel(struct cli_turn *x)
{
    Parley__V1__ConversationsCancelRequest request = PARLEY__V1__CONVERSATIONS_CANCEL_REQUEST__INIT;
    struct parley_error err;
    ProtobufCMessage *answer;
    bool has_cancelled;

    request.conversation = (char *)x->turn->conversation;
    if (connection_call(&answer, x->channel, "/parley.v1.Conversations/Cancel", &request.base,
                        &parley__v1__conversations_cancel_response__descriptor, CANCEL_MS,
                        &err) != PARLEY_OK)
        return false;
    has_cancelled = ((Parley__V1__ConversationsCancelResponse *)answer)->cancelled > 0;
    protobuf_c_message_free_unpacked(answer, NULL);
    return has_cancelled;
}

static void tell_lost(struct cli_turn *x, bool is_lost)
{
    if (x->lost != NULL && x->is_lost != is_lost)
        x->lost(x->arg, is_lost);
    x->is_lost = is_lost;
}

/* Runs the turn to its end. */
static void cli_turn_follow(struct cli_turn *x)
{
    const struct parley_turn_events events = {
        .progress = on_progress, .piece = on_piece, .done = on_done, .end = on_end, .arg = x};
    struct parley_call *call;
    struct buf fresh;
    bool has_asked = false, is_lost;

    x->sent_us = env_now_us(&env_real);
    call = parley_turn_start(x->channel, x->turn, &events);
    if (call == NULL) {
        x->err = (struct parley_error){.status = PARLEY_RESOURCE_EXHAUSTED,
                                       .text = "out of memory for a call"};
        return;
    }
    buf_init(&fresh, MAX_REPLY_BYTES);
    for (bool ended = false; !ended;) {
        struct pollfd fds[2] = {{.fd = x->event_fd, .events = POLLIN},
                                {.fd = interrupt_fd(), .events = POLLIN}};
        uint64_t n;

        (void)poll(fds, 2, LOOK_MS);             /* a signal only ends the wait early */
        (void)!read(x->event_fd, &n, sizeof(n)); /* fails when there is nothing to clear */
        ended = has_ended(x);
        is_lost = !ended && parley_call_is_lost(call);
        if (!is_lost)
            tell_lost(x, false);
        show_news(x, &fresh); /* what came before the loss stands above the word of it */
        if (is_lost)
            tell_lost(x, true);
        if (interrupt_take()) {
            x->was_stopped = true;
            if (has_asked) /* the second Ctrl-C */
                parley_call_cancel(call);
        }
        if (x->was_stopped && !has_asked && !ended) {
            has_asked = true;
            if (!ask_to_cancel(x))
                parley_call_cancel(call);
        }
    }
    buf_deinit(&fresh);
    parley_call_unref(call);
}

enum parley_status cli_turn_run(struct cli_turn *x)
{
    x->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (x->event_fd < 0) {
        x->err.status = PARLEY_RESOURCE_EXHAUSTED;
        (void)snprintf(x->err.text, sizeof(x->err.text), "no file descriptor is left: %s",
                       strerror(errno));
        return x->err.status;
    }
    pthread_mutex_init(&x->lock, NULL);
    buf_init(&x->reply, MAX_REPLY_BYTES);
    x->token_ids = json_array();
    x->logprobs = json_array();
    (void)interrupt_take(); /* discards an earlier Ctrl-C, which was not meant for this reply */
    cli_turn_follow(x);
    (void)close(x->event_fd);
    pthread_mutex_destroy(&x->lock);
    if (x->is_overfull && x->err.status == PARLEY_OK)
        x->err = (struct parley_error){.status = PARLEY_RESOURCE_EXHAUSTED,
                                       .text = "the reply is longer than 64 MiB"};
    return x->err.status;
}

void cli_turn_deinit(struct cli_turn *x)
{
    buf_deinit(&x->reply);
    json_decref(x->token_ids);
    json_decref(x->logprobs);
}

double cli_turn_rate(const struct cli_turn *x)
{
    if (!x->is_done || x->usage.completion_tokens < 2 || x->timings.decode_us == 0)
        return 0.0;
    return (double)(x->usage.completion_tokens - 1) * 1e6 / (double)x->timings.decode_us;
}
