/* The first turn finds out whether the worker takes whole acts (attached_acts.h). What follows is
 * for those that do not, and for all other models. A step: conversations are opened for the clones
 * that have none, then every row's turn is asked, all at once. A turn has its number, so that one
 * which failed for want of a worker, or because the server is full, is asked again and has one
 * reply. What a clone hears between two of its acts is copied, and sent as the messages of one
 * turn. */
#include "worlds/verbs/attached_agent.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/name.h"
#include "client/lib/parley.h"
#include "worlds/message/act.h"
#include "worlds/participant/participant.h"
#include "worlds/verbs/attached_session.h"

enum {
    ATTACHED_AGENT_TURN_BYTES = 256 << 20,
    ATTACHED_AGENT_MAX_HEARD = 1024,
};

struct attached_agent {
    struct participant base;
    struct participant_type type; /* has the agent's name */
    char name[80];
    struct attached_agent_config config;
    struct parley_channel *channel;
};

/* A message that was heard and is not yet answered. */
struct attached_heard {
    struct attached_heard *next;
    const char *text;
};

/* What a clone has of its conversation. */
struct attached_talk {
    char conversation[33]; /* "": none is open */
    uint32_t n_turns, place;
    struct arena arena; /* of the messages heard */
    struct attached_heard *first, **end;
    size_t n_heard;
    bool is_over; /* the episode: what is heard after the reply begins another */
};

struct attached_clone {
    struct participant_clone base;
    struct attached_talk *talk;
};

/* A row of a step. */
struct attached_row {
    struct participant_row *row;
    struct attached_talk *talk;
    struct parley_message *messages; /* [talk->n_heard] */
    struct parley_sampling sampling;
    struct parley_future *future; /* NULL: no request is needed */
};

static struct attached_agent *attached_agent_of(const struct participant *p)
{
    return container_of((struct participant *)(uintptr_t)p, struct attached_agent, base);
}

static struct attached_talk *attached_talk_of(struct participant_clone *c)
{
    return container_of(c, struct attached_clone, base)->talk;
}

static void attached_agent_close(struct participant *p)
{
    struct attached_agent *a = attached_agent_of(p);

    parley_channel_close(a->channel);
    free(a);
}

/* --- clones --- */

static void attached_talk_forget(struct attached_talk *t)
{
    arena_deinit(&t->arena);
    t->first = NULL;
    t->end = &t->first;
    t->n_heard = 0;
}

static void attached_talk_leave(struct attached_talk *t, const struct attached_agent *a)
{
    if (t->conversation[0] != '\0') /* if this fails, the conversation expires at the server */
        parley_future_unref(parley_close_start(a->channel, t->conversation));
    t->conversation[0] = '\0';
    t->n_turns = 0;
    t->is_over = false;
}

static enum status attached_clone_init(struct participant_clone *c,
                                       const struct participant_slot *place, struct error *err)
{
    struct attached_talk *t = try_alloc(1, sizeof(*t));

    if (t == NULL)
        return error_no_memory(err, sizeof(*t), "a conversation");
    arena_init(&t->arena, ATTACHED_AGENT_TURN_BYTES);
    t->end = &t->first;
    t->place = place->index;
    container_of(c, struct attached_clone, base)->talk = t;
    return STATUS_OK;
}

static void attached_clone_deinit(struct participant_clone *c)
{
    struct attached_talk *t = attached_talk_of(c);
    struct parley_error ignored; /* the conversation expires at the server anyway */

    if (t == NULL)
        return;
    if (t->conversation[0] != '\0') /* waits, because the channel is closed next */
        (void)parley_close(attached_agent_of(c->original)->channel, t->conversation, &ignored);
    attached_talk_forget(t);
    free(t);
}

static void attached_clone_reset(struct participant_clone *c)
{
    attached_talk_leave(attached_talk_of(c), attached_agent_of(c->original));
    attached_talk_forget(attached_talk_of(c));
}

static enum status attached_clone_observe(struct participant_clone *c, const struct act *act,
                                          const struct act **ret_observation, struct error *err)
{
    struct attached_talk *t = attached_talk_of(c);
    struct text text = act_text(act);
    struct attached_heard *heard;

    *ret_observation = act;
    if (act_is_padding(act))
        return STATUS_OK;
    if (t->is_over && t->n_heard == 0)
        attached_talk_leave(t, attached_agent_of(c->original));
    t->is_over |= act_is(act, ACT_EPISODE_DONE);
    /* A server refuses empty turns: if all messages are empty, the reply is empty, too. */
    if (text.len == 0)
        return STATUS_OK;
    if (t->n_heard == ATTACHED_AGENT_MAX_HEARD)
        return error_set(err, STATUS_EXHAUSTED, "more than %d messages wait for its reply",
                         ATTACHED_AGENT_MAX_HEARD);
    if (attached_agent_of(c->original)->config.hears_names &&
        act_named_text(&text, act, &t->arena, err) != STATUS_OK)
        return err->status;
    heard = arena_alloc(&t->arena, 1, sizeof(*heard));
    if (heard != NULL)
        heard->text = arena_strndup(&t->arena, text.text, text.len);
    if (heard == NULL || heard->text == NULL)
        return error_no_memory(err, text.len, "a message");
    *t->end = heard;
    t->end = &heard->next;
    t->n_heard++;
    return STATUS_OK;
}

/* --- a step --- */

static void attached_row_fail(struct attached_row *r, const struct parley_error *why)
{
    r->row->failed = true;
    (void)error_set(&r->row->err, (enum status)why->status, "%.300s", why->text);
}

static struct parley_future *attached_row_open(struct attached_row *r,
                                               const struct attached_agent *a)
{
    const struct parley_open what = {.model = a->config.name, .system = a->config.system};

    return parley_conversation_open_start(a->channel, &what);
}

static struct parley_future *attached_row_ask(struct attached_row *r,
                                              const struct attached_agent *a)
{
    const struct parley_turn turn = {.conversation = r->talk->conversation,
                                     .turn = r->talk->n_turns + 1,
                                     .messages = r->messages,
                                     .n_messages = r->talk->n_heard,
                                     .sampling = &r->sampling};

    return parley_ask_start(a->channel, &turn);
}

static enum status attached_row_take_opened(struct attached_row *r,
                                            const struct parley_result *result, struct error *err)
{
    memcpy(r->talk->conversation, result->opened.conversation, sizeof(r->talk->conversation));
    return STATUS_OK;
}

static enum status attached_row_take_reply(struct attached_row *r,
                                           const struct parley_result *result, struct error *err)
{
    struct act *out = r->row->out;
    char *text = arena_strndup(out->arena, result->text, result->len);

    r->talk->n_turns++;
    attached_talk_forget(r->talk);
    if (text == NULL)
        return error_no_memory(err, result->len, "a reply");
    return act_set(out, ACT_TEXT, value_text((struct text){text, result->len}), err);
}

/* A call of all rows, and what becomes of its result. */
struct attached_call {
    bool opens; /* opens conversations: rows that have one are skipped */
    struct parley_future *(*start)(struct attached_row *r, const struct attached_agent *a);
    enum status (*take)(struct attached_row *r, const struct parley_result *result,
                        struct error *err);
};

/* Whether the call is to be made again. */
static bool attached_row_settle(struct attached_row *r, const struct attached_call *call,
                                bool is_late)
{
    const struct parley_result *result;
    bool is_again = false;

    if (r->future == NULL) {
        r->row->failed = true;
        (void)error_no_memory(&r->row->err, sizeof(*result), "a call");
        return false;
    }
    (void)parley_wait_all(&r->future, 1, PARLEY_FOREVER);
    result = parley_future_result(r->future);
    if (result->err.status == PARLEY_OK)
        r->row->failed = call->take(r, result, &r->row->err) != STATUS_OK;
    else if (!is_late && (result->err.status == PARLEY_UNAVAILABLE ||
                          result->err.status == PARLEY_RESOURCE_EXHAUSTED))
        is_again = true;
    else
        attached_row_fail(r, &result->err);
    parley_future_unref(r->future);
    r->future = NULL;
    return is_again;
}

/* Makes the call for all rows [n] that have not failed; those that found no worker again. */
static void attached_agent_call(const struct attached_agent *a, struct attached_row *rows, size_t n,
                                const struct attached_call *call)
{
    const uint64_t end_ms = clock_ms() + ATTACHED_LOST_MS;
    bool *is_due = xalloc((n + 1) * sizeof(*is_due));
    bool is_again = true;

    for (size_t i = 0; i < n; i++)
        is_due[i] = rows[i].talk != NULL && !rows[i].row->failed &&
                    !(call->opens && rows[i].talk->conversation[0] != '\0');
    while (is_again) {
        is_again = false;
        for (size_t i = 0; i < n; i++)
            if (is_due[i])
                rows[i].future = call->start(&rows[i], a);
        for (size_t i = 0; i < n; i++) {
            if (is_due[i])
                is_due[i] = attached_row_settle(&rows[i], call, clock_ms() > end_ms);
            is_again |= is_due[i];
        }
        if (is_again) /* a signal may end the wait early, which is harmless */
            (void)poll(NULL, 0, ATTACHED_RETRY_MS);
    }
    free(is_due);
}

/* What needs no server; else r->talk is set. */
static enum status attached_row_begin(struct attached_row *r, const struct attached_agent *a,
                                      struct participant_row *row)
{
    struct attached_talk *t = attached_talk_of(row->clone);
    const char *opening = a->config.opening;
    const struct attached_heard *heard = t->first;
    enum status rc;

    r->row = row;
    row->failed = false;
    rc = act_set(row->out, ACT_ID,
                 value_text((struct text){a->config.name, strlen(a->config.name)}), &row->err);
    if (rc == STATUS_OK)
        rc = act_set(row->out, ACT_EPISODE_DONE, value_bool(false), &row->err);
    if (rc == STATUS_OK && t->n_heard > 0) {
        r->talk = t;
        r->messages = arena_alloc(&t->arena, t->n_heard, sizeof(r->messages[0]));
        if (r->messages == NULL)
            return error_no_memory(&row->err, t->n_heard, "messages");
        for (size_t i = 0; i < t->n_heard; i++, heard = heard->next)
            r->messages[i] = (struct parley_message){"user", heard->text};
        r->sampling =
            (struct parley_sampling){.set = PARLEY_TEMPERATURE | PARLEY_SEED |
                                            (a->config.max_tokens != 0 ? PARLEY_MAX_TOKENS : 0),
                                     .temperature = a->config.temperature,
                                     .seed = a->config.seed + t->place,
                                     .max_tokens = a->config.max_tokens};
    } else if (rc == STATUS_OK && row->observation == NULL && opening != NULL) {
        rc = act_set(row->out, ACT_TEXT, value_text((struct text){opening, strlen(opening)}),
                     &row->err);
    } else if (rc == STATUS_OK && row->observation == NULL) {
        rc = error_set(&row->err, STATUS_PRECONDITION, "it has observed nothing yet");
    } else if (rc == STATUS_OK && !act_is_padding(row->observation)) {
        rc = act_set(row->out, ACT_TEXT, value_text((struct text){"", 0}), &row->err);
    }
    return rc;
}

static void attached_agent_batch_act(struct participant *p, struct participant_row *rows, size_t n)
{
    static const struct attached_call open = {true, attached_row_open, attached_row_take_opened},
                                      ask = {false, attached_row_ask, attached_row_take_reply};
    const struct attached_agent *a = attached_agent_of(p);
    struct attached_row *asked = xalloc((n + 1) * sizeof(*asked));

    for (size_t i = 0; i < n; i++)
        rows[i].failed = attached_row_begin(&asked[i], a, &rows[i]) != STATUS_OK;
    attached_agent_call(a, asked, n, &open);
    attached_agent_call(a, asked, n, &ask);
    free(asked);
}

static const struct participant_type attached_agent_type = {
    .clone_size = sizeof(struct attached_clone),
    .close = attached_agent_close,
    .clone_init = attached_clone_init,
    .clone_deinit = attached_clone_deinit,
    .reset = attached_clone_reset,
    .observe = attached_clone_observe,
    .batch_act = attached_agent_batch_act,
    .is_ragged = true,
};

static struct participant *attached_texts_open(struct parley_channel *channel,
                                               const struct attached_agent_config *config)
{
    struct attached_agent *a = xalloc(sizeof(*a));

    (void)snprintf(a->name, sizeof(a->name), "attached:%s", config->name);
    a->type = attached_agent_type;
    a->type.name = a->name;
    participant_init(&a->base, &a->type);
    a->config = *config;
    a->channel = channel;
    return &a->base;
}

enum status attached_agent_open(struct participant **out,
                                const struct connection_options *connection,
                                const struct attached_agent_config *config, struct error *err)
{
    struct parley_channel *channel;
    bool takes_acts;

    if (!name_is_valid(config->name, strlen(config->name), 63, NAME_MARKS))
        return error_set(
            err, STATUS_INVALID,
            "attached:%.60s: the name must have 1 to 63 letters, digits, '.', '_' and '-'",
            config->name);
    if (attached_connect(&channel, connection, err) != STATUS_OK)
        return error_prefix(err, "%s", config->name);
    if (attached_acts_open(out, &takes_acts, channel, connection, config, err) != STATUS_OK) {
        parley_channel_close(channel);
        return error_prefix(err, "'attached:%s'", config->name);
    }
    if (!takes_acts)
        *out = attached_texts_open(channel, config);
    return STATUS_OK;
}
