/* An agent in a shared object, through parley_agent.h.
 *
 * The states that a conversation had are kept as long as it can be rewound to them. They never
 * change, and count references, since forks share them. In a turn, observe has the object copy the
 * newest state and take in the messages; batch_act changes that copy and leaves the new text in the
 * row; stepped appends the text to the reply; self_observe makes the copy the newest state, or drop
 * frees it.
 *
 * A row that the object fails, leaves out, answers twice or answers with bad UTF-8 fails alone. */
#include "agents/plugin/plugin.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "agents/agent.h"
#include "agents/plugin/library.h"
#include "agents/reply/reply_format.h"
#include "agents/turn.h"
#include "base/alloc.h"
#include "base/utf8.h"

enum {
    PLUGIN_USUAL_ROWS = 256,
    PLUGIN_MAX_WAITING = 16384,
    PLUGIN_KEPT = 32, /* the last turns that a rewind can take back; turn 0 is always kept */
    PLUGIN_SAVED_HEAD = 9,
};

/* A saved state: this, the number of turns in little endian, name and version of the object's
 * agent, each with a NUL, and what the object's save wrote. */
static const char saved_magic[] = {'p', 'l', 'u', 'g', 1};

struct plugin {
    struct agent base;
    struct plugin_library library;
    const struct parley_agent *type; /* the table, in library */
    void *self;                      /* what the object's open returned; NULL: not open */
    struct parley_agent_row **rows;  /* [max_rows] rows of a step; owned by the compute thread */
    size_t max_rows;
    bool has_format;            /* the object names a template */
    struct reply_format format; /* of its replies */
};

/* A state that the object made, of a conversation after a turn. It never changes once its turn is
 * kept. Clones and forks that keep it have a reference each. Loop. */
struct plugin_state {
    size_t n_refs;
    void *data; /* the object's */
};

/* The turn of a clone, as the object sees it. It is owned by the compute thread during a step, else
 * by the loop, as struct row is. */
struct parley_agent_row {
    struct agent_turn *turn;    /* NULL: no turn is under way */
    struct plugin_state *state; /* the turn's copy of the state */
    uint32_t cost;
    bool is_in_step;          /* batch_act is running with this row */
    unsigned n_answers;       /* answers in this step; it must be one */
    enum row_outcome outcome; /* the answer */
    enum finish finish;       /* with ROW_DONE */
    struct error err;         /* with ROW_FAILED */
    struct buf said;          /* text that the object said in this step */
    bool is_short;            /* said had no room or no memory for all of it */
};

struct plugin_clone {
    struct clone base;
    struct parley_agent_row row;
    uint32_t n_turns;                             /* completed turns */
    struct plugin_state *initial;                 /* the state after create */
    struct plugin_state *states[PLUGIN_KEPT + 1]; /* [n_states] states after the last turns; the
                                                     last one is that after n_turns */
    size_t n_states;
};

struct parley_agent_sink {
    struct buf *out;
};

static struct plugin *plugin_of(const struct agent *a)
{
    return container_of(a, struct plugin, base);
}

static struct plugin_clone *plugin_clone_of(struct clone *c)
{
    return container_of(c, struct plugin_clone, base);
}

static const struct plugin_clone *const_plugin_clone_of(const struct clone *c)
{
    return container_of(c, const struct plugin_clone, base);
}

/* --- what the object says went wrong --- */

static enum status plugin_status(int status, enum status usual)
{
    return status > STATUS_OK && status <= STATUS_UNAUTHENTICATED ? (enum status)status : usual;
}

static enum status plugin_fail(const struct plugin *p, struct error *err, int status,
                               enum status usual, const char *text)
{
    const enum status code = plugin_status(status, usual);

    return error_because(
        err, code, code == STATUS_PRECONDITION ? REASON_MODEL_UNSUITABLE : REASON_NONE, NULL,
        "%s: %.*s", p->base.name, 200, text[0] == '\0' ? "it failed without a reason" : text);
}

/* --- the host --- */

static bool host_message(const struct parley_agent_row *row, size_t i,
                         struct parley_agent_message *out)
{
    const struct observation *seen = &row->turn->seen;

    if (i >= seen->n_messages)
        return false;
    *out = (struct parley_agent_message){role_name(seen->messages[i].role), seen->messages[i].text,
                                         seen->messages[i].len};
    return true;
}

static uint64_t host_seed(const struct parley_agent_row *row)
{
    return row->turn->seen.sampling.seed;
}

static float host_temperature(const struct parley_agent_row *row)
{
    return row->turn->seen.sampling.temperature;
}

static uint32_t host_max_tokens(const struct parley_agent_row *row)
{
    return row->turn->seen.sampling.max_tokens;
}

static void *host_clone(const struct parley_agent_row *row)
{
    return row->state->data;
}

static bool host_say(struct parley_agent_row *row, const char *text, size_t len)
{
    if (!row->is_in_step || row->is_short)
        return false;
    row->is_short = buf_append(&row->said, text, len) != STATUS_OK;
    return !row->is_short;
}

static void host_answer(struct parley_agent_row *row, enum row_outcome outcome)
{
    if (!row->is_in_step)
        return;
    row->n_answers++;
    row->outcome = outcome;
}

static void host_done(struct parley_agent_row *row, bool is_cut)
{
    row->finish = is_cut ? FINISH_LENGTH : FINISH_STOP;
    host_answer(row, ROW_DONE);
}

static void host_more(struct parley_agent_row *row)
{
    host_answer(row, ROW_MORE);
}

static void host_fail(struct parley_agent_row *row, int status, const char *text)
{
    const struct plugin_clone *c = container_of(row, const struct plugin_clone, row);

    if (row->is_in_step)
        (void)plugin_fail(plugin_of(c->base.agent), &row->err, status, STATUS_INTERNAL,
                          text == NULL ? "" : text);
    host_answer(row, ROW_FAILED);
}

static bool host_write(struct parley_agent_sink *sink, const void *data, size_t len)
{
    return buf_append(sink->out, data, len) == STATUS_OK;
}

static bool host_label(const struct parley_agent_row *row, size_t i,
                       struct parley_agent_message *out)
{
    const struct observation *seen = &row->turn->seen;

    if (i >= seen->n_labels)
        return false;
    *out = (struct parley_agent_message){"assistant", seen->labels[i].text, seen->labels[i].len};
    return true;
}

static const struct parley_agent_host host = {
    .size_bytes = sizeof(struct parley_agent_host),
    .message = host_message,
    .seed = host_seed,
    .temperature = host_temperature,
    .max_tokens = host_max_tokens,
    .clone = host_clone,
    .say = host_say,
    .done = host_done,
    .more = host_more,
    .fail = host_fail,
    .write = host_write,
    .label = host_label,
};

/* --- states --- */

/* Takes data, which is the object's, or NULL when it failed with why. */
static enum status plugin_state_make(struct plugin_state **out, struct plugin *p, void *data,
                                     const struct parley_agent_error *why, struct error *err)
{
    struct plugin_state *s = NULL;

    if (data == NULL)
        return plugin_fail(p, err, why->status, STATUS_INTERNAL, why->text);
    s = try_alloc(1, sizeof(*s));
    if (s == NULL) {
        p->type->free(p->self, data);
        return error_no_memory(err, sizeof(*s), "a state");
    }
    s->n_refs = 1;
    s->data = data;
    *out = s;
    return STATUS_OK;
}

static struct plugin_state *plugin_state_ref(struct plugin_state *s)
{
    s->n_refs++;
    return s;
}

static void plugin_state_unref(const struct plugin *p, struct plugin_state *s)
{
    if (s == NULL || --s->n_refs > 0)
        return;
    p->type->free(p->self, s->data);
    free(s);
}

/* After at_turn turns, borrowed. */
static enum status plugin_state_at(struct plugin_state **out, const struct plugin_clone *c,
                                   uint32_t at_turn, struct error *err)
{
    if (at_turn > c->n_turns)
        return error_because(err, STATUS_RANGE, REASON_TURN_NOT_FOUND, NULL,
                             "turn %u does not exist, the conversation has %u turns", at_turn,
                             c->n_turns);
    if (at_turn != 0 && c->n_turns - at_turn >= c->n_states)
        return error_because(err, STATUS_RANGE, REASON_TURN_NOT_FOUND, NULL,
                             "the state after turn %u is not kept, only the states from turn %u on",
                             at_turn, c->n_turns - (uint32_t)c->n_states + 1);
    *out = at_turn == 0 ? c->initial : c->states[c->n_states - 1 - (c->n_turns - at_turn)];
    return STATUS_OK;
}

/* Drops the newest n states. */
static void plugin_states_cut(struct plugin_clone *c, size_t n)
{
    const struct plugin *p = plugin_of(c->base.agent);

    for (; n > 0; n--)
        plugin_state_unref(p, c->states[--c->n_states]);
}

/* Takes s: the newest. */
static void plugin_states_push(struct plugin_clone *c, struct plugin_state *s)
{
    if (c->n_states == PLUGIN_KEPT + 1) {
        plugin_state_unref(plugin_of(c->base.agent), c->states[0]);
        memmove(c->states, c->states + 1, PLUGIN_KEPT * sizeof(c->states[0]));
        c->n_states--;
    }
    c->states[c->n_states++] = s;
}

/* --- the original --- */

static enum status plugin_open(struct agent *a, const struct agent_config *config,
                               struct error *err)
{
    struct plugin *p = plugin_of(a);
    struct parley_agent_error why = {0};

    if (plugin_library_open(&p->library, config->path, err) != STATUS_OK)
        return err->status;
    p->type = p->library.agent;
    if (p->type == NULL)
        return error_set(err, STATUS_PRECONDITION, "plug-in %.120s: it defines no parley_agent",
                         config->path);
    p->max_rows = p->type->max_rows != 0 ? p->type->max_rows : PLUGIN_USUAL_ROWS;
    p->rows = try_alloc(p->max_rows, sizeof(struct parley_agent_row *));
    if (p->rows == NULL)
        return error_no_memory(err, p->max_rows * sizeof(struct parley_agent_row *), "rows");
    p->has_format = p->type->size_bytes >= offsetof(struct parley_agent, chat_template) +
                                               sizeof(p->type->chat_template) &&
                    p->type->chat_template != NULL;
    if (p->has_format)
        reply_format_find(&p->format, p->type->chat_template, strlen(p->type->chat_template), true);
    p->self = p->type->open(&host, &why);
    return p->self != NULL ? STATUS_OK
                           : plugin_fail(p, err, why.status, STATUS_PRECONDITION, why.text);
}

static void plugin_close(struct agent *a)
{
    struct plugin *p = plugin_of(a);

    if (p->self != NULL)
        p->type->close(p->self);
    free(p->rows);
    plugin_library_close(&p->library);
}

static void plugin_info(const struct agent *a, struct agent_info *out)
{
    const struct plugin *p = plugin_of(a);

    out->architecture = p->type->name;
    out->text.reply_format = p->has_format ? &p->format : NULL;
    out->is_light = (p->type->flags & PARLEY_AGENT_LIGHT) != 0;
    out->is_inexact = (p->type->flags & PARLEY_AGENT_DETERMINISTIC) == 0;
    out->is_state_volatile = p->type->save == NULL;
    memcpy(out->version, p->type->version,
           strlen(p->type->version) + 1); /* its length is checked */
}

static void plugin_batching(const struct agent *a, struct batcher_config *out)
{
    const struct plugin *p = plugin_of(a);

    *out = (struct batcher_config){
        .policy = BATCH_CONTINUOUS,
        .max_rows = p->max_rows,
        .max_cost = p->type->max_cost,
        .max_waiting = PLUGIN_MAX_WAITING,
    };
}

/* --- what it has learned --- */

/* Whether the object's table has the two functions. */
static bool plugin_has_learning(const struct plugin *p)
{
    return p->type->size_bytes >=
           offsetof(struct parley_agent, load_model) + sizeof(p->type->load_model);
}

bool plugin_agent_learns(const struct agent *a)
{
    const struct plugin *p = plugin_of(a);

    return plugin_has_learning(p) && p->type->save_model != NULL;
}

enum status plugin_agent_save(struct agent *a, const char *path, struct error *err)
{
    struct plugin *p = plugin_of(a);
    struct parley_agent_error why = {0};

    if (!plugin_agent_learns(a))
        return error_set(err, STATUS_PRECONDITION, "%s has no save_model, so it does not learn",
                         a->name);
    return p->type->save_model(p->self, path, &why)
               ? STATUS_OK
               : plugin_fail(p, err, why.status, STATUS_DATA_LOSS, why.text);
}

enum status plugin_agent_load(struct agent *a, const char *path, struct error *err)
{
    struct plugin *p = plugin_of(a);
    struct parley_agent_error why = {0};

    if (!plugin_has_learning(p) || p->type->load_model == NULL)
        return error_set(err, STATUS_PRECONDITION, "%s has no load_model", a->name);
    return p->type->load_model(p->self, path, &why)
               ? STATUS_OK
               : plugin_fail(p, err, why.status, STATUS_DATA_LOSS, why.text);
}

/* --- clones --- */

static enum status plugin_clone_open(struct clone *c, const struct clone_config *config,
                                     struct error *err)
{
    struct plugin_clone *own = plugin_clone_of(c);
    struct plugin *p = plugin_of(c->agent);
    struct parley_agent_error why = {0};
    void *data = p->type->create(p->self, config->system, config->system_len, &why);

    if (plugin_state_make(&own->initial, p, data, &why, err) != STATUS_OK)
        return err->status;
    plugin_states_push(own, plugin_state_ref(own->initial));
    return STATUS_OK;
}

static void plugin_clone_close(struct clone *c)
{
    struct plugin_clone *own = plugin_clone_of(c);
    const struct plugin *p = plugin_of(c->agent);

    plugin_states_cut(own, own->n_states);
    plugin_state_unref(p, own->initial);
}

static enum status plugin_fork(struct clone *c, const struct clone *parent, uint32_t at_turn,
                               struct error *err)
{
    const struct plugin_clone *from = const_plugin_clone_of(parent);
    struct plugin_clone *own = plugin_clone_of(c);
    struct plugin_state *at = NULL;

    if (plugin_state_at(&at, from, at_turn, err) != STATUS_OK)
        return err->status;
    own->initial = plugin_state_ref(from->initial);
    own->n_turns = at_turn;
    for (size_t i = 0; i + (from->n_turns - at_turn) < from->n_states; i++)
        plugin_states_push(own, plugin_state_ref(from->states[i]));
    if (own->n_states == 0) /* turn 0, whose state is kept separately */
        plugin_states_push(own, plugin_state_ref(at));
    return STATUS_OK;
}

static void plugin_start_again(struct plugin_clone *own, uint32_t n_turns, struct plugin_state *s)
{
    (void)plugin_state_ref(s);
    plugin_states_cut(own, own->n_states);
    plugin_states_push(own, s);
    own->n_turns = n_turns;
}

static enum status plugin_rewind(struct clone *c, uint32_t at_turn, struct error *err)
{
    struct plugin_clone *own = plugin_clone_of(c);
    struct plugin_state *at = NULL;

    if (plugin_state_at(&at, own, at_turn, err) != STATUS_OK)
        return err->status;
    if (at_turn == 0) {
        plugin_start_again(own, 0, at);
    } else {
        plugin_states_cut(own, own->n_turns - at_turn);
        own->n_turns = at_turn;
    }
    return STATUS_OK;
}

static void plugin_reset(struct clone *c)
{
    struct plugin_clone *own = plugin_clone_of(c);

    plugin_start_again(own, 0, own->initial);
}

/* --- saving --- */

static enum status plugin_save(const struct clone *c, struct buf *out, struct error *err)
{
    const struct plugin_clone *own = const_plugin_clone_of(c);
    const struct plugin *p = plugin_of(c->agent);
    struct parley_agent_sink sink = {out};
    struct parley_agent_error why = {0};
    unsigned char head[PLUGIN_SAVED_HEAD];

    if (p->type->save == NULL)
        return error_set(err, STATUS_UNIMPLEMENTED, "%s cannot save its state", c->agent->name);
    memcpy(head, saved_magic, sizeof(saved_magic));
    for (size_t i = 0; i < 4; i++)
        head[sizeof(saved_magic) + i] = (unsigned char)(own->n_turns >> 8 * i);
    if (buf_append(out, head, sizeof(head)) != STATUS_OK ||
        buf_append(out, p->type->name, strlen(p->type->name) + 1) != STATUS_OK ||
        buf_append(out, p->type->version, strlen(p->type->version) + 1) != STATUS_OK)
        return error_no_memory(err, sizeof(head), "a saved state");
    if (!p->type->save(p->self, own->states[own->n_states - 1]->data, &sink, &why))
        return plugin_fail(p, err, why.status, STATUS_INTERNAL, why.text);
    return STATUS_OK;
}

/* The text that must come next. */
static bool plugin_saved_skip(const char **at, size_t *left, const char *text)
{
    size_t size = strlen(text) + 1;

    if (*left < size || memcmp(*at, text, size) != 0)
        return false;
    *at += size;
    *left -= size;
    return true;
}

static enum status plugin_restore(struct clone *c, const void *data, size_t size_bytes,
                                  struct error *err)
{
    struct plugin_clone *own = plugin_clone_of(c);
    struct plugin *p = plugin_of(c->agent);
    struct parley_agent_error why = {0};
    const unsigned char *head = data;
    const char *at = (const char *)data + PLUGIN_SAVED_HEAD;
    size_t left = size_bytes < PLUGIN_SAVED_HEAD ? 0 : size_bytes - PLUGIN_SAVED_HEAD;
    struct plugin_state *s = NULL;
    uint32_t n_turns = 0;

    if (p->type->restore == NULL)
        return error_set(err, STATUS_UNIMPLEMENTED, "%s cannot restore a state", c->agent->name);
    if (left == 0 || memcmp(head, saved_magic, sizeof(saved_magic)) != 0 ||
        !plugin_saved_skip(&at, &left, p->type->name) ||
        !plugin_saved_skip(&at, &left, p->type->version))
        return error_set(err, STATUS_DATA_LOSS, "the saved state is not one of %s, version %s",
                         p->type->name, p->type->version);
    for (size_t i = 0; i < 4; i++)
        n_turns |= (uint32_t)head[sizeof(saved_magic) + i] << 8 * i;
    if (plugin_state_make(&s, p, p->type->restore(p->self, at, left, &why), &why, err) != STATUS_OK)
        return err->status;
    plugin_start_again(own, n_turns, s);
    plugin_state_unref(p, s);
    return STATUS_OK;
}

/* --- a turn --- */

static void plugin_turn_over(struct plugin_clone *own)
{
    buf_deinit(&own->row.said);
    own->row.turn = NULL;
    own->row.state = NULL;
}

static enum status plugin_observe(struct clone *c, struct agent_turn *turn, struct error *err)
{
    struct plugin_clone *own = plugin_clone_of(c);
    struct plugin *p = plugin_of(c->agent);
    const struct plugin_state *newest = own->states[own->n_states - 1];
    struct parley_agent_error why = {0};
    struct plugin_state *s = NULL;

    assert(own->row.turn == NULL);
    if (turn->seen.n_messages == 0 || turn->seen.n_raw_ids > 0)
        return error_field(err, "messages",
                           "are missing or there are token ids, but %s takes only messages",
                           c->agent->name);
    if (sampling_check(&turn->seen.sampling, 0, err) != STATUS_OK ||
        plugin_state_make(&s, p, p->type->fork(p->self, newest->data, &why), &why, err) !=
            STATUS_OK)
        return err->status;
    own->row = (struct parley_agent_row){.turn = turn, .state = s, .cost = 1};
    buf_init(&own->row.said, turn->reply.text.limit_bytes);
    if (!p->type->observe(p->self, s->data, &own->row, &why)) {
        plugin_turn_over(own);
        plugin_state_unref(p, s);
        return plugin_fail(p, err, why.status, STATUS_INVALID, why.text);
    }
    if (p->type->cost != NULL)
        own->row.cost = p->type->cost(p->self, &own->row);
    own->row.cost += own->row.cost == 0;
    turn->reply.n_prompt = own->row.cost;
    turn->row.clone = c;
    return STATUS_OK;
}

/* What batch_act made of the state: that is not computed again. */
static enum status plugin_trace(const struct clone *c, const struct agent_turn *turn,
                                struct buf *out, struct error *err)
{
    const struct plugin_clone *own = const_plugin_clone_of(c);
    const struct plugin *p = plugin_of(c->agent);
    struct parley_agent_sink sink = {out};
    struct parley_agent_error why = {0};

    if (p->type->save == NULL || p->type->save(p->self, own->row.state->data, &sink, &why))
        return STATUS_OK;
    return plugin_fail(p, err, why.status, STATUS_INTERNAL, why.text);
}

static enum status plugin_recall(struct clone *c, struct agent_turn *turn, const void *trace,
                                 size_t size_bytes, struct error *err)
{
    struct plugin_clone *own = plugin_clone_of(c);
    const struct plugin *p = plugin_of(c->agent);
    struct parley_agent_error why = {0};
    void *data;

    if (p->type->restore == NULL)
        return error_set(err, STATUS_DATA_LOSS, "%s cannot restore a state", c->agent->name);
    data = p->type->restore(p->self, trace, size_bytes, &why);
    if (data == NULL)
        return plugin_fail(p, err, why.status, STATUS_DATA_LOSS, why.text);
    p->type->free(p->self, own->row.state->data); /* the turn's own state is not shared */
    own->row.state->data = data;
    return STATUS_OK;
}

static void plugin_self_observe(struct clone *c, struct agent_turn *turn)
{
    struct plugin_clone *own = plugin_clone_of(c);

    plugin_states_push(own, own->row.state);
    own->n_turns++;
    plugin_turn_over(own);
}

static void plugin_drop(struct clone *c, struct agent_turn *turn)
{
    struct plugin_clone *own = plugin_clone_of(c);

    plugin_state_unref(plugin_of(c->agent), own->row.state);
    plugin_turn_over(own);
}

static struct parley_agent_row *plugin_row_of(const struct row *row)
{
    return &plugin_clone_of(row->clone)->row;
}

static size_t plugin_cost(const struct agent *a, const struct row *row)
{
    return plugin_row_of(row)->cost;
}

/* Sets the row's outcome by the object's answers to it. */
static void plugin_row_settle(const struct plugin *p, struct row *row)
{
    struct parley_agent_row *own = plugin_row_of(row);
    const struct buf *said = &own->said;

    own->is_in_step = false;
    row->outcome = ROW_FAILED;
    row->err = own->err;
    if (own->n_answers != 1)
        (void)error_set(&row->err, STATUS_INTERNAL,
                        "%s answered a row %u times in one step, it must answer each row once",
                        p->base.name, own->n_answers);
    else if (own->outcome == ROW_FAILED)
        return;
    else if (own->is_short && said->is_full)
        (void)error_because(&row->err, STATUS_RANGE, REASON_REPLY_TOO_LONG, NULL,
                            "the reply would be longer than %zu bytes", said->limit_bytes);
    else if (own->is_short)
        (void)error_no_memory(&row->err, said->len, "a reply");
    else if (said->len > 0 &&
             (!utf8_is_valid(said->data, said->len) || memchr(said->data, '\0', said->len) != NULL))
        (void)error_set(&row->err, STATUS_INTERNAL, "%s replied with a text that is not UTF-8",
                        p->base.name);
    else
        row->outcome = own->outcome;
}

static void plugin_batch_act(struct agent *a, struct row *const *rows, size_t n)
{
    struct plugin *p = plugin_of(a);

    assert(n <= p->max_rows);
    for (size_t i = 0; i < n; i++) {
        struct parley_agent_row *own = plugin_row_of(rows[i]);

        own->is_in_step = true;
        own->n_answers = 0;
        own->said.limit_bytes = own->turn->reply.text.limit_bytes - own->turn->reply.text.len;
        p->rows[i] = own;
    }
    p->type->batch_act(p->self, p->rows, n);
    for (size_t i = 0; i < n; i++)
        plugin_row_settle(p, rows[i]);
}

static void plugin_stepped(struct agent *a, struct row *row)
{
    struct parley_agent_row *own = plugin_row_of(row);
    struct reply *reply = &own->turn->reply;

    if (row->outcome != ROW_FAILED && own->said.len > 0 &&
        buf_append(&reply->text, own->said.data, own->said.len) != STATUS_OK) {
        (void)error_no_memory(&row->err, own->said.len,
                              "a reply"); /* it fits: said has the same limit */
        row->outcome = ROW_FAILED;
    }
    buf_clear(&own->said);
    if (row->outcome == ROW_DONE)
        reply->finish = own->finish;
    reply->n_prefilled = reply->n_prompt;
}

const struct agent_type plugin_agent = {
    .name = "plugin",
    .agent_size = sizeof(struct plugin),
    .clone_size = sizeof(struct plugin_clone),
    .open = plugin_open,
    .close = plugin_close,
    .info = plugin_info,
    .batching = plugin_batching,
    .clone_open = plugin_clone_open,
    .clone_close = plugin_clone_close,
    .fork = plugin_fork,
    .rewind = plugin_rewind,
    .reset = plugin_reset,
    .save = plugin_save,
    .restore = plugin_restore,
    .observe = plugin_observe,
    .trace = plugin_trace,
    .recall = plugin_recall,
    .self_observe = plugin_self_observe,
    .drop = plugin_drop,
    .cost = plugin_cost,
    .batch_act = plugin_batch_act,
    .stepped = plugin_stepped,
};
