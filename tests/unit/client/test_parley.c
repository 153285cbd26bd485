/* libparley against a server whose methods are fakes: what it sends, what it tells of what comes
 * back, and how it fails. The daemon's own behaviour is not the subject. */
#include "client/lib/parley.h"

#include <arpa/inet.h>
#include <assert.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "parley/v1/models.pb-c.h"
#include "server/call/health.h"
#include "tests/unit/base/suite.h"
#include "tests/unit/server/rpc/rig.h"

struct server {
    struct health health;
    uv_sem_t has_begun, is_gone;
    /* The loop's: attempts at what fails at first. */
    unsigned n_attempts;
    char told[400]; /* what each of them asked for */
};

static struct server world;
static struct rig rig;

/* Tells back all that it was given: in the model's name and version. */
static void fake_open(struct call *call)
{
    const Parley__V1__ConversationsOpenRequest *request = call_request(call);
    const Parley__V1__Sampling *s = request->sampling;
    Parley__V1__ConversationsOpenResponse response = PARLEY__V1__CONVERSATIONS_OPEN_RESPONSE__INIT;
    char model[128], version[300] = "no sampling";

    (void)snprintf(model, sizeof(model), "%s|%s|%d|%d|%s", request->model, request->system,
                   (int)request->ttl_ms, request->limits == NULL ? 0 : request->limits->priority,
                   request->request_id);
    if (s != NULL)
        (void)snprintf(version, sizeof(version), "%d%g %d%u %d%g %zu%s %zu:%d=%g %d",
                       s->has_temperature, s->temperature, s->has_top_k, s->top_k,
                       s->has_frequency_penalty, s->frequency_penalty, s->n_stop, s->stop[1],
                       s->n_logit_bias, s->logit_bias[0]->key, s->logit_bias[0]->value,
                       s->has_seed);
    response.conversation = (char[]){"0123456789abcdef0123456789abcdef"};
    response.model = model;
    response.version = version;
    call_reply(call, &response.base);
}

static void fake_gone(struct call *call, void *state, enum status why)
{
    struct server *server = state;

    uv_sem_post(&server->is_gone);
}

static void write_accepted(struct call *call, uint32_t turn, uint32_t n_prompt)
{
    Parley__V1__TurnEvent event = PARLEY__V1__TURN_EVENT__INIT;
    Parley__V1__TurnAccepted accepted = PARLEY__V1__TURN_ACCEPTED__INIT;

    accepted.turn = turn;
    accepted.prompt_tokens = n_prompt;
    accepted.cached_tokens = 1;
    accepted.generation = 3;
    event.event_case = PARLEY__V1__TURN_EVENT__EVENT_ACCEPTED;
    event.accepted = &accepted;
    call_write(call, &event.base, true);
}

struct reply {
    struct server *server;
    int at;
    char *text;
};

static void reply_gone(struct call *call, void *state, enum status why)
{
    struct reply *r = state;

    fake_gone(call, r->server, why);
    free(r->text);
    free(r);
}

static void reply_room(struct call *call, void *state)
{
    struct reply *r = state;
    Parley__V1__TurnEvent event = PARLEY__V1__TURN_EVENT__INIT;
    Parley__V1__TurnProgress progress = PARLEY__V1__TURN_PROGRESS__INIT;
    Parley__V1__TopLogprob top = PARLEY__V1__TOP_LOGPROB__INIT;
    Parley__V1__TokenLogprob logprob = PARLEY__V1__TOKEN_LOGPROB__INIT;
    Parley__V1__TurnPiece piece = PARLEY__V1__TURN_PIECE__INIT;
    Parley__V1__Usage usage = PARLEY__V1__USAGE__INIT;
    Parley__V1__TurnTimings timings = PARLEY__V1__TURN_TIMINGS__INIT;
    Parley__V1__TurnDone done = PARLEY__V1__TURN_DONE__INIT;

    switch (r->at++) {
    case 0:
        write_accepted(call, 7, 11);
        break;
    case 1:
        event.event_case = PARLEY__V1__TURN_EVENT__EVENT_PROGRESS;
        event.progress = &progress;
        progress.done = 5;
        progress.total = 11;
        call_write(call, &event.base, true);
        break;
    case 2:
        top.id = 8;
        top.logprob = -2;
        logprob.logprob = -0.5F;
        logprob.n_top = 1;
        logprob.top = (Parley__V1__TopLogprob *[]){&top};
        piece.text = r->text;
        piece.n_token_ids = 2;
        piece.token_ids = (int32_t[]){42, 43};
        piece.n_logprobs = 1;
        piece.logprobs = (Parley__V1__TokenLogprob *[]){&logprob};
        event.event_case = PARLEY__V1__TURN_EVENT__EVENT_PIECE;
        event.piece = &piece;
        call_write(call, &event.base, true);
        break;
    default:
        usage.completion_tokens = 2;
        timings.total_us = 123;
        timings.steps = 3;
        done.turn = 7;
        done.finish_reason = PARLEY__V1__FINISH_REASON__FINISH_REASON_STOP;
        done.usage = &usage;
        done.timings = &timings;
        event.event_case = PARLEY__V1__TURN_EVENT__EVENT_DONE;
        event.done = &done;
        call_finish_with(call, &event.base);
    }
}

/* --- a turn whose stream breaks --- */

struct broken_reply {
    const char *const *pieces; /* texts, up to NULL; "=" before one that has a token */
    const char *text;          /* asked for: "tokens", "texts", "differs", "never" */
    unsigned attempt;
    uint64_t index;
};

/* What each attempt tells, from its cursor on; the last one is whole. */
static const char *const *broken_script(const struct broken_reply *b)
{
    static const char *const tokens[][5] = {
        {"=a", "=b", NULL}, {"=c", " behind", NULL}, {" behind", " it", "=d", NULL}};
    static const char *const texts[][4] = {
        {"Hel", "lo", NULL}, {"H", NULL}, {"Hello wo", "rld", NULL}};
    static const char *const differs[][3] = {{"Hel", "lo", NULL}, {"Help", NULL}};
    static const char *const never[] = {NULL};

    if (strcmp(b->text, "tokens") == 0)
        return tokens[b->attempt < 3 ? b->attempt : 2];
    if (strcmp(b->text, "texts") == 0)
        return texts[b->attempt < 3 ? b->attempt : 2];
    return strcmp(b->text, "differs") == 0 ? differs[b->attempt < 2 ? b->attempt : 1] : never;
}

static void broken_gone(struct call *call, void *state, enum status why)
{
    free(state);
}

static void broken_room(struct call *call, void *state)
{
    struct broken_reply *b = state;
    Parley__V1__TurnEvent event = PARLEY__V1__TURN_EVENT__INIT;
    Parley__V1__TurnPiece piece = PARLEY__V1__TURN_PIECE__INIT;
    Parley__V1__TurnDone done = PARLEY__V1__TURN_DONE__INIT;
    struct error err;

    if (*b->pieces != NULL) {
        const bool is_token = **b->pieces == '=';

        piece.text = (char *)(uintptr_t)(*b->pieces++ + is_token);
        piece.n_token_ids = is_token;
        piece.token_ids = (int32_t[]){42};
        piece.next_index = is_token ? ++b->index : 0;
        event.event_case = PARLEY__V1__TURN_EVENT__EVENT_PIECE;
        event.piece = &piece;
        call_write(call, &event.base, true);
        call_notify(call);
    } else if (b->attempt < 2) {
        (void)error_set(&err, STATUS_UNAVAILABLE, "attempt %u breaks", b->attempt);
        err.retry_after_ms = strcmp(b->text, "never") == 0 ? 600000 : 1;
        call_finish(call, &err);
    } else {
        done.turn = 7;
        done.finish_reason = PARLEY__V1__FINISH_REASON__FINISH_REASON_STOP;
        event.event_case = PARLEY__V1__TURN_EVENT__EVENT_DONE;
        event.done = &done;
        call_finish_with(call, &event.base);
    }
}

static void fake_broken(struct call *call, struct server *server, const char *text,
                        const Parley__V1__TurnRequest *request)
{
    static const struct call_handler tell = {.on_write_ready = broken_room,
                                             .on_close = broken_gone};
    const Parley__V1__Cursor *at = request->resume_from;
    struct broken_reply *b = xalloc(sizeof(*b));
    size_t len = strlen(server->told);

    (void)snprintf(server->told + len, sizeof(server->told) - len, "%u:%u:%d;", request->turn,
                   at == NULL ? 0 : at->generation, at == NULL ? 0 : (int)at->index);
    *b = (struct broken_reply){.text = strcmp(text, "tokens") == 0    ? "tokens"
                                       : strcmp(text, "texts") == 0   ? "texts"
                                       : strcmp(text, "differs") == 0 ? "differs"
                                                                      : "never",
                               .attempt = server->n_attempts++,
                               .index = at == NULL ? 0 : at->index};
    b->pieces = broken_script(b);
    call_set_handler(call, &tell, b);
    write_accepted(call, request->turn, 0);
    call_notify(call);
    uv_sem_post(&server->has_begun);
}

/* Does what the first message asks for: to hang, to refuse, nonsense, a broken stream, or to echo
 * it. */
static void fake_turn(struct call *call)
{
    static const struct call_handler hang = {.on_close = fake_gone};
    struct server *server = call_server(call);
    static const struct call_handler tell = {.on_write_ready = reply_room, .on_close = reply_gone};
    const Parley__V1__TurnRequest *request = call_request(call);
    const char *text = request->n_messages > 0 ? request->messages[0]->text : "";
    Parley__V1__Message nonsense = PARLEY__V1__MESSAGE__INIT;
    struct error err;
    struct reply *r;

    if (strcmp(text, "refuse") == 0) {
        (void)error_field(&err, "messages[0].text", "is refused, says '%s'", request->conversation);
        err.retry_after_ms = 20;
        call_finish(call, &err);
    } else if (strcmp(text, "hang") == 0) {
        call_set_handler(call, &hang, server);
        write_accepted(call, request->turn, 0);
        call_notify(call);
        uv_sem_post(&server->has_begun);
    } else if (strcmp(request->conversation, "broken") == 0) {
        fake_broken(call, server, text, request);
    } else if (strcmp(text, "nonsense") == 0) {
        nonsense.text = (char[]){"\x7f\x7f\x7f"};
        call_finish_with(call, &nonsense.base);
    } else {
        r = xalloc(sizeof(*r));
        r->server = server;
        r->text = xstrdup(text);
        call_set_handler(call, &tell, r);
        call_notify(call);
    }
}

/* "hang" has no answer; else the reply is the text. */
static void fake_ask(struct call *call)
{
    static const struct call_handler hang = {.on_close = fake_gone};
    struct server *server = call_server(call);
    const Parley__V1__TurnRequest *request = call_request(call);
    Parley__V1__TurnReply response = PARLEY__V1__TURN_REPLY__INIT;
    Parley__V1__Message message = PARLEY__V1__MESSAGE__INIT;
    Parley__V1__Usage usage = PARLEY__V1__USAGE__INIT;

    if (strcmp(request->messages[0]->text, "hang") == 0) {
        call_set_handler(call, &hang, server);
        uv_sem_post(&server->has_begun);
        return;
    }
    usage.completion_tokens = 2;
    message.text = request->messages[0]->text;
    response.message = &message;
    response.turn = 7;
    response.finish_reason = PARLEY__V1__FINISH_REASON__FINISH_REASON_LENGTH;
    response.usage = &usage;
    call_reply(call, &response.base);
}

static void fake_fork(struct call *call)
{
    Parley__V1__ConversationsForkResponse response = PARLEY__V1__CONVERSATIONS_FORK_RESPONSE__INIT;
    const Parley__V1__ConversationsForkRequest *request = call_request(call);
    struct server *server = call_server(call);
    struct error err;
    char id[64];

    if (strcmp(request->conversation, "broken") == 0) {
        const size_t len = strlen(server->told);

        (void)snprintf(server->told + len, sizeof(server->told) - len, "%s;", request->request_id);
        if (server->n_attempts++ < 2) {
            (void)error_set(&err, STATUS_UNAVAILABLE, "not yet");
            call_finish(call, &err);
            return;
        }
    }

    (void)snprintf(id, sizeof(id), "%s-%u", request->conversation, request->at_turn);
    response.conversation = id;
    call_reply(call, &response.base);
}

static void fake_rewind(struct call *call)
{
    const ProtobufCMessage *m = call_request(call);
    Parley__V1__ConversationsRewindResponse response =
        PARLEY__V1__CONVERSATIONS_REWIND_RESPONSE__INIT;

    response.turns = ((const Parley__V1__ConversationsRewindRequest *)m)->to_turn;
    call_reply(call, &response.base);
}

static void fake_cancel(struct call *call)
{
    const ProtobufCMessage *m = call_request(call);
    Parley__V1__ConversationsCancelResponse response =
        PARLEY__V1__CONVERSATIONS_CANCEL_RESPONSE__INIT;

    response.cancelled = 3 + ((const Parley__V1__ConversationsCancelRequest *)m)->turn;
    call_reply(call, &response.base);
}

static void fake_close(struct call *call)
{
    const Parley__V1__ConversationsCloseRequest *request = call_request(call);
    Parley__V1__ConversationsCloseResponse response =
        PARLEY__V1__CONVERSATIONS_CLOSE_RESPONSE__INIT;
    struct server *server = call_server(call);
    struct error err;

    if (strcmp(request->conversation, "broken") == 0 && server->n_attempts++ == 0) {
        (void)error_set(&err, STATUS_UNAVAILABLE, "it is closed, and this gets lost");
        call_finish(call, &err);
        return;
    }
    if (strcmp(request->conversation, "known") == 0) {
        call_reply(call, &response.base);
        return;
    }
    (void)error_set(&err, STATUS_NOT_FOUND, "there is no conversation '%s'", request->conversation);
    call_finish(call, &err);
}

/* Ends well, without the response that there should be. */
static void fake_models(struct call *call)
{
    call_finish(call, NULL);
}

#define SERVICE "/parley.v1.Conversations/"
#define TYPES(name)                                          \
    &parley__v1__conversations_##name##_request__descriptor, \
        &parley__v1__conversations_##name##_response__descriptor
static const struct call_method rpcs[] = {
    {SERVICE "Open", CALL_UNARY, TYPES(open), fake_open, ACCESS_KEY},
    {SERVICE "Turn", CALL_SERVER_STREAM, &parley__v1__turn_request__descriptor,
     &parley__v1__turn_event__descriptor, fake_turn, ACCESS_KEY},
    {SERVICE "Ask", CALL_UNARY, &parley__v1__turn_request__descriptor,
     &parley__v1__turn_reply__descriptor, fake_ask, ACCESS_KEY},
    {SERVICE "Fork", CALL_UNARY, TYPES(fork), fake_fork, ACCESS_KEY},
    {SERVICE "Rewind", CALL_UNARY, TYPES(rewind), fake_rewind, ACCESS_KEY},
    {SERVICE "Cancel", CALL_UNARY, TYPES(cancel), fake_cancel, ACCESS_KEY},
    {SERVICE "Close", CALL_UNARY, TYPES(close), fake_close, ACCESS_KEY},
    {"/parley.v1.Models/List", CALL_UNARY, &parley__v1__models_list_request__descriptor,
     &parley__v1__models_list_response__descriptor, fake_models, ACCESS_KEY},
};

static void serve(const char *address)
{
    static const struct call_table service = {rpcs, sizeof(rpcs) / sizeof(rpcs[0])};
    static const struct call_table *const services[] = {&service, &health_methods};
    struct port_config config = {
        .services = services, .n_services = 2, .server = &world, .health = &world.health};

    world.n_attempts = 0;
    world.told[0] = '\0';
    health_init(&world.health);
    assert(uv_sem_init(&world.has_begun, 0) == 0 && uv_sem_init(&world.is_gone, 0) == 0);
    config.listen = address == NULL ? NULL : &address;
    config.n_listen = address == NULL ? 0 : 1;
    rig_start(&rig, &config);
    assert(rig.rc == STATUS_OK);
}

static void serve_no_more(void)
{
    rig_stop(&rig);
    health_deinit(&world.health);
    uv_sem_destroy(&world.has_begun);
    uv_sem_destroy(&world.is_gone);
}

/* What a turn's events told, as one text, and its end. */
struct heard {
    char text[1000];
    struct parley_error err;
    uv_sem_t has_ended;
};

__attribute__((format(printf, 2, 3))) static void note(struct heard *h, const char *fmt, ...)
{
    size_t len = strlen(h->text);
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(h->text + len, sizeof(h->text) - len, fmt, args);
    va_end(args);
}

static void on_accepted(void *arg, uint32_t turn, uint32_t prompt_tokens, uint32_t cached_tokens)
{
    note(arg, "accepted %u %u %u; ", turn, prompt_tokens, cached_tokens);
}

static void on_progress(void *arg, uint32_t done, uint32_t total)
{
    note(arg, "progress %u/%u; ", done, total);
}

static void on_piece(void *arg, const char *text, size_t len, const struct parley_token *tokens,
                     size_t n_tokens)
{
    note(arg, "piece '%.*s'", (int)len, text);
    for (size_t i = 0; i < n_tokens; i++) {
        note(arg, " %d %g", tokens[i].id, tokens[i].logprob);
        for (size_t k = 0; k < tokens[i].n_top; k++)
            note(arg, " (%d %g)", tokens[i].top[k].id, tokens[i].top[k].logprob);
    }
    note(arg, "; ");
}

static void on_done(void *arg, const struct parley_done *done)
{
    note(arg, "done %u %s %u %llu %u; ", done->turn, done->finish_reason,
         done->usage.completion_tokens, (unsigned long long)done->timings.total_us,
         done->timings.steps);
}

static void on_end(void *arg, const struct parley_error *err)
{
    struct heard *h = arg;

    h->err = *err;
    uv_sem_post(&h->has_ended);
}

static struct parley_turn_events hear(struct heard *h)
{
    *h = (struct heard){0};
    assert(uv_sem_init(&h->has_ended, 0) == 0);
    return (struct parley_turn_events){on_accepted, on_progress, on_piece, on_done, on_end, h};
}

static void hear_no_more(struct heard *h)
{
    uv_sem_destroy(&h->has_ended);
}

static struct parley_call *start(struct parley_channel *channel, const char *text,
                                 uint32_t deadline_ms, struct heard *h)
{
    const struct parley_message message = {"user", text};
    const struct parley_turn turn = {.conversation = "c",
                                     .turn = 7,
                                     .messages = &message,
                                     .n_messages = 1,
                                     .deadline_ms = deadline_ms};
    const struct parley_turn_events events = hear(h);
    struct parley_call *call = parley_turn_start(channel, &turn, &events);

    ck_assert_ptr_nonnull(call);
    return call;
}

#define WHOLE(text) \
    "accepted 7 11 1; progress 5/11; piece '" text "' 42 -0.5 (8 -2) 43 0; done 7 stop 2 123 3; "

/* An open carries every field and brings back what the server chose. */
START_TEST(opens)
{
    const char *const stops[] = {"END", "STOP"};
    const int32_t ids[] = {-5};
    const float biases[] = {1.5F};
    const struct parley_sampling sampling = {
        .set = PARLEY_TEMPERATURE | PARLEY_FREQUENCY_PENALTY | PARLEY_SEED,
        .temperature = 0.25F,
        .frequency_penalty = -1,
        .stops = stops,
        .n_stops = 2,
        .bias_ids = ids,
        .biases = biases,
        .n_biases = 1,
    };
    const struct parley_open plain = {0};
    const struct parley_open rich = {.model = "m",
                                     .system = "be brief",
                                     .sampling = &sampling,
                                     .ttl_ms = 9,
                                     .priority = -3,
                                     .request_id = "one"};
    struct parley_channel *channel;
    struct parley_opened opened;
    struct parley_error err;

    serve(NULL);
    channel = parley_channel_open(rig.address);
    ck_assert_int_eq(parley_conversation_open(channel, &plain, &opened, &err), PARLEY_OK);
    ck_assert_str_eq(opened.conversation, "0123456789abcdef0123456789abcdef");
    ck_assert_mem_eq(opened.model, "||0|0|", 6);
    ck_assert_uint_eq(strlen(opened.model), 6 + 32); /* an id was drawn */
    ck_assert_str_eq(opened.version, "no sampling");
    ck_assert_int_eq(parley_conversation_open(channel, &rich, &opened, NULL), PARLEY_OK);
    ck_assert_str_eq(opened.model, "m|be brief|9|-3|one");
    ck_assert_str_eq(opened.version, "10.25 00 1-1 2STOP 1:-5=1.5 1");
    parley_channel_close(channel);
    serve_no_more();
}
END_TEST

/* A turn's events come in order, whole, with one end. */
START_TEST(turns)
{
    struct parley_channel *channel;
    struct parley_call *call;
    struct heard h;

    serve(NULL);
    channel = parley_channel_open(rig.address);
    call = start(channel, "hello", 0, &h);
    uv_sem_wait(&h.has_ended);
    ck_assert_str_eq(h.text, WHOLE("hello"));
    ck_assert_int_eq(h.err.status, PARLEY_OK);
    ck_assert_str_eq(h.err.text, "");
    parley_call_cancel(call); /* after the end it does nothing */
    parley_call_unref(call);
    hear_no_more(&h);
    parley_channel_close(channel);
    serve_no_more();
}
END_TEST

/* Whoever does not care for an event need not take it; the blocking turn returns the end. */
START_TEST(turns_blocking)
{
    const struct parley_message message = {"user", "hello"};
    struct parley_turn turn = {.conversation = "c", .messages = &message, .n_messages = 1};
    const struct parley_turn_events none = {0};
    struct parley_turn_events events;
    struct parley_channel *channel;
    struct parley_error err;
    struct heard h;

    serve(NULL);
    channel = parley_channel_open(rig.address);
    events = hear(&h);
    ck_assert_int_eq(parley_turn(channel, &turn, &events, &err), PARLEY_OK);
    ck_assert_str_eq(h.text, WHOLE("hello"));
    ck_assert_int_eq(parley_turn(channel, &turn, &none, NULL), PARLEY_OK);
    ck_assert_int_eq(parley_turn(channel, &turn, NULL, NULL), PARLEY_OK);
    hear_no_more(&h);
    parley_channel_close(channel);
    serve_no_more();
}
END_TEST

/* A refusal arrives whole: status, sentence, field, hint, reason. */
START_TEST(refusals)
{
    struct parley_channel *channel;
    struct parley_error err;
    struct heard h;

    serve(NULL);
    channel = parley_channel_open(rig.address);
    parley_call_unref(start(channel, "refuse", 0, &h));
    uv_sem_wait(&h.has_ended);
    ck_assert_str_eq(h.text, "");
    ck_assert_int_eq(h.err.status, PARLEY_INVALID_ARGUMENT);
    ck_assert_str_eq(h.err.text, "messages[0].text is refused, says 'c'");
    ck_assert_str_eq(h.err.field, "messages[0].text");
    ck_assert_uint_eq(h.err.retry_after_ms, 20);
    ck_assert_str_eq(h.err.reason, "INVALID_FIELD");
    hear_no_more(&h);
    ck_assert_int_eq(parley_close(channel, "unknown", &err), PARLEY_NOT_FOUND);
    ck_assert_str_eq(err.text, "there is no conversation 'unknown'");
    parley_channel_close(channel);
    serve_no_more();
}
END_TEST

/* The small requests carry their numbers both ways. */
START_TEST(small_requests)
{
    struct parley_channel *channel;
    struct parley_error err;
    uint32_t n = 0;
    char id[33];

    serve(NULL);
    channel = parley_channel_open(rig.address);
    ck_assert_int_eq(parley_fork(channel, "parent", 4, id, &err), PARLEY_OK);
    ck_assert_str_eq(id, "parent-4");
    ck_assert_int_eq(parley_rewind(channel, "c", 5, &n, &err), PARLEY_OK);
    ck_assert_uint_eq(n, 5);
    ck_assert_int_eq(parley_rewind(channel, "c", 5, NULL, NULL), PARLEY_OK);
    ck_assert_int_eq(parley_cancel(channel, "c", &n, &err), PARLEY_OK);
    ck_assert_uint_eq(n, 3);
    ck_assert_int_eq(parley_cancel_turn(channel, "c", 4, &n, &err), PARLEY_OK);
    ck_assert_uint_eq(n, 7);
    ck_assert_int_eq(parley_close(channel, "known", &err), PARLEY_OK);
    parley_channel_close(channel);
    serve_no_more();
}
END_TEST

/* Bytes pass through; an error, an unknown method and a missing response are told apart. */
START_TEST(any_unary)
{
    struct parley_channel *channel;
    struct parley_error err;
    void *data = NULL;
    size_t len = 99;

    serve(NULL);
    channel = parley_channel_open(rig.address);
    ck_assert_int_eq(parley_unary(channel, SERVICE "Rewind",
                                  "\x0a\x01"
                                  "c\x10\x05",
                                  5, 0, &data, &len, &err),
                     PARLEY_OK);
    ck_assert_uint_eq(len, 2);
    ck_assert_mem_eq(data, "\x08\x05", 2);
    free(data);
    ck_assert_int_eq(
        parley_unary(channel, SERVICE "Close", "\x0a\x05known", 7, 0, &data, &len, &err),
        PARLEY_OK);
    ck_assert_uint_eq(len, 0);
    free(data);
    ck_assert_int_eq(parley_unary(channel, SERVICE "Close", NULL, 0, 0, &data, &len, &err),
                     PARLEY_NOT_FOUND);
    ck_assert_int_eq(parley_unary(channel, "/no/Such", NULL, 0, 0, &data, &len, &err),
                     PARLEY_UNIMPLEMENTED);
    ck_assert_str_eq(err.text, "there is no method /no/Such");
    ck_assert_int_eq(parley_unary(channel, "/parley.v1.Models/List", NULL, 0, 0, &data, &len, &err),
                     PARLEY_INTERNAL);
    parley_channel_close(channel);
    serve_no_more();
}
END_TEST

struct message_count {
    unsigned n, fails_at; /* fails_at 0: never */
};

static enum parley_status count_message(void *arg, const void *data, size_t len,
                                        struct parley_error *err)
{
    struct message_count *c = arg;

    ck_assert_ptr_nonnull(data);
    ck_assert_uint_gt(len, 0);
    if (++c->n != c->fails_at)
        return PARLEY_OK;
    (void)snprintf(err->text, sizeof(err->text), "message %u is one too many", c->n);
    return PARLEY_CANCELLED;
}

/* Each message comes once; a failure of the callee ends the call with it. */
START_TEST(any_server_stream)
{
    Parley__V1__TurnRequest request = PARLEY__V1__TURN_REQUEST__INIT;
    struct message_count count = {0}, stops = {.fails_at = 2};
    struct parley_channel *channel;
    struct parley_error err;
    uint8_t bytes[64];
    size_t len;

    request.conversation = (char[]){"c"};
    len = protobuf_c_message_pack(&request.base, bytes);
    serve(NULL);
    channel = parley_channel_open(rig.address);
    ck_assert_int_eq(
        parley_server_stream(channel, SERVICE "Turn", bytes, len, count_message, &count, &err),
        PARLEY_OK);
    ck_assert_uint_eq(count.n, 4); /* accepted, progress, piece, done */
    ck_assert_int_eq(
        parley_server_stream(channel, SERVICE "Turn", bytes, len, count_message, &stops, &err),
        PARLEY_CANCELLED);
    ck_assert_uint_eq(stops.n, 2);
    ck_assert_str_eq(err.text, "message 2 is one too many");
    ck_assert_int_eq(
        parley_server_stream(channel, "/no/Such", NULL, 0, count_message, &count, &err),
        PARLEY_UNIMPLEMENTED);
    parley_channel_close(channel);
    serve_no_more();
}
END_TEST

/* What a unary call that nobody waits for ends with; where turn is not NULL, that turn begins right
 * there, on the channel's thread. */
struct unwaited {
    struct parley_channel *channel;
    struct heard *turn;
    struct parley_error err;
    char data[64];
    size_t len;
    bool has_data;
    uv_sem_t has_ended;
};

static void on_unwaited(void *arg, void *data, size_t len, const struct parley_error *err)
{
    struct unwaited *u = arg;

    u->err = *err;
    u->has_data = data != NULL;
    u->len = len;
    if (data != NULL)
        memcpy(u->data, data, len < sizeof(u->data) ? len : sizeof(u->data));
    free(data);
    if (u->turn != NULL)
        parley_call_unref(start(u->channel, "after", 0, u->turn));
    uv_sem_post(&u->has_ended);
}

static void unwaited(struct unwaited *u, const char *method, const void *request, size_t len)
{
    struct parley_call *call =
        parley_unary_start(u->channel, method, request, len, 0, on_unwaited, u);

    ck_assert_ptr_nonnull(call);
    uv_sem_wait(&u->has_ended);
    parley_call_unref(call);
}

/* A unary call that nobody waits for ends once, with its response or with what was wrong, and from
 * there a turn may begin. */
START_TEST(unary_without_waiting)
{
    struct heard heard;
    struct unwaited u = {.turn = &heard};

    serve(NULL);
    ck_assert_int_eq(uv_sem_init(&u.has_ended, 0), 0);
    u.channel = parley_channel_open(rig.address);
    unwaited(&u, SERVICE "Rewind",
             "\x0a\x01"
             "c\x10\x05",
             5);
    ck_assert_int_eq(u.err.status, PARLEY_OK);
    ck_assert_uint_eq(u.len, 2);
    ck_assert_mem_eq(u.data, "\x08\x05", 2);
    uv_sem_wait(&heard.has_ended);
    ck_assert_int_eq(heard.err.status, PARLEY_OK);
    ck_assert_str_eq(heard.text, WHOLE("after"));
    hear_no_more(&heard);
    u.turn = NULL;
    unwaited(&u, SERVICE "Close", NULL, 0);
    ck_assert_int_eq(u.err.status, PARLEY_NOT_FOUND);
    ck_assert(!u.has_data);
    unwaited(&u, "/parley.v1.Models/List", NULL, 0);
    ck_assert_int_eq(u.err.status, PARLEY_INTERNAL);
    ck_assert(!u.has_data);
    parley_channel_close(u.channel);
    uv_sem_destroy(&u.has_ended);
    serve_no_more();
}
END_TEST

/* Cancel stops the turn on both sides; its end still comes. */
START_TEST(cancels)
{
    struct parley_channel *channel;
    struct parley_call *call;
    struct heard h;

    serve(NULL);
    channel = parley_channel_open(rig.address);
    call = start(channel, "hang", 0, &h);
    uv_sem_wait(&world.has_begun);
    parley_call_cancel(call);
    parley_call_cancel(call);
    uv_sem_wait(&h.has_ended);
    ck_assert_int_eq(h.err.status, PARLEY_CANCELLED);
    ck_assert_str_eq(h.err.text, "cancelled");
    uv_sem_wait(&world.is_gone);
    parley_call_unref(call);
    hear_no_more(&h);
    parley_channel_close(channel);
    serve_no_more();
}
END_TEST

/* A deadline that passes says how long it was. A machine so busy that it passes before the turn has
 * begun is given more. */
START_TEST(deadlines)
{
    struct parley_channel *channel;
    char expected[64];
    uint32_t ms = 50;
    bool has_begun = false;
    struct heard h;

    serve(NULL);
    channel = parley_channel_open(rig.address);
    while (!has_begun) {
        ms *= 2;
        ck_assert_uint_lt(ms, 30000);
        parley_call_unref(start(channel, "hang", ms, &h));
        uv_sem_wait(&h.has_ended);
        ck_assert_int_eq(h.err.status, PARLEY_DEADLINE_EXCEEDED);
        (void)snprintf(expected, sizeof(expected), "the call did not end within %u ms", ms);
        ck_assert_str_eq(h.err.text, expected);
        hear_no_more(&h);
        has_begun = uv_sem_trywait(&world.has_begun) == 0;
    }
    uv_sem_wait(&world.is_gone);
    parley_channel_close(channel);
    serve_no_more();
}
END_TEST

/* Closing a channel cancels what is in flight and waits for its end; handles stay good. */
START_TEST(close_cancels)
{
    enum { N = 10 };
    struct parley_channel *channel;
    struct parley_call *calls[N];
    static struct heard h[N];

    serve(NULL);
    channel = parley_channel_open(rig.address);
    for (size_t i = 0; i < N; i++)
        calls[i] = start(channel, "hang", 0, &h[i]);
    for (size_t i = 0; i < N; i++)
        uv_sem_wait(&world.has_begun);
    parley_channel_close(channel);
    for (size_t i = 0; i < N; i++) {
        ck_assert_int_eq(uv_sem_trywait(&h[i].has_ended), 0);
        ck_assert_int_eq(h[i].err.status, PARLEY_CANCELLED);
        parley_call_cancel(calls[i]);
        parley_call_unref(calls[i]);
        hear_no_more(&h[i]);
    }
    parley_channel_close(NULL);
    serve_no_more();
}
END_TEST

/* A port that nobody else can come to listen at, while the socket is there: itself it does not. */
static int take_port(char *ret_address, size_t size)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(bind(fd, (const struct sockaddr *)&at, len), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&at, &len), 0);
    (void)snprintf(ret_address, size, "127.0.0.1:%u", ntohs(at.sin_port));
    return fd;
}

/* Where nobody listens, the error says what to do. */
START_TEST(nobody_listens)
{
    struct parley_channel *channel;
    char address[sizeof(rig.address)], expected[300];
    struct parley_error err;
    struct heard h;
    int fd = take_port(address, sizeof(address));

    channel = parley_channel_open(address);
    (void)snprintf(expected, sizeof(expected), "nothing listens at %s: is parleyd running there?",
                   address);
    ck_assert_int_eq(parley_close(channel, "x", &err), PARLEY_UNAVAILABLE);
    ck_assert_str_eq(err.text, expected);
    parley_call_unref(start(channel, "hello", 0, &h));
    uv_sem_wait(&h.has_ended);
    ck_assert_int_eq(h.err.status, PARLEY_UNAVAILABLE);
    ck_assert_str_eq(h.err.text, expected);
    hear_no_more(&h);
    ck_assert_int_eq(parley_channel_wait(channel, 50, &err), PARLEY_DEADLINE_EXCEEDED);
    ck_assert_str_eq(err.text, expected);
    ck_assert_str_eq(err.reason, "NOTHING_LISTENS");
    parley_channel_close(channel);
    ck_assert_int_eq(close(fd), 0);

    channel = parley_channel_open("unix:/nowhere/socket");
    ck_assert_int_eq(parley_close(channel, "x", &err), PARLEY_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(err.text, "nothing listens at unix:/nowhere/socket"));
    parley_channel_close(channel);
}
END_TEST

/* A server that stops in the middle of a turn ends it as unavailable, and says why. */
START_TEST(server_goes_away)
{
    struct parley_channel *channel;
    struct heard h;

    serve(NULL);
    channel = parley_channel_open(rig.address);
    parley_channel_set_patience(channel, 0);
    parley_call_unref(start(channel, "hang", 0, &h));
    uv_sem_wait(&world.has_begun);
    serve_no_more();
    uv_sem_wait(&h.has_ended);
    ck_assert_int_eq(h.err.status, PARLEY_UNAVAILABLE);
    ck_assert_str_eq(h.err.text, "the server is shutting down");
    hear_no_more(&h);
    parley_channel_close(channel);
}
END_TEST

static struct parley_call *start_broken(struct parley_channel *channel, const char *text,
                                        uint32_t number, uint32_t deadline_ms, struct heard *h)
{
    const struct parley_message message = {"user", text};
    const struct parley_turn turn = {.conversation = "broken",
                                     .turn = number,
                                     .messages = &message,
                                     .n_messages = 1,
                                     .deadline_ms = deadline_ms};
    const struct parley_turn_events events = hear(h);
    struct parley_call *call = parley_turn_start(channel, &turn, &events);

    ck_assert_ptr_nonnull(call);
    return call;
}

/* A channel that this thread, or its own, dispatches. */
static struct parley_channel *channel_to(const char *address, bool is_polled)
{
    return parley_channel_open_with(
        &(struct parley_channel_options){.address = address, .is_polled = is_polled});
}

static void await_end(struct parley_channel *channel, struct heard *h)
{
    struct pollfd fd = {.fd = parley_channel_fd(channel), .events = POLLIN};

    if (fd.fd < 0) {
        uv_sem_wait(&h->has_ended);
        return;
    }
    while (uv_sem_trywait(&h->has_ended) != 0) {
        (void)poll(&fd, 1, -1);
        parley_channel_dispatch(channel);
    }
}

/* A numbered turn whose stream breaks goes on behind the last tokens that came; what came without
 * tokens is told once, however the other attempts cut it. */
START_TEST(turns_go_on)
{
    static const struct {
        const char *text, *told, *asked;
    } cases[] = {
        {"tokens",
         "accepted 7 0 1; piece 'a' 42 0; piece 'b' 42 0; piece 'c' 42 0; piece ' behind'; "
         "piece ' it'; piece 'd' 42 0; done 7 stop 0 0 0; ",
         "7:0:0;7:3:2;7:3:3;"},
        {"texts",
         "accepted 7 0 1; piece 'Hel'; piece 'lo'; piece ' wo'; piece 'rld'; done 7 stop 0 0 0; ",
         "7:0:0;7:0:0;7:0:0;"},
    };

    for (size_t i = 0; i < 4; i++) {
        struct parley_channel *channel;
        struct heard h;

        serve(NULL);
        channel = channel_to(rig.address, i >= 2);
        parley_call_unref(start_broken(channel, cases[i % 2].text, 7, 0, &h));
        await_end(channel, &h);
        ck_assert_int_eq(h.err.status, PARLEY_OK);
        ck_assert_str_eq(h.text, cases[i % 2].told);
        parley_channel_close(channel);
        serve_no_more();
        ck_assert_str_eq(world.told, cases[i % 2].asked);
        hear_no_more(&h);
    }
}
END_TEST

/* What differs from what was told before ends the turn; without a number, or patience, the first
 * failure does. */
START_TEST(turns_that_do_not_go_on)
{
    struct parley_channel *channel;
    struct heard h;

    serve(NULL);
    channel = parley_channel_open(rig.address);
    parley_call_unref(start_broken(channel, "differs", 7, 0, &h));
    uv_sem_wait(&h.has_ended);
    ck_assert_int_eq(h.err.status, PARLEY_DATA_LOSS);
    ck_assert_str_eq(h.text, "accepted 7 0 1; piece 'Hel'; piece 'lo'; ");
    hear_no_more(&h);
    parley_call_unref(start_broken(channel, "never", 0, 0, &h));
    uv_sem_wait(&h.has_ended);
    ck_assert_int_eq(h.err.status, PARLEY_OK); /* the third attempt of this test */
    hear_no_more(&h);
    parley_channel_close(channel);
    serve_no_more();
    for (uint32_t number = 0; number < 2; number++) {
        serve(NULL);
        channel = parley_channel_open(rig.address);
        if (number != 0)
            parley_channel_set_patience(channel, 0);
        parley_call_unref(start_broken(channel, "tokens", number, 0, &h));
        uv_sem_wait(&h.has_ended);
        ck_assert_int_eq(h.err.status, PARLEY_UNAVAILABLE);
        ck_assert_str_eq(h.err.text, "attempt 0 breaks");
        hear_no_more(&h);
        parley_channel_close(channel);
        serve_no_more();
        ck_assert_uint_eq(world.n_attempts, 1);
    }
}
END_TEST

/* A pause before another attempt ends at a cancel, at the channel's end, at the deadline, and with
 * the patience. */
START_TEST(pauses_end)
{
    for (size_t i = 0; i < 8; i++) {
        struct parley_channel *channel;
        struct parley_call *call;
        struct heard h;

        serve(NULL);
        channel = channel_to(rig.address, i >= 4);
        if (i % 4 == 3)
            parley_channel_set_patience(channel, 50);
        call = start_broken(channel, "never", 7, i % 4 == 2 ? 300 : 0, &h);
        if (i % 4 < 2)
            uv_sem_wait(&world.has_begun);
        if (i % 4 == 0)
            parley_call_cancel(call);
        if (i % 4 == 1)
            parley_channel_close(channel);
        else
            await_end(channel, &h);
        ck_assert_int_eq(h.err.status, i % 4 == 2   ? PARLEY_DEADLINE_EXCEEDED
                                       : i % 4 == 3 ? PARLEY_UNAVAILABLE
                                                    : PARLEY_CANCELLED);
        parley_call_unref(call);
        if (i % 4 != 1)
            parley_channel_close(channel);
        hear_no_more(&h);
        serve_no_more();
    }
}
END_TEST

/* A fork that is sent again has its id again; a close that had succeeded has succeeded. */
START_TEST(small_requests_go_on)
{
    struct parley_channel *channel;
    struct parley_error err;
    char id[33];

    serve(NULL);
    channel = parley_channel_open(rig.address);
    ck_assert_int_eq(parley_fork(channel, "broken", 4, id, &err), PARLEY_OK);
    ck_assert_str_eq(id, "broken-4");
    parley_channel_close(channel);
    serve_no_more();
    ck_assert_uint_eq(strlen(world.told), 3 * 33);
    ck_assert_mem_eq(world.told, world.told + 33, 33);
    ck_assert_mem_eq(world.told, world.told + 66, 33);
    serve(NULL);
    channel = parley_channel_open(rig.address);
    ck_assert_int_eq(parley_close(channel, "known", &err), PARLEY_OK);
    ck_assert_int_eq(parley_close(channel, "broken", &err), PARLEY_OK);
    ck_assert_int_eq(parley_close(channel, "broken", &err), PARLEY_NOT_FOUND);
    parley_channel_close(channel);
    serve_no_more();
}
END_TEST

/* What is no event ends the turn and names what it should have been. */
START_TEST(nonsense_from_the_server)
{
    struct parley_channel *channel;
    struct heard h;

    serve(NULL);
    channel = parley_channel_open(rig.address);
    parley_call_unref(start(channel, "nonsense", 0, &h));
    uv_sem_wait(&h.has_ended);
    ck_assert_int_ne(h.err.status, PARLEY_OK);
    ck_assert_ptr_nonnull(strstr(h.err.text, "parley.v1."));
    hear_no_more(&h);
    parley_channel_close(channel);
    serve_no_more();
}
END_TEST

static void set_serving(struct rig *r, void *arg)
{
    health_set(&world.health, "", *(enum health_status *)arg);
}

struct waiting {
    struct parley_channel *channel;
    enum parley_status status;
};

static void wait_in_thread(void *arg)
{
    struct waiting *w = arg;

    w->status = parley_channel_wait(w->channel, 600000, NULL);
}

/* Waiting ends when the server comes up and says that it serves, not before. */
START_TEST(waits_for_a_server)
{
    char folder[] = "/tmp/parley-test-XXXXXX", address[64];
    enum health_status serving = HEALTH_SERVING, not_yet = HEALTH_NOT_SERVING;
    struct waiting w = {0};
    struct parley_error err;
    uv_thread_t thread;

    ck_assert_ptr_nonnull(mkdtemp(folder));
    (void)snprintf(address, sizeof(address), "unix:%s/socket", folder);
    w.channel = parley_channel_open(address);
    ck_assert_int_eq(uv_thread_create(&thread, wait_in_thread, &w), 0); /* nobody listens yet */
    serve(address);
    rig_on_loop(&rig, set_serving, &not_yet);
    ck_assert_int_eq(parley_channel_wait(w.channel, 50, &err), PARLEY_DEADLINE_EXCEEDED);
    rig_on_loop(&rig, set_serving, &serving);
    ck_assert_int_eq(uv_thread_join(&thread), 0);
    ck_assert_int_eq(w.status, PARLEY_OK);
    ck_assert_int_eq(parley_channel_wait(w.channel, 600000, &err), PARLEY_OK);
    ck_assert_int_eq(err.status, PARLEY_OK);
    parley_channel_close(w.channel);
    serve_no_more();
    ck_assert_int_eq(rmdir(folder), 0);
}
END_TEST

static void turn_in_thread(void *arg)
{
    const struct parley_message message = {"user", "hello"};
    const struct parley_turn turn = {.conversation = "c", .messages = &message, .n_messages = 1};
    struct parley_turn_events events;
    struct heard h;

    for (size_t i = 0; i < 50; i++) {
        events = hear(&h);
        assert(parley_turn(arg, &turn, &events, NULL) == PARLEY_OK);
        assert(strcmp(h.text, WHOLE("hello")) == 0);
        hear_no_more(&h);
    }
}

/* Many threads share a channel. */
START_TEST(threads_share_a_channel)
{
    uv_thread_t threads[8];
    struct parley_channel *channel;

    serve(NULL);
    channel = parley_channel_open(rig.address);
    for (size_t i = 0; i < 8; i++)
        ck_assert_int_eq(uv_thread_create(&threads[i], turn_in_thread, channel), 0);
    for (size_t i = 0; i < 8; i++)
        ck_assert_int_eq(uv_thread_join(&threads[i]), 0);
    parley_channel_close(channel);
    serve_no_more();
}
END_TEST

/* Memory that is not there at any point is an error, on either side, never a crash or a hang. A
 * server without memory for a new connection closes it. */
START_TEST(faults)
{
    const struct parley_message message = {"user", "hello"};
    const struct parley_turn turn = {.conversation = "c", .messages = &message, .n_messages = 1};
    enum parley_status status = PARLEY_RESOURCE_EXHAUSTED;
    struct parley_channel *channel;
    long n;

    serve(NULL);
    for (n = 0; status != PARLEY_OK; n++) {
        fault_after = n;
        channel = parley_channel_open(rig.address);
        if (channel != NULL)
            status = parley_turn(channel, &turn, NULL, NULL);
        fault_after = -1;
        ck_assert(status == PARLEY_OK || status == PARLEY_RESOURCE_EXHAUSTED ||
                  status == PARLEY_UNAVAILABLE);
        parley_channel_close(channel);
    }
    ck_assert_int_gt(n, 5);
    serve_no_more();
}
END_TEST

/* --- futures --- */

static struct parley_future *ask(struct parley_channel *channel, const char *text)
{
    const struct parley_message message = {"user", text};
    const struct parley_turn turn = {.conversation = "c", .messages = &message, .n_messages = 1};
    struct parley_future *f = parley_ask_start(channel, &turn);

    ck_assert_ptr_nonnull(f);
    return f;
}

static void drop_futures(struct parley_future *const *futures, size_t n)
{
    for (size_t i = 0; i < n; i++)
        parley_future_unref(futures[i]);
}

/* Each call has a future, which brings what the waiting one does. */
START_TEST(futures)
{
    const struct parley_open what = {.model = "m"};
    const struct parley_result *r;
    struct parley_channel *channel;
    struct parley_future *all[6];

    serve(NULL);
    channel = parley_channel_open(rig.address);
    all[0] = parley_conversation_open_start(channel, &what);
    all[1] = parley_fork_start(channel, "parent", 4);
    all[2] = parley_rewind_start(channel, "c", 5);
    all[3] = parley_close_start(channel, "known");
    all[4] = parley_close_start(channel, "unknown");
    all[5] = ask(channel, "hello");
    ck_assert(parley_wait_all(all, 6, PARLEY_FOREVER));
    ck_assert_mem_eq(parley_future_result(all[0])->opened.model, "m||0|0|", 7);
    ck_assert_str_eq(parley_future_result(all[1])->opened.conversation, "parent-4");
    ck_assert_uint_eq(parley_future_result(all[2])->turns, 5);
    ck_assert_int_eq(parley_future_result(all[3])->err.status, PARLEY_OK);
    ck_assert_int_eq(parley_future_result(all[4])->err.status, PARLEY_NOT_FOUND);
    r = parley_future_result(all[5]);
    ck_assert_str_eq(r->text, "hello");
    ck_assert_uint_eq(r->len, 5);
    ck_assert_uint_eq(r->done.turn, 7);
    ck_assert_str_eq(r->done.finish_reason, "length");
    ck_assert_uint_eq(r->done.usage.completion_tokens, 2);
    parley_channel_close(channel);
    ck_assert_str_eq(r->text, "hello"); /* results outlive their channel, and can be waited for */
    ck_assert(parley_wait_all(all, 6, 0));
    ck_assert_uint_eq(parley_wait_any(all, 6, 0), 0);
    drop_futures(all, 6);
    serve_no_more();
}
END_TEST

static void note_then(void *arg, const struct parley_result *result)
{
    struct heard *h = arg;

    note(h, "%s; ", result->err.status == PARLEY_OK ? result->text : result->err.text);
}

static void last_then(void *arg, const struct parley_result *result)
{
    note_then(arg, result);
    on_end(arg, &result->err);
}

/* Thens are called in their order; a late one at once; all the same when nobody keeps the future.
 */
START_TEST(thens)
{
    struct parley_channel *channel;
    struct parley_future *f;
    struct heard h;

    serve(NULL);
    channel = parley_channel_open(rig.address);
    (void)hear(&h);
    f = ask(channel, "hang");
    uv_sem_wait(&world.has_begun);
    ck_assert_ptr_null(parley_future_result(f));
    ck_assert(parley_future_then(f, note_then, &h));
    ck_assert(parley_future_then(f, last_then, &h));
    parley_future_cancel(f);
    uv_sem_wait(&h.has_ended);
    uv_sem_wait(&world.is_gone);
    ck_assert_int_eq(h.err.status, PARLEY_CANCELLED);
    ck_assert_str_eq(h.text, "cancelled; cancelled; ");
    ck_assert(parley_future_then(f, note_then, &h));
    ck_assert_str_eq(h.text, "cancelled; cancelled; cancelled; ");
    parley_future_cancel(f); /* after the end it does nothing */
    parley_future_unref(f);
    h.text[0] = '\0';
    f = ask(channel, "nobody keeps it");
    ck_assert(parley_future_then(f, last_then, &h));
    parley_future_unref(f);
    uv_sem_wait(&h.has_ended);
    ck_assert_str_eq(h.text, "nobody keeps it; ");
    hear_no_more(&h);
    parley_channel_close(channel);
    serve_no_more();
}
END_TEST

static void check_waits(struct parley_channel *channel)
{
    struct parley_future *all[3];

    all[0] = ask(channel, "hang");
    ck_assert_uint_eq(parley_wait_any(all, 1, 0), 1);
    ck_assert(!parley_wait_all(all, 1, 1));
    all[1] = ask(channel, "one");
    all[2] = ask(channel, "hang");
    ck_assert_uint_eq(parley_wait_any(all, 3, PARLEY_FOREVER), 1);
    ck_assert(!parley_wait_all(all, 3, 1));
    ck_assert(parley_wait_all(all + 1, 1, 0));
    parley_future_cancel(all[0]);
    parley_future_cancel(all[2]);
    ck_assert(parley_wait_all(all, 3, PARLEY_FOREVER));
    ck_assert_uint_eq(parley_wait_any(all, 3, 0), 0);
    ck_assert(parley_wait_all(all, 0, 0));
    ck_assert_uint_eq(parley_wait_any(all, 0, PARLEY_FOREVER), 0);
    drop_futures(all, 3);
}

/* Waits end with what they wait for, or with their time. */
START_TEST(waits)
{
    struct parley_channel *channel;

    serve(NULL);
    channel = parley_channel_open(rig.address);
    check_waits(channel);
    parley_channel_close(channel);
    serve_no_more();
}
END_TEST

struct polled {
    pthread_t thread;
    int n_thens;
};

static void then_here(void *arg, const struct parley_result *result)
{
    struct polled *p = arg;

    ck_assert_int_eq(result->err.status, PARLEY_OK);
    ck_assert(pthread_equal(p->thread, pthread_self()));
    p->n_thens++;
}

/* A channel that is polled does nothing by itself: its descriptor says that something has come, and
 * callbacks run where it is dispatched. What waits dispatches. */
START_TEST(polled)
{
    struct polled p = {.thread = pthread_self()};
    struct parley_channel_options options = {.is_polled = true};
    struct pollfd fd = {.events = POLLIN};
    struct parley_channel *channel;
    struct parley_error err;
    struct heard h;

    serve(NULL);
    options.address = rig.address;
    channel = parley_channel_open_with(&options);
    fd.fd = parley_channel_fd(channel);
    ck_assert_int_ge(fd.fd, 0);
    for (int i = 0; i < 10; i++) {
        struct parley_future *f = ask(channel, "hello");

        ck_assert(parley_future_then(f, then_here, &p));
        parley_future_unref(f);
    }
    while (p.n_thens < 10) {
        ck_assert_int_eq(poll(&fd, 1, -1), 1);
        parley_channel_dispatch(channel);
    }
    ck_assert_int_eq(poll(&fd, 1, 0), 0);
    parley_channel_dispatch(channel); /* nothing is fine */
    parley_call_unref(start(channel, "hello", 0, &h));
    while (uv_sem_trywait(&h.has_ended) != 0) {
        ck_assert_int_eq(poll(&fd, 1, -1), 1);
        parley_channel_dispatch(channel);
    }
    ck_assert_str_eq(h.text, WHOLE("hello"));
    hear_no_more(&h);
    ck_assert_int_eq(parley_close(channel, "known", &err), PARLEY_OK);
    ck_assert_int_eq(parley_close(channel, "unknown", &err), PARLEY_NOT_FOUND);
    check_waits(channel);
    parley_call_unref(start(channel, "hang", 0, &h));
    uv_sem_wait(&world.has_begun);
    parley_channel_close(channel); /* cancels, and calls end */
    ck_assert_int_eq(h.err.status, PARLEY_CANCELLED);
    hear_no_more(&h);
    channel = parley_channel_open(rig.address);
    ck_assert_int_eq(parley_channel_fd(channel), -1);
    parley_channel_close(channel);
    serve_no_more();
}
END_TEST

static void free_nothing(void *arg, const struct parley_result *result)
{
}

/* Nor does a future crash or hang without memory. */
START_TEST(future_faults)
{
    const struct parley_message message = {"user", "hello"};
    const struct parley_turn turn = {.conversation = "c", .messages = &message, .n_messages = 1};
    bool is_done = false;
    long n;

    serve(NULL);
    for (n = 0; !is_done; n++) {
        struct parley_channel_options options = {.address = rig.address, .is_polled = n % 2 == 0};
        struct parley_channel *channel = parley_channel_open_with(&options);
        struct parley_future *f;

        fault_after = n / 2;
        f = parley_ask_start(channel, &turn);
        if (f != NULL) {
            is_done = parley_future_then(f, free_nothing, NULL);
            ck_assert(parley_wait_all(&f, 1, PARLEY_FOREVER));
            is_done =
                is_done && parley_future_result(f)->err.status == PARLEY_OK && fault_after >= 0;
        }
        fault_after = -1;
        parley_future_unref(f);
        parley_channel_close(channel);
    }
    ck_assert_int_gt(n, 5);
    serve_no_more();
}
END_TEST

/* Statuses have gRPC's names. */
START_TEST(names)
{
    ck_assert_str_eq(parley_status_name(PARLEY_OK), "OK");
    ck_assert_str_eq(parley_status_name(PARLEY_INVALID_ARGUMENT), "INVALID_ARGUMENT");
    ck_assert_str_eq(parley_status_name(PARLEY_UNAUTHENTICATED), "UNAUTHENTICATED");
}
END_TEST

SUITE_MAIN("client/parley", opens, turns, turns_blocking, refusals, small_requests, any_unary,
           any_server_stream, unary_without_waiting, cancels, deadlines, close_cancels,
           nobody_listens, server_goes_away, turns_go_on, turns_that_do_not_go_on, pauses_end,
           small_requests_go_on, nonsense_from_the_server, waits_for_a_server,
           threads_share_a_channel, faults, futures, thens, waits, polled, future_faults, names)
