/* A turn: one request, then its events until the end. A numbered turn whose stream breaks is asked
 * for again behind the last tokens that came; text that came without tokens is passed over. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "client/lib/parts.h"
#include "proto/codec.h"
#include "proto/words.h"

enum { MAX_BEHIND_BYTES = 64 << 20 };

/* Where a turn has come to, over all its attempts. On the channel's thread. */
struct reply_place {
    uint32_t turn, generation;
    uint64_t index;              /* of the cursor behind the last tokens; 0: there were none */
    struct buf behind;           /* the text that came after them, without tokens of its own */
    size_t n_repeated;           /* bytes of it that this attempt has told again */
    bool is_accepted, has_piece; /* what was told */
};

struct client_turn_call {
    struct parley_call base;
    struct parley_turn_events events;
    struct reply_place place;
};

void turn_tell_accepted(const struct parley_turn_events *e, const Parley__V1__TurnAccepted *from)
{
    if (e->accepted != NULL)
        e->accepted(e->arg, from->turn, from->prompt_tokens, from->cached_tokens);
}

void turn_tell_progress(const struct parley_turn_events *e, const Parley__V1__TurnProgress *from)
{
    if (e->progress != NULL)
        e->progress(e->arg, from->done, from->total);
}

enum status turn_tell_piece(const struct parley_turn_events *e, const Parley__V1__TurnPiece *piece,
                            struct arena *arena, struct error *err)
{
    struct parley_token *tokens;

    if (e->piece == NULL)
        return STATUS_OK;
    tokens = arena_alloc(arena, piece->n_token_ids, sizeof(*tokens));
    if (tokens == NULL)
        return error_no_memory(err, piece->n_token_ids * sizeof(*tokens), "a piece's tokens");
    for (size_t i = 0; i < piece->n_token_ids; i++) {
        tokens[i].id = piece->token_ids[i];
        if (i < piece->n_logprobs) {
            const Parley__V1__TokenLogprob *from = piece->logprobs[i];
            struct parley_top *top = arena_alloc(arena, from->n_top, sizeof(*top));

            if (top == NULL)
                return error_no_memory(err, from->n_top * sizeof(*top), "a token's alternatives");
            for (size_t k = 0; k < from->n_top; k++)
                top[k] = (struct parley_top){from->top[k]->id, from->top[k]->logprob};
            tokens[i].logprob = from->logprob;
            tokens[i].top = top;
            tokens[i].n_top = from->n_top;
        }
    }
    e->piece(e->arg, piece->text, strlen(piece->text), tokens, piece->n_token_ids);
    return STATUS_OK;
}

static void done_count(struct parley_done *done, const Parley__V1__Usage *usage,
                       const Parley__V1__TurnTimings *timings)
{
    if (usage != NULL)
        done->usage = (struct parley_usage){usage->prompt_tokens, usage->cached_tokens,
                                            usage->completion_tokens};
    if (timings != NULL)
        done->timings =
            (struct parley_timings){timings->queue_us, timings->prefill_us, timings->decode_us,
                                    timings->total_us, timings->steps};
}

void turn_tell_done(const struct parley_turn_events *e, const Parley__V1__TurnDone *from)
{
    char reason[WORD_CHARS];
    struct parley_done done = {
        .turn = from->turn,
        .finish_reason =
            enum_word(reason, &parley__v1__finish_reason__descriptor, (int)from->finish_reason),
    };

    done_count(&done, from->usage, from->timings);
    if (e->done != NULL)
        e->done(e->arg, &done);
}

/* Cuts from the piece's text what an earlier attempt told. */
static enum status place_skip(struct reply_place *place, char **text, struct error *err)
{
    size_t n = place->behind.len - place->n_repeated, len = strlen(*text);

    if (n > len)
        n = len;
    if (n > 0 && memcmp(*text, place->behind.data + place->n_repeated, n) != 0)
        return error_set(err, STATUS_DATA_LOSS,
                         "the resumed reply differs from the part that was received before: rewind "
                         "the conversation and repeat the turn");
    place->n_repeated += n;
    *text += n;
    return STATUS_OK;
}

/* Keeps text that has no tokens, and so no cursor behind it; what is too long, or finds no memory,
 * is not resumed. */
static void place_keep(struct client_turn_call *c, const char *text)
{
    if (!c->base.how.is_repeatable)
        return;
    if (buf_append(&c->place.behind, text, strlen(text)) != STATUS_OK)
        c->base.how.is_repeatable = false;
    c->place.n_repeated = c->place.behind.len;
}

static enum status take_piece(struct client_turn_call *c, Parley__V1__TurnPiece *piece,
                              struct arena *arena, struct error *err)
{
    const char *whole = piece->text;
    enum status rc = place_skip(&c->place, &piece->text, err);

    if (rc != STATUS_OK)
        return rc;
    if (piece->n_token_ids > 0) {
        c->place.index = piece->next_index;
        buf_clear(&c->place.behind);
        c->place.n_repeated = 0;
    } else {
        place_keep(c, piece->text);
        if (piece->text != whole && *piece->text == '\0') /* told before */
            return STATUS_OK;
    }
    c->place.has_piece = true;
    call_got_on(&c->base);
    return turn_tell_piece(&c->events, piece, arena, err);
}

static void take_accepted(struct client_turn_call *c, const Parley__V1__TurnAccepted *from)
{
    call_is_back(&c->base);
    c->place.turn = from->turn;
    c->place.generation = from->generation;
    if (!c->place.is_accepted)
        turn_tell_accepted(&c->events, from);
    c->place.is_accepted = true;
}

/* The request's cursor: nothing, if the reply has to come from its start. */
static grpc_slice turn_amend(struct parley_call *call)
{
    struct reply_place *place = &((struct client_turn_call *)call)->place;
    Parley__V1__TurnRequest more = PARLEY__V1__TURN_REQUEST__INIT;
    Parley__V1__Cursor cursor = PARLEY__V1__CURSOR__INIT;

    place->n_repeated = 0;
    cursor.generation = place->generation;
    cursor.turn = place->turn;
    cursor.index = place->index;
    more.resume_from = place->index > 0 ? &cursor : NULL;
    return call_encode(&more.base);
}

static void turn_free(struct parley_call *call)
{
    buf_deinit(&((struct client_turn_call *)call)->place.behind);
}

static enum status on_message(struct parley_call *call, const void *data, size_t len,
                              struct error *err)
{
    struct client_turn_call *c = (struct client_turn_call *)call;
    const Parley__V1__TurnEvent *event;
    ProtobufCMessage *m = NULL;
    struct arena arena;
    enum status rc;

    arena_init(&arena, DECODED_MAX_BYTES);
    rc = codec_decode(&m, &parley__v1__turn_event__descriptor, data, len, CODEC_ANY_FIELDS, &arena,
                      err);
    if (rc != STATUS_OK) {
        (void)error_prefix(err, "the server's answer cannot be parsed");
        goto out;
    }
    event = (const Parley__V1__TurnEvent *)m;
    switch (event->event_case) {
    case PARLEY__V1__TURN_EVENT__EVENT_ACCEPTED:
        take_accepted(c, event->accepted);
        break;
    case PARLEY__V1__TURN_EVENT__EVENT_PROGRESS:
        if (!c->place.has_piece) /* else the prompt is read once more */
            turn_tell_progress(&c->events, event->progress);
        break;
    case PARLEY__V1__TURN_EVENT__EVENT_PIECE:
        rc = take_piece(c, event->piece, &arena, err);
        break;
    case PARLEY__V1__TURN_EVENT__EVENT_DONE:
        turn_tell_done(&c->events, event->done);
        break;
    default: /* an event of a newer server */
        break;
    }
out:
    arena_deinit(&arena);
    return rc;
}

static void on_end(struct parley_call *call, const struct parley_error *err)
{
    const struct parley_turn_events *e = &((struct client_turn_call *)call)->events;

    e->end(e->arg, err);
}

/* The request's texts are only read. */
static char *turn_text_of(const char *text)
{
    return text == NULL ? (char *)(uintptr_t) "" : (char *)(uintptr_t)text;
}

enum status turn_fill(Parley__V1__TurnRequest *request, Parley__V1__Sampling *sampling,
                      const struct parley_turn *turn, struct arena *arena, struct error *err)
{
    Parley__V1__Message *messages = arena_alloc(arena, turn->n_messages, sizeof(*messages));
    Parley__V1__Message **list = arena_alloc(arena, turn->n_messages, sizeof(*list));

    if (messages == NULL || list == NULL)
        return error_no_memory(err, turn->n_messages * sizeof(*messages), "a turn's messages");
    for (size_t i = 0; i < turn->n_messages; i++) {
        parley__v1__message__init(&messages[i]);
        messages[i].role = turn_text_of(turn->messages[i].role);
        messages[i].text = turn_text_of(turn->messages[i].text);
        list[i] = &messages[i];
    }
    request->conversation = turn_text_of(turn->conversation);
    request->turn = turn->turn;
    request->messages = list;
    request->n_messages = turn->n_messages;
    request->want_logprobs = turn->want_logprobs > 0 ? (uint32_t)turn->want_logprobs : 0;
    if (turn->json_schema != NULL) {
        Parley__V1__Constraint *constraint = arena_alloc(arena, 1, sizeof(*constraint));

        if (constraint == NULL)
            return error_no_memory(err, sizeof(*constraint), "a turn's constraint");
        parley__v1__constraint__init(constraint);
        constraint->kind_case = PARLEY__V1__CONSTRAINT__KIND_JSON_SCHEMA;
        constraint->json_schema = turn_text_of(turn->json_schema);
        request->constraint = constraint;
    }
    if (turn->sampling == NULL)
        return STATUS_OK;
    request->sampling = sampling;
    return sampling_fill(sampling, turn->sampling, arena, err);
}

struct parley_call *parley_turn_start(struct parley_channel *channel,
                                      const struct parley_turn *turn,
                                      const struct parley_turn_events *events)
{
    static const struct call_kind kind = {true, on_message, on_end, turn_free};
    Parley__V1__TurnRequest request = PARLEY__V1__TURN_REQUEST__INIT;
    Parley__V1__Sampling sampling = PARLEY__V1__SAMPLING__INIT;
    const struct call_start how = {.method = "/parley.v1.Conversations/Turn",
                                   .request = &request.base,
                                   .deadline_ms = turn->deadline_ms,
                                   .is_repeatable = turn->turn > 0};
    struct parley_call *call;
    struct error ignored; /* fails only if memory is exhausted */
    struct arena arena;

    assert(events->end != NULL);
    arena_init(&arena, DECODED_MAX_BYTES);
    call = parley_call_make(sizeof(struct client_turn_call), &kind);
    if (call != NULL && turn_fill(&request, &sampling, turn, &arena, &ignored) != STATUS_OK) {
        parley_call_unref(call);
        call = NULL;
    }
    if (call != NULL) {
        ((struct client_turn_call *)call)->events = *events;
        call->amend = turn_amend;
        buf_init(&((struct client_turn_call *)call)->place.behind, MAX_BEHIND_BYTES);
        parley_call_start(channel, call, &how);
    }
    arena_deinit(&arena);
    return call;
}

/* --- as a whole --- */

static enum status take_reply(struct parley_future *f, const ProtobufCMessage *response,
                              struct error *err)
{
    const Parley__V1__TurnReply *from = (const Parley__V1__TurnReply *)response;
    const char *text = from->message != NULL ? from->message->text : "";
    struct parley_result *r = &f->result;

    r->len = strlen(text);
    r->text = f->text = try_strndup(text, r->len);
    if (f->text == NULL)
        return error_no_memory(err, r->len, "a reply");
    r->done.turn = from->turn;
    r->done.finish_reason = enum_word(f->finish_reason, &parley__v1__finish_reason__descriptor,
                                      (int)from->finish_reason);
    done_count(&r->done, from->usage, from->timings);
    return STATUS_OK;
}

struct parley_future *parley_ask_start(struct parley_channel *channel,
                                       const struct parley_turn *turn)
{
    static const struct future_kind kind = {
        "/parley.v1.Conversations/Ask", &parley__v1__turn_reply__descriptor, take_reply, PARLEY_OK};
    Parley__V1__TurnRequest request = PARLEY__V1__TURN_REQUEST__INIT;
    Parley__V1__Sampling sampling = PARLEY__V1__SAMPLING__INIT;
    struct parley_future *f = NULL;
    struct error ignored; /* fails only if memory is exhausted */
    struct arena arena;

    arena_init(&arena, DECODED_MAX_BYTES);
    if (turn_fill(&request, &sampling, turn, &arena, &ignored) == STATUS_OK)
        f = future_start(channel, &kind, &request.base, turn->deadline_ms, turn->turn > 0);
    arena_deinit(&arena);
    return f;
}

/* --- and wait --- */

struct turn_wait {
    struct waiter waiter;
    const struct parley_turn_events *events;
};

static void wait_accepted(void *arg, uint32_t turn, uint32_t prompt_tokens, uint32_t cached_tokens)
{
    const struct parley_turn_events *e = ((struct turn_wait *)arg)->events;

    if (e->accepted != NULL)
        e->accepted(e->arg, turn, prompt_tokens, cached_tokens);
}

static void wait_progress(void *arg, uint32_t done, uint32_t total)
{
    const struct parley_turn_events *e = ((struct turn_wait *)arg)->events;

    if (e->progress != NULL)
        e->progress(e->arg, done, total);
}

static void wait_piece(void *arg, const char *text, size_t len, const struct parley_token *tokens,
                       size_t n_tokens)
{
    const struct parley_turn_events *e = ((struct turn_wait *)arg)->events;

    if (e->piece != NULL)
        e->piece(e->arg, text, len, tokens, n_tokens);
}

static void wait_done(void *arg, const struct parley_done *done)
{
    const struct parley_turn_events *e = ((struct turn_wait *)arg)->events;

    if (e->done != NULL)
        e->done(e->arg, done);
}

static void wait_end(void *arg, const struct parley_error *err)
{
    struct turn_wait *w = arg;

    if (w->events->end != NULL)
        w->events->end(w->events->arg, err);
    waiter_tell(&w->waiter, err);
}

enum parley_status parley_turn(struct parley_channel *channel, const struct parley_turn *turn,
                               const struct parley_turn_events *events,
                               struct parley_error *ret_err)
{
    static const struct parley_turn_events none;
    struct turn_wait w = {.events = events != NULL ? events : &none};
    const struct parley_turn_events ours = {wait_accepted, wait_progress, wait_piece,
                                            wait_done,     wait_end,      &w};
    struct error err = {0};
    struct parley_call *call;

    assert(channel_may_wait(channel));
    waiter_init(&w.waiter);
    call = parley_turn_start(channel, turn, &ours);
    if (call == NULL) {
        struct parley_error short_of;

        (void)error_no_memory(&err, sizeof(struct client_turn_call), "a turn");
        outcome_of_failure(&short_of, &err);
        waiter_tell(&w.waiter, &short_of);
    }
    parley_call_unref(call);
    return waiter_wait(&w.waiter, channel, ret_err);
}
