/* Conversations: a future for each call, and the calls that wait for it. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/lib/parts.h"
#include "parley/v1/conversations.pb-c.h"

/* The request's texts are only read. */
static char *request_text_of(const char *text)
{
    return text == NULL ? (char *)(uintptr_t) "" : (char *)(uintptr_t)text;
}

static void request_copy(char *out, size_t size, const char *text)
{
    size_t len = strnlen(text, size - 1);

    memcpy(out, text, len);
    out[len] = '\0';
}

/* Writes a random id of 128 bits in hex, with which a request that is sent twice makes one
 * conversation. Returns out, which is "" if the system gives no random bytes. */
static char *draw_id(char out[33])
{
    uint8_t bytes[16];

    if (getentropy(bytes, sizeof(bytes)) != 0) {
        *out = '\0';
        return out;
    }
    for (size_t i = 0; i < sizeof(bytes); i++)
        (void)snprintf(out + 2 * i, 3, "%02x", bytes[i]);
    return out;
}

/* --- open --- */

static enum status take_opened(struct parley_future *f, const ProtobufCMessage *response,
                               struct error *err)
{
    const Parley__V1__ConversationsOpenResponse *from =
        (const Parley__V1__ConversationsOpenResponse *)response;
    struct parley_opened *out = &f->result.opened;

    request_copy(out->conversation, sizeof(out->conversation), from->conversation);
    request_copy(out->model, sizeof(out->model), from->model);
    request_copy(out->version, sizeof(out->version), from->version);
    return STATUS_OK;
}

struct parley_future *parley_conversation_open_start(struct parley_channel *channel,
                                                     const struct parley_open *what)
{
    static const struct future_kind kind = {"/parley.v1.Conversations/Open",
                                            &parley__v1__conversations_open_response__descriptor,
                                            take_opened, PARLEY_OK};
    Parley__V1__ConversationsOpenRequest request = PARLEY__V1__CONVERSATIONS_OPEN_REQUEST__INIT;
    Parley__V1__Sampling sampling = PARLEY__V1__SAMPLING__INIT;
    Parley__V1__ConversationLimits limits = PARLEY__V1__CONVERSATION_LIMITS__INIT;
    struct parley_future *f = NULL;
    struct error ignored; /* fails only if memory is exhausted */
    enum status rc = STATUS_OK;
    struct arena arena;
    char id[33];

    arena_init(&arena, DECODED_MAX_BYTES);
    request.model = request_text_of(what->model);
    request.system = request_text_of(what->system);
    request.ttl_ms = what->ttl_ms;
    request.request_id = what->request_id != NULL ? request_text_of(what->request_id) : draw_id(id);
    limits.priority = what->priority;
    request.limits = what->priority != 0 ? &limits : NULL;
    if (what->sampling != NULL) {
        rc = sampling_fill(&sampling, what->sampling, &arena, &ignored);
        request.sampling = &sampling;
    }
    if (rc == STATUS_OK)
        f = future_start(channel, &kind, &request.base, REQUEST_DEADLINE_MS,
                         *request.request_id != '\0');
    arena_deinit(&arena);
    return f;
}

enum parley_status parley_conversation_open(struct parley_channel *channel,
                                            const struct parley_open *what,
                                            struct parley_opened *out, struct parley_error *err)
{
    struct parley_result result;
    enum parley_status rc =
        future_finish(parley_conversation_open_start(channel, what), &result, err);

    if (rc == PARLEY_OK)
        *out = result.opened;
    return rc;
}

/* --- fork --- */

static enum status take_fork(struct parley_future *f, const ProtobufCMessage *response,
                             struct error *err)
{
    struct parley_opened *out = &f->result.opened;

    request_copy(out->conversation, sizeof(out->conversation),
                 ((const Parley__V1__ConversationsForkResponse *)response)->conversation);
    return STATUS_OK;
}

struct parley_future *parley_fork_start(struct parley_channel *channel, const char *conversation,
                                        uint32_t at_turn)
{
    static const struct future_kind kind = {"/parley.v1.Conversations/Fork",
                                            &parley__v1__conversations_fork_response__descriptor,
                                            take_fork, PARLEY_OK};
    Parley__V1__ConversationsForkRequest request = PARLEY__V1__CONVERSATIONS_FORK_REQUEST__INIT;
    char id[33];

    request.conversation = request_text_of(conversation);
    request.request_id = draw_id(id);
    if (at_turn != PARLEY_ALL_TURNS) {
        request.at_case = PARLEY__V1__CONVERSATIONS_FORK_REQUEST__AT_AT_TURN;
        request.at_turn = at_turn;
    }
    return future_start(channel, &kind, &request.base, REQUEST_DEADLINE_MS, *id != '\0');
}

enum parley_status parley_fork(struct parley_channel *channel, const char *conversation,
                               uint32_t at_turn, char out[33], struct parley_error *err)
{
    struct parley_result result;
    enum parley_status rc =
        future_finish(parley_fork_start(channel, conversation, at_turn), &result, err);

    if (rc == PARLEY_OK)
        request_copy(out, 33, result.opened.conversation);
    return rc;
}

/* --- rewind, cancel, close --- */

static enum status take_rewound(struct parley_future *f, const ProtobufCMessage *response,
                                struct error *err)
{
    f->result.turns = ((const Parley__V1__ConversationsRewindResponse *)response)->turns;
    return STATUS_OK;
}

struct parley_future *parley_rewind_start(struct parley_channel *channel, const char *conversation,
                                          uint32_t to_turn)
{
    static const struct future_kind kind = {"/parley.v1.Conversations/Rewind",
                                            &parley__v1__conversations_rewind_response__descriptor,
                                            take_rewound, PARLEY_OK};
    Parley__V1__ConversationsRewindRequest request = PARLEY__V1__CONVERSATIONS_REWIND_REQUEST__INIT;

    request.conversation = request_text_of(conversation);
    request.to_case = PARLEY__V1__CONVERSATIONS_REWIND_REQUEST__TO_TO_TURN;
    request.to_turn = to_turn;
    return future_start(channel, &kind, &request.base, REQUEST_DEADLINE_MS, true);
}

/* Waits for a future whose result is a number of turns. */
static enum parley_status finish_turns(struct parley_future *f, uint32_t *ret_turns,
                                       struct parley_error *err)
{
    struct parley_result result;
    enum parley_status rc = future_finish(f, &result, err);

    if (rc == PARLEY_OK && ret_turns != NULL)
        *ret_turns = result.turns;
    return rc;
}

enum parley_status parley_rewind(struct parley_channel *channel, const char *conversation,
                                 uint32_t to_turn, uint32_t *ret_turns, struct parley_error *err)
{
    return finish_turns(parley_rewind_start(channel, conversation, to_turn), ret_turns, err);
}

static enum status take_cancelled(struct parley_future *f, const ProtobufCMessage *response,
                                  struct error *err)
{
    f->result.turns = ((const Parley__V1__ConversationsCancelResponse *)response)->cancelled;
    return STATUS_OK;
}

enum parley_status parley_cancel(struct parley_channel *channel, const char *conversation,
                                 uint32_t *ret_cancelled, struct parley_error *err)
{
    return parley_cancel_turn(channel, conversation, 0, ret_cancelled, err);
}

enum parley_status parley_cancel_turn(struct parley_channel *channel, const char *conversation,
                                      uint32_t turn, uint32_t *ret_cancelled,
                                      struct parley_error *err)
{
    static const struct future_kind kind = {"/parley.v1.Conversations/Cancel",
                                            &parley__v1__conversations_cancel_response__descriptor,
                                            take_cancelled, PARLEY_OK};
    Parley__V1__ConversationsCancelRequest request = PARLEY__V1__CONVERSATIONS_CANCEL_REQUEST__INIT;

    request.conversation = request_text_of(conversation);
    request.turn = turn;
    return finish_turns(future_start(channel, &kind, &request.base, REQUEST_DEADLINE_MS, true),
                        ret_cancelled, err);
}

struct parley_future *parley_close_start(struct parley_channel *channel, const char *conversation)
{
    static const struct future_kind kind = {"/parley.v1.Conversations/Close",
                                            &parley__v1__conversations_close_response__descriptor,
                                            NULL, PARLEY_NOT_FOUND};
    Parley__V1__ConversationsCloseRequest request = PARLEY__V1__CONVERSATIONS_CLOSE_REQUEST__INIT;

    request.conversation = request_text_of(conversation);
    return future_start(channel, &kind, &request.base, REQUEST_DEADLINE_MS, true);
}

enum parley_status parley_close(struct parley_channel *channel, const char *conversation,
                                struct parley_error *err)
{
    return future_finish(parley_close_start(channel, conversation), NULL, err);
}
