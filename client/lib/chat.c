/* Turns of many conversations over one stream. Each has a tag, which is its place in a table and
 * how often the place was taken before: a tag comes back from the server, and one that there is not
 * is ignored.
 *
 * A stream that ends also ends the turns in flight, each with the stream's error. */
#include <assert.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "client/lib/parts.h"
#include "proto/codec.h"

enum { CHAT_MAX_TURNS = 1 << 20 }; /* in flight */

/* A place for a turn. */
struct chat_turn {
    struct parley_turn_events events;
    uint32_t n_taken;   /* how often the slot was used */
    uint32_t next_free; /* index + 1; 0: none */
    bool is_live;
};

struct chat_call {
    struct parley_call base;
    void (*end)(void *arg, const struct parley_error *err);
    void *arg;
    /* Guarded by base.lock. */
    struct chat_turn *turns; /* [n_turns] */
    uint32_t n_turns, cap;
    uint32_t free; /* index + 1; 0: none */
    bool is_ended;
};

/* --- the table; the lock is held --- */

static struct chat_turn *chat_find(struct chat_call *c, uint64_t tag)
{
    uint32_t i = (uint32_t)tag, n_taken = (uint32_t)(tag >> 32);

    return i < c->n_turns && c->turns[i].is_live && c->turns[i].n_taken == n_taken ? &c->turns[i]
                                                                                   : NULL;
}

static bool chat_grow(struct chat_call *c)
{
    uint32_t cap = c->cap == 0 ? 16 : 2 * c->cap;
    struct chat_turn *turns;

    if (cap > CHAT_MAX_TURNS)
        return false;
    turns = try_realloc(c->turns, cap, sizeof(*turns));
    if (turns == NULL)
        return false;
    c->turns = turns;
    c->cap = cap;
    return true;
}

static bool chat_add(struct chat_call *c, const struct parley_turn_events *events,
                     uint64_t *ret_tag)
{
    uint32_t i = c->n_turns;

    if (c->is_ended)
        return false;
    if (c->free != 0) {
        i = c->free - 1;
        c->free = c->turns[i].next_free;
    } else {
        if (c->n_turns == c->cap && !chat_grow(c))
            return false;
        c->turns[c->n_turns++] = (struct chat_turn){0};
    }
    c->turns[i].events = *events;
    c->turns[i].n_taken++;
    c->turns[i].is_live = true;
    *ret_tag = (uint64_t)c->turns[i].n_taken << 32 | i;
    return true;
}

static void chat_remove(struct chat_call *c, struct chat_turn *turn)
{
    turn->is_live = false;
    turn->next_free = c->free;
    c->free = (uint32_t)(turn - c->turns) + 1;
}

/* --- the stream --- */

/* The events of the tag's turn, which is_last ends. False: there is no such turn. */
static bool chat_events(struct chat_call *c, uint64_t tag, bool is_last,
                        struct parley_turn_events *out)
{
    struct chat_turn *turn;

    (void)pthread_mutex_lock(&c->base.lock);
    turn = chat_find(c, tag);
    if (turn != NULL)
        *out = turn->events;
    if (turn != NULL && is_last)
        chat_remove(c, turn);
    (void)pthread_mutex_unlock(&c->base.lock);
    return turn != NULL;
}

static enum status chat_tell(struct chat_call *c, const Parley__V1__ChatEvent *event,
                             struct arena *arena, struct error *err)
{
    bool is_done = event->event_case == PARLEY__V1__CHAT_EVENT__EVENT_DONE;
    bool is_error = event->event_case == PARLEY__V1__CHAT_EVENT__EVENT_ERROR;
    struct parley_error outcome = {0};
    struct parley_turn_events e;

    if (!chat_events(c, event->tag, is_done || is_error, &e))
        return STATUS_OK;
    switch (event->event_case) {
    case PARLEY__V1__CHAT_EVENT__EVENT_ACCEPTED:
        turn_tell_accepted(&e, event->accepted);
        break;
    case PARLEY__V1__CHAT_EVENT__EVENT_PROGRESS:
        turn_tell_progress(&e, event->progress);
        break;
    case PARLEY__V1__CHAT_EVENT__EVENT_PIECE:
        return turn_tell_piece(&e, event->piece, arena, err);
    case PARLEY__V1__CHAT_EVENT__EVENT_DONE:
        turn_tell_done(&e, event->done);
        e.end(e.arg, &outcome);
        break;
    case PARLEY__V1__CHAT_EVENT__EVENT_ERROR:
        outcome_of_detail(&outcome, event->error);
        e.end(e.arg, &outcome);
        break;
    default: /* an event of a newer server; our tags are never refused */
        break;
    }
    return STATUS_OK;
}

static enum status on_chat_event(struct parley_call *call, const void *data, size_t len,
                                 struct error *err)
{
    ProtobufCMessage *m = NULL;
    struct arena arena;
    enum status rc;

    arena_init(&arena, DECODED_MAX_BYTES);
    rc = codec_decode(&m, &parley__v1__chat_event__descriptor, data, len, CODEC_ANY_FIELDS, &arena,
                      err);
    if (rc == STATUS_OK)
        rc = chat_tell((struct chat_call *)call, (const Parley__V1__ChatEvent *)m, &arena, err);
    else
        (void)error_prefix(err, "the server's answer cannot be parsed");
    arena_deinit(&arena);
    return rc;
}

static void on_chat_end(struct parley_call *call, const struct parley_error *err)
{
    struct chat_call *c = (struct chat_call *)call;
    struct parley_error lost = *err;
    struct error why = {0};
    struct chat_turn *turns;
    uint32_t n_turns;

    if (lost.status == PARLEY_OK) {
        (void)error_set(&why, STATUS_UNAVAILABLE, "the server ended the stream before the turn");
        outcome_of_failure(&lost, &why);
    }
    (void)pthread_mutex_lock(&call->lock);
    c->is_ended = true;
    turns = c->turns;
    n_turns = c->n_turns;
    c->turns = NULL; /* ours now */
    c->n_turns = c->cap = c->free = 0;
    (void)pthread_mutex_unlock(&call->lock);
    for (uint32_t i = 0; i < n_turns; i++)
        if (turns[i].is_live)
            turns[i].events.end(turns[i].events.arg, &lost);
    free(turns);
    c->end(c->arg, err);
}

struct parley_call *parley_chat_start(struct parley_channel *channel,
                                      void (*end)(void *arg, const struct parley_error *err),
                                      void *arg)
{
    static const struct call_kind kind = {true, on_chat_event, on_chat_end, NULL};
    const struct call_start how = {.method = "/parley.v1.Conversations/Chat", .is_bidi = true};
    struct parley_call *call = parley_call_make(sizeof(struct chat_call), &kind);

    assert(end != NULL);
    if (call == NULL)
        return NULL;
    ((struct chat_call *)call)->end = end;
    ((struct chat_call *)call)->arg = arg;
    parley_call_start(channel, call, &how);
    return call;
}

/* Whether the turn's end comes, though its request was not sent: the stream has ended meanwhile. */
static bool chat_take_back(struct chat_call *c, uint64_t tag)
{
    struct chat_turn *turn;

    (void)pthread_mutex_lock(&c->base.lock);
    turn = chat_find(c, tag);
    if (turn != NULL)
        chat_remove(c, turn);
    (void)pthread_mutex_unlock(&c->base.lock);
    return turn == NULL;
}

bool parley_chat_turn(struct parley_call *stream, const struct parley_turn *turn,
                      const struct parley_turn_events *events, uint64_t *ret_tag)
{
    struct chat_call *c = (struct chat_call *)stream;
    Parley__V1__ChatRequest request = PARLEY__V1__CHAT_REQUEST__INIT;
    Parley__V1__TurnRequest what = PARLEY__V1__TURN_REQUEST__INIT;
    Parley__V1__Sampling sampling = PARLEY__V1__SAMPLING__INIT;
    struct error ignored; /* fails only if memory is exhausted */
    struct arena arena;
    bool is_sent = false;

    assert(events->end != NULL);
    arena_init(&arena, DECODED_MAX_BYTES);
    if (turn_fill(&what, &sampling, turn, &arena, &ignored) != STATUS_OK)
        goto out;
    (void)pthread_mutex_lock(&stream->lock);
    is_sent = chat_add(c, events, &request.tag);
    (void)pthread_mutex_unlock(&stream->lock);
    if (!is_sent)
        goto out;
    if (ret_tag != NULL) /* set before the first event, which may arrive at once */
        *ret_tag = request.tag;
    request.request_case = PARLEY__V1__CHAT_REQUEST__REQUEST_TURN;
    request.turn = &what;
    is_sent = parley_call_send(stream, &request.base) || chat_take_back(c, request.tag);
out:
    arena_deinit(&arena);
    return is_sent;
}

void parley_chat_cancel(struct parley_call *stream, uint64_t tag)
{
    Parley__V1__ChatRequest request = PARLEY__V1__CHAT_REQUEST__INIT;
    Parley__V1__ChatCancel cancel = PARLEY__V1__CHAT_CANCEL__INIT;

    request.tag = tag;
    request.request_case = PARLEY__V1__CHAT_REQUEST__REQUEST_CANCEL;
    request.cancel = &cancel;
    (void)parley_call_send(stream, &request.base); /* fails when the turn ends by itself */
}
