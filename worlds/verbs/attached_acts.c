/* A clone has the JSON of what it has heard, and of the turns of its episode. The worker has the
 * clones' states; once it may have lost them, the next conversation begins, and each clone tells
 * its episode again with its next row. */
#include "worlds/verbs/attached_acts.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "base/buf.h"
#include "base/list.h"
#include "worlds/message/act.h"
#include "worlds/metrics/metrics.h"
#include "worlds/participant/participant.h"
#include "worlds/verbs/attached_session.h"

enum {
    ACTS_TALK_BYTES = 64 << 20, /* of a clone's episode */
    ACTS_MESSAGE_BYTES = 1 << 30,
    ACTS_BATCH_BYTES = 3 << 20,   /* of a message; a longer batch is sent in parts, since servers
                                     take 4 MiB (--max-message-bytes) */
    ACTS_SESSION_BYTES = 4 << 20, /* a conversation above it ends once all rows begin episodes */
    ACTS_SESSION_MOST = 12 << 20, /* a conversation above it ends at once */
    ACTS_MAX_ATTEMPTS = 3,        /* of a batch, in a conversation each */
    ACTS_GREETING_TOKENS = 8,     /* of a language model's answer to the first turn */
    ACTS_MAX_HEARD = 1024,        /* messages between two replies */
};

struct acts_agent {
    struct participant base;
    struct participant_type type; /* has the agent's name */
    char name[80];
    struct attached_agent_config config;
    struct connection_options connection; /* its own copy: threads read it later */
    struct parley_channel *channel;
    struct attached_session session;
    uint64_t generation; /* number of conversations so far */
    uint64_t n_clones;   /* number of clones so far; the newest clone's id */
    struct buf message;  /* the last one */
    struct buf closed;   /* ids of closed clones that the worker still has, with commas between */
    size_t max_rows;
};

struct acts_talk {
    uint64_t id, generation; /* generation: of the conversation that has the clone's state */
    uint32_t place, n_turns;
    struct buf heard; /* acts, with commas between */
    size_t n_heard;
    struct buf past; /* turns of the episode, [[ACT…], REPLY] each, with commas between */
    bool is_over;    /* the episode: what is heard after the reply begins another */
};

struct acts_clone {
    struct participant_clone base;
    struct acts_talk *talk;
};

static struct acts_agent *acts_agent_of(const struct participant *p)
{
    return container_of((struct participant *)(uintptr_t)p, struct acts_agent, base);
}

static struct acts_talk *acts_talk_of(struct participant_clone *c)
{
    return container_of(c, struct acts_clone, base)->talk;
}

/* --- the conversation --- */

static enum status acts_agent_begin(struct acts_agent *a, struct error *err)
{
    const struct attached_agent_config *c = &a->config;
    json_t *spec =
        json_pack("{s:{s:s?,s:f,s:I}}", "parley.world", "system", c->system, "temperature",
                  (double)c->temperature, "max_tokens", (json_int_t)c->max_tokens);
    char *system = spec == NULL ? NULL : json_dumps(spec, JSON_COMPACT);
    enum status rc;

    if (system == NULL)
        rc = error_set(err, STATUS_INVALID, "the system prompt is not UTF-8 text");
    else
        rc = attached_session_begin(&a->session, c->name, system, err);
    a->generation += rc == STATUS_OK;
    buf_clear(&a->closed);
    free(system);
    json_decref(spec);
    return rc;
}

static enum status acts_agent_do(struct acts_agent *a, const char *what, const char *path,
                                 const struct parley_result **out, struct error *err)
{
    json_t *order = json_pack("{s:s,s:s*}", "do", what, "path", path);
    char *message = order == NULL ? NULL : json_dumps(order, JSON_COMPACT);
    enum status rc = STATUS_OK;

    if (message == NULL)
        rc = error_set(err, STATUS_INVALID, "the path is not UTF-8 text");
    else if (a->session.conversation[0] == '\0')
        rc = acts_agent_begin(a, err);
    if (rc == STATUS_OK)
        rc = attached_session_ask(&a->session, message, out, err);
    free(message);
    json_decref(order);
    return rc;
}

/* --- clones --- */

static enum status acts_clone_init(struct participant_clone *c,
                                   const struct participant_slot *place, struct error *err)
{
    struct acts_talk *t = try_alloc(1, sizeof(*t));

    if (t == NULL)
        return error_no_memory(err, sizeof(*t), "a conversation");
    t->id = ++acts_agent_of(c->original)->n_clones;
    t->place = place->index;
    buf_init(&t->heard, ACTS_TALK_BYTES);
    buf_init(&t->past, ACTS_TALK_BYTES);
    container_of(c, struct acts_clone, base)->talk = t;
    return STATUS_OK;
}

static void acts_clone_deinit(struct participant_clone *c)
{
    struct acts_agent *a = acts_agent_of(c->original);
    struct acts_talk *t = acts_talk_of(c);

    if (t == NULL)
        return;
    /* Without memory for the id the worker keeps the clone until the conversation ends. */
    if (t->generation == a->generation)
        (void)!buf_printf(&a->closed, "%s%" PRIu64, a->closed.len > 0 ? "," : "", t->id);
    buf_deinit(&t->heard);
    buf_deinit(&t->past);
    free(t);
}

static void acts_talk_begin_anew(struct acts_talk *t)
{
    buf_clear(&t->past);
    t->n_turns = 0;
    t->is_over = false;
}

static void acts_clone_reset(struct participant_clone *c)
{
    struct acts_talk *t = acts_talk_of(c);

    acts_talk_begin_anew(t);
    buf_clear(&t->heard);
    t->n_heard = 0;
}

static enum status acts_clone_observe(struct participant_clone *c, const struct act *act,
                                      const struct act **ret_observation, struct error *err)
{
    struct acts_talk *t = acts_talk_of(c);
    const size_t before = t->heard.len;

    *ret_observation = act;
    if (act_is_padding(act))
        return STATUS_OK;
    if (t->is_over && t->n_heard == 0)
        acts_talk_begin_anew(t);
    t->is_over |= act_is(act, ACT_EPISODE_DONE);
    if (t->n_heard == ACTS_MAX_HEARD)
        return error_set(err, STATUS_EXHAUSTED, "more than %d messages wait for its reply",
                         ACTS_MAX_HEARD);
    if ((t->n_heard > 0 && buf_append(&t->heard, ",", 1) != STATUS_OK) ||
        act_to_json(act, &t->heard, err) != STATUS_OK) {
        t->heard.len = before;
        return error_no_memory(err, before, "a message");
    }
    t->n_heard++;
    return STATUS_OK;
}

/* --- a batch --- */

/* A turn's number begins an episode if it is 1, and then nothing of the past is told. */
static enum status acts_write_row(struct buf *out, const struct acts_agent *a,
                                  const struct acts_talk *t)
{
    const bool is_known = t->n_turns > 0 && t->generation == a->generation;

    if (buf_printf(out, "\n{\"clone\":%" PRIu64 ",\"turn\":%u,\"seed\":%" PRIu64, t->id,
                   t->n_turns + 1, a->config.seed + t->place) != STATUS_OK)
        return STATUS_EXHAUSTED;
    if (!is_known && (buf_append_text(out, ",\"fresh\":true,\"past\":[") != STATUS_OK ||
                      buf_append(out, t->past.data, t->past.len) != STATUS_OK ||
                      buf_append(out, "]", 1) != STATUS_OK))
        return STATUS_EXHAUSTED;
    if (buf_append_text(out, ",\"heard\":[") != STATUS_OK ||
        buf_append(out, t->heard.data, t->heard.len) != STATUS_OK)
        return STATUS_EXHAUSTED;
    return buf_append(out, "]}", 2);
}

static enum status acts_write(struct buf *out, const struct acts_agent *a,
                              struct participant_row *const *rows, size_t n, struct error *err)
{
    enum status rc = buf_printf(out, "{\"do\":\"act\",\"closed\":[%.*s]}", (int)a->closed.len,
                                a->closed.len > 0 ? a->closed.data : "");

    for (size_t i = 0; rc == STATUS_OK && i < n; i++)
        rc = acts_write_row(out, a, acts_talk_of(rows[i]->clone));
    return rc == STATUS_OK ? rc : error_no_memory(err, out->len, "a batch");
}

/* Ends the conversation where it has become long: if possible where no episode must be told again.
 */
static void acts_agent_shorten(struct acts_agent *a, struct participant_row *const *rows, size_t n)
{
    bool is_between = true;

    for (size_t i = 0; i < n; i++)
        is_between &= acts_talk_of(rows[i]->clone)->n_turns == 0;
    if (a->session.n_bytes > (is_between ? (size_t)ACTS_SESSION_BYTES : (size_t)ACTS_SESSION_MOST))
        attached_session_leave(&a->session);
}

/* Another conversation is of use: this one has lost a part, or the server has lost it. */
static bool acts_may_begin_anew(enum status rc)
{
    return rc == STATUS_DATA_LOSS || rc == STATUS_NOT_FOUND;
}

/* *ret_is_long: the rows, at least two, are too many for one message; nothing was sent, and err is
 * not set. */
static enum status acts_agent_ask(struct acts_agent *a, struct participant_row *const *rows,
                                  size_t n, const struct parley_result **out, bool *ret_is_long,
                                  struct error *err)
{
    enum status rc = STATUS_DATA_LOSS;

    *ret_is_long = false;
    acts_agent_shorten(a, rows, n);
    for (int attempt = 0; attempt < ACTS_MAX_ATTEMPTS && acts_may_begin_anew(rc); attempt++) {
        if (attempt > 0)
            attached_session_leave(&a->session);
        if (a->session.conversation[0] == '\0' && acts_agent_begin(a, err) != STATUS_OK)
            return err->status;
        buf_clear(&a->message);
        rc = acts_write(&a->message, a, rows, n, err);
        *ret_is_long = rc == STATUS_OK && a->message.len > ACTS_BATCH_BYTES && n > 1;
        if (*ret_is_long)
            return STATUS_RANGE;
        if (rc == STATUS_OK)
            rc = attached_session_ask(&a->session, a->message.data, out, err);
    }
    if (rc == STATUS_OK)
        buf_clear(&a->closed);
    return rc;
}

/* The types that a reply's standard fields must have. */
static enum status acts_check_reply(const struct act *reply, struct error *err)
{
    static const struct {
        enum act_key key;
        unsigned types;
        const char *what;
    } rules[] = {
        {ACT_ID, 1u << VALUE_TEXT, "a text"},
        {ACT_TEXT, 1u << VALUE_TEXT, "a text"},
        {ACT_TEXT_CANDIDATES, 1u << VALUE_LIST, "a list of texts"},
        {ACT_EPISODE_DONE, 1u << VALUE_BOOL, "true or false"},
        {ACT_REWARD, 1u << VALUE_INT | 1u << VALUE_REAL, "a number"},
        {ACT_METRICS, 1u << VALUE_JSON, "an object"},
        {ACT_BATCH_PADDING, 0, "left to the world"},
    };

    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        const struct value *v = act_get(reply, rules[i].key);

        if (v != NULL && v->type != VALUE_NULL && (rules[i].types >> v->type & 1) == 0)
            return error_set(err, STATUS_INVALID, "its act has '%s', which must be %s",
                             act_key_name(rules[i].key).text, rules[i].what);
    }
    return STATUS_OK;
}

/* Metrics come as JSON, and become those of the act. */
static enum status acts_take_metrics(struct act *out, struct error *err)
{
    const struct value *v = act_get(out, ACT_METRICS);
    struct metric_list *list;

    if (v == NULL || v->type != VALUE_JSON)
        return STATUS_OK;
    list = arena_alloc(out->arena, 1, sizeof(*list));
    if (list == NULL)
        return error_no_memory(err, sizeof(*list), "metrics");
    if (metric_list_read(list, v->text, out->arena, err) != STATUS_OK)
        return err->status;
    return act_force(out, ACT_METRICS, value_metrics(list), err);
}

static enum status acts_set_unless(struct act *out, enum act_key key, struct value v,
                                   struct error *err)
{
    return act_has(out, key) ? STATUS_OK : act_set(out, key, v, err);
}

enum status attached_act_read(struct act *out, struct text json, const char *id, struct error *err)
{
    const char *copy = arena_strndup(out->arena, json.text, json.len);

    if (copy == NULL)
        return error_no_memory(err, json.len, "an act");
    if (act_from_json(out, copy, json.len, out->arena, err) != STATUS_OK)
        return error_prefix(err, "its act is not JSON");
    if (acts_check_reply(out, err) != STATUS_OK || acts_take_metrics(out, err) != STATUS_OK ||
        acts_set_unless(out, ACT_ID, value_text((struct text){id, strlen(id)}), err) != STATUS_OK ||
        acts_set_unless(out, ACT_EPISODE_DONE, value_bool(false), err) != STATUS_OK)
        return err->status;
    return STATUS_OK;
}

/* The turn becomes past. Without memory for it the clone could not tell it again. */
static enum status acts_talk_keep(struct acts_talk *t, struct text reply, struct error *err)
{
    const size_t before = t->past.len;

    if (buf_append_text(&t->past, before > 0 ? ",[[" : "[[") != STATUS_OK ||
        buf_append(&t->past, t->heard.data, t->heard.len) != STATUS_OK ||
        buf_append_text(&t->past, "],") != STATUS_OK ||
        buf_append(&t->past, reply.text, reply.len) != STATUS_OK ||
        buf_append(&t->past, "]", 1) != STATUS_OK) {
        t->past.len = before;
        return error_set(err, STATUS_EXHAUSTED, "its episode has more than %d bytes",
                         ACTS_TALK_BYTES);
    }
    buf_clear(&t->heard);
    t->n_heard = 0;
    t->n_turns++;
    return STATUS_OK;
}

static void acts_row_fail(struct participant_row *row, const struct error *err)
{
    row->failed = true;
    row->err = *err;
}

/* Gives each row its line. */
static void acts_deal(struct acts_agent *a, struct participant_row *const *rows, size_t n,
                      const struct parley_result *result)
{
    const char *at = result->text, *end = result->text + result->len;
    struct error err;

    for (size_t i = 0; i < n; i++) {
        struct acts_talk *t = acts_talk_of(rows[i]->clone);
        const char *stop = at < end ? memchr(at, '\n', (size_t)(end - at)) : NULL;
        struct text line = {at, (size_t)((stop != NULL ? stop : end) - at)};

        if (line.len == 0) {
            (void)error_set(&err, STATUS_INVALID, "it answered %zu of %zu rows", i, n);
            acts_row_fail(rows[i], &err);
            continue;
        }
        at = stop != NULL ? stop + 1 : end;
        t->generation = a->generation;
        if (attached_act_read(rows[i]->out, line, a->config.name, &err) != STATUS_OK ||
            acts_talk_keep(t, line, &err) != STATUS_OK)
            acts_row_fail(rows[i], &err);
    }
}

/* Rows for which the worker is not needed. Returns whether it is. */
static bool acts_row_begin(struct participant_row *row, const struct acts_agent *a)
{
    const struct acts_talk *t = acts_talk_of(row->clone);
    const struct text id = {a->config.name, strlen(a->config.name)};
    const char *opening = a->config.opening;
    enum status rc;

    row->failed = false;
    if (t->n_heard > 0)
        return true;
    rc = act_set(row->out, ACT_ID, value_text(id), &row->err);
    if (rc == STATUS_OK)
        rc = act_set(row->out, ACT_EPISODE_DONE, value_bool(false), &row->err);
    if (rc == STATUS_OK && row->observation == NULL && opening != NULL)
        rc = act_set(row->out, ACT_TEXT, value_text((struct text){opening, strlen(opening)}),
                     &row->err);
    else if (rc == STATUS_OK && row->observation == NULL)
        rc = error_set(&row->err, STATUS_PRECONDITION, "it has observed nothing yet");
    row->failed = rc != STATUS_OK;
    return false;
}

static void acts_agent_answer(struct acts_agent *a, struct participant_row *const *rows, size_t n)
{
    size_t n_part = n;

    for (size_t from = 0; from < n; from += n_part) {
        const struct parley_result *result = NULL;
        struct error err;
        bool is_long = true;
        enum status rc = STATUS_OK;

        for (n_part = n - from; is_long; n_part = is_long ? n_part / 2 : n_part)
            rc = acts_agent_ask(a, rows + from, n_part, &result, &is_long, &err);
        if (rc == STATUS_OK)
            acts_deal(a, rows + from, n_part, result);
        else
            for (size_t i = 0; i < n_part; i++)
                acts_row_fail(rows[from + i], &err);
    }
}

static void acts_agent_batch_act(struct participant *p, struct participant_row *rows, size_t n)
{
    struct acts_agent *a = acts_agent_of(p);
    struct participant_row **asked = xalloc((n + 1) * sizeof(struct participant_row *));
    size_t n_asked = 0;

    for (size_t i = 0; i < n; i++)
        if (acts_row_begin(&rows[i], a))
            asked[n_asked++] = &rows[i];
    acts_agent_answer(a, asked, n_asked);
    free(asked);
}

/* --- the original --- */

static size_t acts_agent_max_rows(const struct participant *p)
{
    return acts_agent_of(p)->max_rows;
}

static void acts_agent_close(struct participant *p)
{
    struct acts_agent *a = acts_agent_of(p);

    attached_session_leave(&a->session);
    parley_channel_close(a->channel);
    buf_deinit(&a->message);
    buf_deinit(&a->closed);
    free(a);
}

/* Each thread has a conversation of its own. */
static enum status acts_agent_share(struct participant **out, struct participant *p,
                                    uint32_t thread, struct error *err)
{
    const struct acts_agent *a = acts_agent_of(p);
    struct parley_channel *channel;
    bool takes_acts;
    enum status rc;

    if (thread == 0) {
        *out = participant_ref(p);
        return STATUS_OK;
    }
    if (attached_connect(&channel, &a->connection, err) != STATUS_OK)
        return err->status;
    rc = attached_acts_open(out, &takes_acts, channel, &a->connection, &a->config, err);
    if (rc == STATUS_OK && !takes_acts)
        rc = error_set(err, STATUS_PRECONDITION, "another worker takes texts alone");
    if (rc != STATUS_OK)
        parley_channel_close(channel);
    return rc;
}

static const struct participant_type acts_agent_type = {
    .clone_size = sizeof(struct acts_clone),
    .close = acts_agent_close,
    .share = acts_agent_share,
    .clone_init = acts_clone_init,
    .clone_deinit = acts_clone_deinit,
    .reset = acts_clone_reset,
    .observe = acts_clone_observe,
    .batch_act = acts_agent_batch_act,
    .max_rows = acts_agent_max_rows,
    .is_ragged = true,
};

/* What the first turn's reply says; a text agent has failed at it, or says anything else. */
static enum status acts_agent_greet(struct acts_agent *a, bool *ret_takes_acts, struct error *err)
{
    const struct parley_result *result = NULL;
    json_t *answer;
    json_int_t rows;
    enum status rc = acts_agent_begin(a, err);

    *ret_takes_acts = false;
    if (rc != STATUS_OK)
        return rc;
    a->session.max_tokens = ACTS_GREETING_TOKENS;
    rc = acts_agent_do(a, "begin", NULL, &result, err);
    a->session.max_tokens = 0;
    if (rc != STATUS_OK)
        return rc == STATUS_UNAVAILABLE || rc == STATUS_EXHAUSTED ? rc : STATUS_OK;
    answer = json_loadb(result->text, result->len, 0, NULL);
    *ret_takes_acts = json_integer_value(json_object_get(answer, "parley.world")) == 1;
    rows = json_integer_value(json_object_get(answer, "rows"));
    a->max_rows = rows > 0 ? (size_t)rows : SIZE_MAX;
    json_decref(answer);
    return STATUS_OK;
}

enum status attached_acts_open(struct participant **out, bool *ret_takes_acts,
                               struct parley_channel *channel,
                               const struct connection_options *connection,
                               const struct attached_agent_config *config, struct error *err)
{
    struct acts_agent *a = xalloc(sizeof(*a));
    enum status rc;

    (void)snprintf(a->name, sizeof(a->name), "attached:%s", config->name);
    a->type = acts_agent_type;
    a->type.name = a->name;
    participant_init(&a->base, &a->type);
    a->config = *config;
    a->connection = *connection;
    a->channel = a->session.channel = channel;
    buf_init(&a->message, ACTS_MESSAGE_BYTES);
    buf_init(&a->closed, ACTS_TALK_BYTES);
    rc = acts_agent_greet(a, ret_takes_acts, err);
    if (rc == STATUS_OK && *ret_takes_acts) {
        *out = &a->base;
        return STATUS_OK;
    }
    attached_session_leave(&a->session);
    a->channel = NULL; /* the caller's */
    acts_agent_close(&a->base);
    return rc;
}

enum status attached_acts_save(struct participant *p, const char *path, struct error *err)
{
    const struct parley_result *ignored;

    return acts_agent_do(acts_agent_of(p), "save", path, &ignored, err);
}

enum status attached_acts_load(struct participant *p, const char *path, struct error *err)
{
    const struct parley_result *ignored;

    return acts_agent_do(acts_agent_of(p), "load", path, &ignored, err);
}

bool attached_acts_is(const struct participant *p)
{
    return p->type->close == acts_agent_close;
}
