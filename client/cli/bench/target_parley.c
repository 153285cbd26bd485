/* parleyd over gRPC, all calls on one channel. A first turn: Open, and in its callback the Turn;
 * later ones: Turn alone, or behind a Fork, which takes the conversation's place. Leaving: Close;
 * only the target's own close waits for it. Multiplexed, the turns share one Chat stream; one that
 * has ended is replaced with the next turn.
 *
 * A conversation that is left while its Open is in flight is closed as soon as its id is known. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/env.h"
#include "base/list.h"
#include "client/cli/bench/target.h"
#include "client/cli/connection.h"
#include "client/lib/parley.h"
#include "parley/v1/conversations.pb-c.h"

enum {
    SMALL_CALL_MS = 60 * 1000, /* time limit of Open and Fork */
    CLOSE_MS = 10 * 1000,      /* of Close, which the bench's end waits for */
    /* After this time the server ends the conversations of a killed bench. */
    IDLE_TTL_MS = 15 * 60 * 1000,
};

struct parley_target {
    struct target base;
    struct parley_channel *channel;
    const char *model;
    struct parley_sampling sampling;
    bool is_multiplexed;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t has_left;
    size_t n_leaving;         /* Close calls in flight */
    struct parley_call *chat; /* NULL: none yet */
};

struct parley_session {
    struct target_session base;
    struct parley_target *target;
    char conversation[33];    /* "": none. Guarded by the target's lock, as the next two */
    bool is_left;             /* while it was being opened */
    struct parley_call *call; /* its turn in flight; NULL: none, or on the Chat stream */
    bool is_done;
    struct error wrong; /* the failure of a reply whose call succeeded */
};

static struct parley_session *parley_session_of(struct target_session *s)
{
    return container_of(s, struct parley_session, base);
}

static struct parley_target *parley_target_of(struct target *t)
{
    return container_of(t, struct parley_target, base);
}

static struct target *parley_target_open(const char *address, const struct target_config *config,
                                         enum exit_code *ret_code)
{
    struct connection_options where = config->connection;
    struct parley_channel *channel;
    struct parley_target *t;

    where.server = address;
    channel = connection_open(&where, ret_code);
    if (channel == NULL)
        return NULL;
    t = xalloc(sizeof(*t));
    t->base.type = &parley_target;
    t->channel = channel;
    parley_channel_set_patience(channel, 0); /* a failure is counted, not hidden */
    t->model = config->model;
    t->is_multiplexed = config->is_multiplexed;
    t->sampling = (struct parley_sampling){.set = PARLEY_TEMPERATURE | PARLEY_MAX_TOKENS |
                                                  PARLEY_IGNORE_EOS | PARLEY_SEED,
                                           .temperature = config->temperature,
                                           .ignore_eos = config->ignore_eos};
    (void)pthread_mutex_init(&t->lock, NULL); /* neither can fail on Linux */
    (void)pthread_cond_init(&t->has_left, NULL);
    return &t->base;
}

static void parley_target_close(struct target *base)
{
    struct parley_target *t = parley_target_of(base);

    (void)pthread_mutex_lock(&t->lock);
    while (t->n_leaving > 0)
        (void)pthread_cond_wait(&t->has_left, &t->lock);
    (void)pthread_mutex_unlock(&t->lock);
    parley_channel_close(t->channel);
    parley_call_unref(t->chat);
    (void)pthread_cond_destroy(&t->has_left);
    (void)pthread_mutex_destroy(&t->lock);
    free(t);
}

/* Starts a small unary call. */
static enum status call(struct parley_target *t, const char *method, uint32_t timeout_ms,
                        const ProtobufCMessage *request, parley_unary_fn then, void *arg,
                        struct error *err)
{
    size_t len = protobuf_c_message_get_packed_size(request);
    uint8_t *bytes = try_alloc(len + 1, 1);
    struct parley_call *started;

    if (bytes == NULL)
        return error_no_memory(err, len, "a request");
    (void)protobuf_c_message_pack(request, bytes);
    started = parley_unary_start(t->channel, method, bytes, len, timeout_ms, then, arg);
    free(bytes);
    if (started == NULL)
        return error_no_memory(err, len, "a call");
    parley_call_unref(started);
    return STATUS_OK;
}

/* --- leaving --- */

static void on_closed(void *arg, void *data, size_t len, const struct parley_error *err)
{
    struct parley_target *t = arg;

    free(data);
    /* A conversation that could not be closed expires later. But Close is also what ends a turn on
     * the Chat stream: if the server does not answer it, the stream is cancelled. */
    (void)pthread_mutex_lock(&t->lock);
    if (err != NULL && err->status == PARLEY_DEADLINE_EXCEEDED && t->chat != NULL)
        parley_call_cancel(t->chat);
    t->n_leaving--;
    (void)pthread_cond_signal(&t->has_left); /* with the lock held: t may be freed right after */
    (void)pthread_mutex_unlock(&t->lock);
}

static void parley_target_close_conversation(struct parley_target *t, char *conversation)
{
    Parley__V1__ConversationsCloseRequest request = PARLEY__V1__CONVERSATIONS_CLOSE_REQUEST__INIT;
    struct error ignored; /* as above */

    request.conversation = conversation;
    (void)pthread_mutex_lock(&t->lock);
    t->n_leaving++;
    (void)pthread_mutex_unlock(&t->lock);
    if (call(t, "/parley.v1.Conversations/Close", CLOSE_MS, &request.base, on_closed, t,
             &ignored) != STATUS_OK)
        on_closed(t, NULL, 0, NULL);
}

static void parley_leave(struct target *base, struct target_session *s)
{
    struct parley_target *t = parley_target_of(base);
    struct parley_session *p = parley_session_of(s);
    char conversation[sizeof(p->conversation)];

    (void)pthread_mutex_lock(&t->lock);
    memcpy(conversation, p->conversation, sizeof(conversation));
    p->conversation[0] = '\0';
    p->is_left = true;
    if (p->call != NULL)
        parley_call_cancel(p->call); /* a server that answers no more does not end it */
    (void)pthread_mutex_unlock(&t->lock);
    if (*conversation != '\0')
        parley_target_close_conversation(t, conversation);
}

/* --- a turn --- */

static void on_piece(void *arg, const char *text, size_t len, const struct parley_token *tokens,
                     size_t n_tokens)
{
    struct parley_session *p = arg;

    session_chunk(&p->base);
}

static void on_done(void *arg, const struct parley_done *done)
{
    struct parley_session *p = arg;

    p->base.prompt_tokens = done->usage.prompt_tokens;
    p->base.cached_tokens = done->usage.cached_tokens;
    p->base.completion_tokens = done->usage.completion_tokens;
    p->is_done = true;
    if (strcmp(done->finish_reason, "stop") != 0 && strcmp(done->finish_reason, "length") != 0)
        (void)error_set(&p->wrong, STATUS_ABORTED, "the reply ended as '%s'", done->finish_reason);
    else if (done->turn != p->base.turn)
        (void)error_set(&p->wrong, STATUS_INTERNAL, "turn %u ended as the server's turn %u",
                        p->base.turn, done->turn);
}

static void on_end(void *arg, const struct parley_error *how)
{
    struct parley_session *p = arg;
    struct error err = {0};

    (void)pthread_mutex_lock(&p->target->lock);
    parley_call_unref(p->call);
    p->call = NULL;
    (void)pthread_mutex_unlock(&p->target->lock);
    if (how->status != PARLEY_OK)
        (void)error_set(&err, (enum status)how->status, "%s", how->text);
    else if (!p->is_done)
        (void)error_set(&err, STATUS_INTERNAL,
                        "the server closed the connection before the end of the reply");
    else
        err = p->wrong;
    p->base.events->end(&p->base, &err);
}

static void on_chat_over(void *arg, const struct parley_error *err)
{
}

/* False: no memory is left. */
static bool parley_target_chat(struct parley_target *t, const struct parley_turn *turn,
                               const struct parley_turn_events *events)
{
    bool is_sent;

    (void)pthread_mutex_lock(&t->lock);
    is_sent = t->chat != NULL && parley_chat_turn(t->chat, turn, events, NULL);
    if (!is_sent) {
        parley_call_unref(t->chat);
        t->chat = parley_chat_start(t->channel, on_chat_over, NULL);
        is_sent = t->chat != NULL && parley_chat_turn(t->chat, turn, events, NULL);
    }
    (void)pthread_mutex_unlock(&t->lock);
    return is_sent;
}

static enum status parley_session_start_turn(struct parley_session *p, const char *conversation,
                                             struct error *err)
{
    const struct parley_message message = {.role = "user", .text = p->base.text};
    struct parley_sampling sampling = p->target->sampling;
    const struct parley_turn turn = {.conversation = conversation,
                                     .turn = p->base.turn,
                                     .messages = &message,
                                     .n_messages = 1,
                                     .sampling = &sampling,
                                     .json_schema = p->base.json_schema};
    const struct parley_turn_events events = {
        .piece = on_piece, .done = on_done, .end = on_end, .arg = p};
    bool is_started;

    sampling.max_tokens = p->base.max_tokens;
    p->is_done = false;
    p->wrong = (struct error){0};
    p->base.sent_us = env_now_us(&env_real);
    if (p->target->is_multiplexed) {
        is_started = parley_target_chat(p->target, &turn, &events);
    } else {
        /* The end waits for the lock, and so finds the call here. */
        (void)pthread_mutex_lock(&p->target->lock);
        p->call = parley_turn_start(p->target->channel, &turn, &events);
        is_started = p->call != NULL;
        if (is_started && p->is_left) /* just now */
            parley_call_cancel(p->call);
        (void)pthread_mutex_unlock(&p->target->lock);
    }
    return is_started ? STATUS_OK : error_no_memory(err, sizeof(turn), "a turn");
}

/* The turn goes on in this conversation, new at the server; the one before, if any, is closed.
 * NULL: the server made none, why says the reason. */
static void parley_session_enter(struct parley_session *p, const char *made,
                                 const struct parley_error *why)
{
    char before[sizeof(p->conversation)], now[sizeof(p->conversation)] = "";
    struct error err = {0};
    bool is_left;

    if (why->status != PARLEY_OK)
        (void)error_set(&err, (enum status)why->status, "%s", why->text);
    else if (made == NULL || strlen(made) >= sizeof(now))
        (void)error_set(&err, STATUS_INTERNAL, "the server's answer is not a conversation");
    else
        memcpy(now, made, strlen(made));
    (void)pthread_mutex_lock(&p->target->lock);
    is_left = p->is_left;
    memcpy(before, p->conversation, sizeof(before));
    if (!is_left && err.status == STATUS_OK)
        memcpy(p->conversation, now, sizeof(now));
    (void)pthread_mutex_unlock(&p->target->lock);
    if (is_left && err.status == STATUS_OK) {
        parley_target_close_conversation(p->target, now);
        (void)error_set(&err, STATUS_CANCELLED,
                        "the conversation was abandoned while it was being opened");
    }
    if (err.status == STATUS_OK && *before != '\0')
        parley_target_close_conversation(p->target, before);
    if (err.status == STATUS_OK)
        (void)parley_session_start_turn(p, now, &err); /* err says whether it failed */
    if (err.status != STATUS_OK)
        p->base.events->end(&p->base, &err);
}

static void on_opened(void *arg, void *data, size_t len, const struct parley_error *how)
{
    Parley__V1__ConversationsOpenResponse *response =
        data == NULL ? NULL : parley__v1__conversations_open_response__unpack(NULL, len, data);

    parley_session_enter(arg, response == NULL ? NULL : response->conversation, how);
    if (response != NULL)
        parley__v1__conversations_open_response__free_unpacked(response, NULL);
    free(data);
}

static void on_forked(void *arg, void *data, size_t len, const struct parley_error *how)
{
    Parley__V1__ConversationsForkResponse *response =
        data == NULL ? NULL : parley__v1__conversations_fork_response__unpack(NULL, len, data);

    parley_session_enter(arg, response == NULL ? NULL : response->conversation, how);
    if (response != NULL)
        parley__v1__conversations_fork_response__free_unpacked(response, NULL);
    free(data);
}

static enum status parley_session_fork(struct parley_session *p, struct error *err)
{
    Parley__V1__ConversationsForkRequest request = PARLEY__V1__CONVERSATIONS_FORK_REQUEST__INIT;

    request.conversation = p->conversation;
    return call(p->target, "/parley.v1.Conversations/Fork", SMALL_CALL_MS, &request.base, on_forked,
                p, err);
}

static enum status parley_send(struct target *base, struct target_session *s, struct error *err)
{
    Parley__V1__ConversationsOpenRequest request = PARLEY__V1__CONVERSATIONS_OPEN_REQUEST__INIT;
    struct parley_session *p = parley_session_of(s);

    session_begin(s);
    *err = (struct error){0};
    if (s->turn > 1 && s->is_fork)
        return parley_session_fork(p, err);
    if (s->turn > 1) /* the caller does not end the conversation meanwhile */
        return parley_session_start_turn(p, p->conversation, err);
    p->target = parley_target_of(base);
    p->is_left = false;
    p->conversation[0] = '\0';
    request.model = (char *)(uintptr_t)(p->target->model == NULL ? "" : p->target->model);
    request.system = (char *)(uintptr_t)s->system; /* only read */
    request.ttl_ms = IDLE_TTL_MS;
    return call(p->target, "/parley.v1.Conversations/Open", SMALL_CALL_MS, &request.base, on_opened,
                p, err);
}

static void parley_session_deinit(struct target_session *s)
{
}

const struct target_type parley_target = {
    .scheme = "parley://",
    .can_constrain = true,
    .can_fork = true,
    .session_size = sizeof(struct parley_session),
    .open = parley_target_open,
    .close = parley_target_close,
    .send = parley_send,
    .leave = parley_leave,
    .session_deinit = parley_session_deinit,
};
