/* Checks an operation against the conversation's limits and state, then carries it out on the
 * clone, the turns and the journal together. A turn that is sent again finds the turn that there
 * is already. */
#include "server/conversation/conversation.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "server/conversation/keeping.h"
#include "server/conversation/observed.h"
#include "server/conversation/reader.h"
#include "server/conversation/tool_results.h"
#include "server/model/model.h"
#include "server/model/models.h"

enum { MODEL_RETRY_MS = 100 };

/* Ten years; a longer time is a mistake. */
#define TTL_MAX_MS ((uint64_t)10 * 365 * 24 * 60 * 60 * 1000)

/* --- opening --- */

static enum status check_defaults(const struct model *m, const struct sampling_overrides *overrides,
                                  uint64_t ttl_ms, struct error *err)
{
    struct sampling s = m->info.defaults;

    if (ttl_ms > TTL_MAX_MS)
        return error_field(err, "ttl_ms", "is more than ten years");
    sampling_overrides_apply(overrides, &s);
    return sampling_check(&s, m->info.text.n_vocab, err);
}

static enum status check_open(const struct model *m, const struct open_request *r,
                              struct error *err)
{
    if (r->system_len > SYSTEM_MAX_BYTES)
        return error_because(err, STATUS_INVALID, REASON_INVALID_FIELD, "system",
                             "the system prompt has %zu bytes, at most %d may be", r->system_len,
                             SYSTEM_MAX_BYTES);
    if (r->limits.priority < -100 || r->limits.priority > 100)
        return error_field(err, "limits.priority", "is %d, it must be from -100 to 100",
                           r->limits.priority);
    return check_defaults(m, r->overrides, r->ttl_ms, err);
}

/* --- lifetime --- */

enum status conversation_open_clone(struct conversation *c, struct error *err)
{
    struct clone_config config = {
        .system = c->host.options->system_len == 0 ? NULL : c->host.options->system,
        .system_len = c->host.options->system_len,
        .opened_s = (int64_t)(c->opened_unix_ms / 1000),
        .salt = c->principal,
        .tenant = tenants_get(&c->host.model->tenants, c->principal),
    };

    return clone_open(&c->host.clone, c->host.model->agent, &config, err);
}

enum status conversation_open(struct conversation **out, struct conversations *all,
                              struct model *model, const struct open_request *r, struct error *err)
{
    struct conversation *c;
    enum status rc;

    rc = model_check_ready(model, err);
    if (rc != STATUS_OK)
        return rc;
    rc = check_open(model, r, err);
    if (rc != STATUS_OK)
        return rc;
    c = try_alloc(1, sizeof(*c));
    if (c == NULL)
        return error_no_memory(err, sizeof(*c), "a conversation");
    c->principal = r->principal;
    c->opened_unix_ms = conversations_unix_ms(all);
    c->host.model = model;
    c->host.generation = 1;
    list_init(&c->host.turns);
    rc = conversation_options_open(&c->host.options, r->system, r->system_len, r->overrides,
                                   &r->limits, r->ttl_ms, err);
    if (rc == STATUS_OK)
        rc = metadata_open(&c->metadata, r->metadata, r->n_metadata, err);
    if (rc == STATUS_OK)
        rc = conversation_open_clone(c, err);
    if (rc == STATUS_OK)
        rc = conversations_add(all, c, WATCH_OPENED, err);
    if (rc != STATUS_OK) {
        conversation_release(c);
        return rc;
    }
    *out = c;
    return STATUS_OK;
}

enum status conversation_fork(struct conversation **out, struct conversation *c, uint32_t at_turn,
                              const struct pair *metadata, size_t n_metadata, struct error *err)
{
    struct conversation *f;
    enum status rc;

    if (at_turn > c->host.n_turns)
        return error_because(err, STATUS_RANGE, REASON_TURN_NOT_FOUND, "at_turn",
                             "at_turn is %u, there are %u complete turns", at_turn,
                             c->host.n_turns);
    f = try_alloc(1, sizeof(*f));
    if (f == NULL)
        return error_no_memory(err, sizeof(*f), "a conversation");
    f->principal = c->principal;
    f->host.model = c->host.model;
    f->host.options = conversation_options_ref(c->host.options);
    f->parent = c->id;
    f->has_parent = true;
    f->is_inexact = c->is_inexact;
    f->host.n_turns = at_turn;
    f->host.generation = 1;
    list_init(&f->host.turns);
    if (at_turn > 0)
        f->host.newest = completed_turn_ref(completed_turn_find(c->host.newest, at_turn));
    rc = metadata_open(&f->metadata, metadata, n_metadata, err);
    if (rc == STATUS_OK)
        rc = clone_fork(&f->host.clone, c->host.clone, observed_n_acted(f->host.newest), err);
    if (rc == STATUS_OK)
        rc = conversations_add(c->all, f, WATCH_FORKED, err);
    if (rc != STATUS_OK) {
        conversation_release(f);
        return rc;
    }
    f->host.seed = c->host.seed; /* the same seed: the fork answers as its parent would */
    *out = f;
    return STATUS_OK;
}

/* *out is a reference. */
static enum status change_options(struct conversation_options **out, struct conversation *c,
                                  const struct update_request *r, struct error *err)
{
    struct conversation_options *o = c->host.options;
    const struct sampling_overrides *overrides = r->has_overrides ? r->overrides : o->overrides;
    uint64_t ttl_ms = r->has_ttl ? r->ttl_ms : o->ttl_ms;
    enum status rc = check_defaults(c->host.model, overrides, ttl_ms, err);

    if (rc != STATUS_OK)
        return rc;
    if (!r->has_overrides && !r->has_ttl) {
        *out = conversation_options_ref(o);
        return STATUS_OK;
    }
    return conversation_options_change(out, o, overrides, ttl_ms, err);
}

enum status conversation_update(struct conversation *c, const struct update_request *r,
                                struct error *err)
{
    struct conversation_options *options;
    struct metadata *metadata;
    enum status rc;

    rc = change_options(&options, c, r, err);
    if (rc != STATUS_OK)
        return rc;
    if (r->has_metadata) {
        rc = metadata_open(&metadata, r->metadata, r->n_metadata, err);
        if (rc != STATUS_OK) {
            conversation_options_unref(options);
            return rc;
        }
        free(c->metadata);
        c->metadata = metadata;
    }
    conversation_options_unref(c->host.options);
    c->host.options = options;
    conversations_expiry_changed(c);
    return keeping_update(c, err);
}

static void conversation_drop_unended(struct conversation *c)
{
    stored_request_close(c->unended.request);
    free(c->unended.resolved);
    c->unended = (struct unended_turn){0};
}

/* As conversation_rewind, without telling the journal. */
static enum status conversation_rewind_clone(struct conversation *c, uint32_t to_turn,
                                             struct error *err)
{
    struct completed_turn *newest;
    enum status rc = conversation_check_pins(c, err);

    if (rc != STATUS_OK)
        return rc;
    if (c->host.n_live > 0)
        return error_because(err, STATUS_PRECONDITION, REASON_CONVERSATION_BUSY, NULL,
                             "a turn is in flight: cancel it, or wait for its end");
    if (to_turn > c->host.n_turns)
        return error_because(err, STATUS_RANGE, REASON_TURN_NOT_FOUND, "to_turn",
                             "to_turn is %u, there are %u complete turns", to_turn,
                             c->host.n_turns);
    if (to_turn == c->host.n_turns)
        return STATUS_OK;
    newest = completed_turn_find(c->host.newest, to_turn);
    rc = c->host.model->agent->type->rewind(c->host.clone, observed_n_acted(newest), err);
    if (rc != STATUS_OK)
        return rc;
    if (newest != NULL)
        (void)completed_turn_ref(newest);
    completed_turn_unref(c->host.newest);
    c->host.newest = newest;
    c->host.n_turns = to_turn;
    c->host.generation++;
    c->rewound_to = to_turn;
    conversation_drop_unended(c);
    return STATUS_OK;
}

enum status conversation_rewind(struct conversation *c, uint32_t to_turn, struct error *err)
{
    uint32_t before = c->host.generation;
    enum status rc = conversation_rewind_clone(c, to_turn, err);

    return rc == STATUS_OK && c->host.generation != before ? keeping_rewind(c, err) : rc;
}

static bool conversation_is_rewound(const struct conversation *c, uint32_t generation,
                                    uint32_t to_turn)
{
    return generation + 1 == c->host.generation && c->rewound_to == to_turn &&
           c->host.n_turns == to_turn && c->host.n_live == 0;
}

enum status conversation_rewind_from(struct conversation *c, uint32_t generation, uint32_t to_turn,
                                     struct error *err)
{
    enum status rc;

    if (generation != 0 && conversation_is_rewound(c, generation, to_turn))
        return STATUS_OK;
    if (generation != 0 && generation != c->host.generation) {
        (void)error_field(err, "generation", "is %u, the conversation's is %u", generation,
                          c->host.generation);
        return err->status = STATUS_PRECONDITION;
    }
    rc = conversation_rewind(c, to_turn, err);
    if (rc != STATUS_OK || generation != c->host.generation)
        return rc;
    /* No turn was dropped; a repeated request that comes after further turns must not drop them. */
    c->host.generation++;
    c->rewound_to = to_turn;
    conversation_drop_unended(c);
    return keeping_rewind(c, err);
}

/* --- turns --- */

enum status conversation_check_model(const struct conversation *c, struct error *err)
{
    const char *name = c->host.model->name;
    struct models *models = c->all->keeping.models;
    struct model *m;
    enum status rc;

    if (!model_is_absent(c->host.model))
        return model_check_ready(c->host.model, err);
    models_request(models, name);
    rc = models_get(&m, models, name, err);
    if (rc == STATUS_OK)
        rc = model_check_ready(m, err);
    if (rc == STATUS_NOT_FOUND)
        return error_because(err, STATUS_NOT_FOUND, REASON_MODEL_NOT_FOUND, "model",
                             "the conversation's model '%s' is not served: serve it under this "
                             "name, then send the turn again",
                             name);
    if (rc != STATUS_OK)
        return rc;
    (void)error_because(err, STATUS_UNAVAILABLE, REASON_MODEL_NOT_READY, "model",
                        "model '%s' has only just become ready", name);
    err->retry_after_ms = MODEL_RETRY_MS;
    return STATUS_UNAVAILABLE;
}

static enum status conversation_check_turn(const struct conversation *c,
                                           const struct turn_request *r, struct error *err)
{
    struct sampling s = c->host.model->info.defaults;
    size_t n_bytes = r->n_plain_ids * sizeof(r->plain_ids[0]);

    if (r->is_plain && c->host.model->agent->type->text == NULL)
        return error_because(err, STATUS_INVALID, REASON_MODEL_UNSUITABLE, "prompt",
                             "model '%s' accepts only messages, no raw prompt",
                             c->host.model->name);
    if (r->n_messages == 0 && n_bytes == 0)
        return error_field(err, "messages", "is empty: a turn says something");
    for (size_t i = 0; i < r->n_messages; i++) /* a tool may have nothing to tell */
        n_bytes += r->messages[i].len + (r->messages[i].role == ROLE_TOOL);
    if (n_bytes == 0 && !r->raw.fills_in) /* a gap between nothing and nothing is one */
        return error_field(err, r->n_messages == 1 ? "messages[0].text" : "messages",
                           "is empty: a turn says something");
    if (r->n_logprobs > SAMPLING_MAX_LOGPROBS)
        return error_field(err, "want_logprobs", "is %u, it may be at most %d", r->n_logprobs,
                           SAMPLING_MAX_LOGPROBS);
    sampling_overrides_apply(c->host.options->overrides, &s);
    sampling_overrides_apply(r->overrides, &s);
    return sampling_check(&s, c->host.model->info.text.n_vocab, err);
}

/* Checks the limits for one more turn after the existing ones. */
static enum status check_limits(const struct conversation *c, size_t n_bytes, struct error *err)
{
    const struct conversations_config *config = &c->all->config;
    uint32_t max_turns = c->host.options->limits.max_turns;
    size_t n_turns = (size_t)c->host.n_turns + c->host.n_live;
    size_t used = c->host.newest == NULL ? 0 : c->host.newest->total_bytes;

    if (c->all->is_draining)
        return error_draining(err);
    if (c->host.n_live > config->max_queued_turns) {
        (void)error_because(err, STATUS_EXHAUSTED, REASON_QUEUE_FULL, NULL,
                            "%zu turns of this conversation wait already",
                            config->max_queued_turns);
        err->retry_after_ms = 100;
        return STATUS_EXHAUSTED;
    }
    if (n_turns >= config->max_turns || (max_turns > 0 && n_turns >= max_turns))
        return error_because(err, STATUS_PRECONDITION, REASON_CONVERSATION_FULL, NULL,
                             "the conversation is limited to %zu turns",
                             max_turns > 0 && max_turns < config->max_turns ? max_turns
                                                                            : config->max_turns);
    if (n_bytes + used > config->max_transcript_bytes)
        return error_because(err, STATUS_RANGE, REASON_CONVERSATION_FULL, "messages",
                             "the transcript is limited to %zu bytes, %zu are used",
                             config->max_transcript_bytes, used);
    return STATUS_OK;
}

enum status conversation_check_room(const struct conversation *c, const struct turn_request *r,
                                    size_t n_bytes, struct error *err)
{
    enum status rc = conversation_check_turn(c, r, err);

    return rc == STATUS_OK ? check_limits(c, n_bytes, err) : rc;
}

static struct turn *find_live(const struct conversation *c, uint32_t number)
{
    struct link *at;

    for (at = list_first(&c->host.turns); at != NULL; at = list_next(&c->host.turns, at)) {
        struct turn *t = container_of(at, struct turn, link);

        if (t->number == number)
            return t;
    }
    return NULL;
}

/* Whether the turn in flight is one that an earlier process had accepted. */
static bool conversation_runs_again(const struct conversation *c)
{
    return c->host.n_live > 0 &&
           container_of(list_first(&c->host.turns), struct turn, link)->resolved != NULL;
}

/* A turn that an earlier process had accepted is not cut: it may have come less far here than what
 * its client has seen. */
enum status conversation_cancel_from(struct conversation *c, uint32_t number, size_t *ret_n,
                                     struct error *err)
{
    uint32_t last, from = number;

    if (c->unended.request != NULL && (number == 0 || number == c->host.n_turns + 1) &&
        conversation_run_unended(c, err) != STATUS_OK)
        return err->status;
    last = c->host.n_turns + c->host.n_live;
    if (number > last) {
        (void)error_field(err, "turn", "is %u, there are %u turns", number, last);
        return err->status = STATUS_RANGE;
    }
    if (conversation_runs_again(c) && number <= c->host.n_turns + 1)
        from = c->host.n_turns + 2; /* those behind it */
    if (number != 0 && number <= c->host.n_turns)
        *ret_n = 0;
    else
        *ret_n = turn_cancel_from(&c->host, from);
    return STATUS_OK;
}

/* A number that is in use: the same request joins its turn, another request is refused. */
static enum status turn_again(struct conversation *c, const struct turn_request *r,
                              struct turn_reader *reader, struct error *err)
{
    struct completed_turn *completed = NULL;
    struct turn *live = NULL;
    const struct stored_request *request;

    if (r->number <= c->host.n_turns) {
        completed = completed_turn_find(c->host.newest, r->number);
        request = completed->request;
    } else {
        live = find_live(c, r->number);
        request = turn_request_of(live);
    }
    if (!(r->resume.is_wanted && r->n_messages == 0) && !stored_request_matches(request, r))
        return error_because(err, STATUS_EXISTS, REASON_TURN_BODY_DIFFERS, "turn",
                             "turn %u was sent before with another body", r->number);
    reader->deadline_us = r->deadline_us;
    reader->is_reply_deadline = r->is_reply_deadline;
    if (live != NULL)
        turn_attach(live, reader);
    else
        turn_attach_completed(completed, c->host.generation, reader);
    return STATUS_OK;
}

/* Reads a turn that there is, from the place that the cursor names. */
static enum status turn_resume(struct conversation *c, const struct turn_request *r,
                               struct turn_reader *reader, struct error *err)
{
    enum status rc;

    if (r->resume.generation != c->host.generation)
        return error_because(err, STATUS_RANGE, REASON_CURSOR_NOT_FOUND, "resume_from.generation",
                             "generation is %u, the conversation's is %u: it was rewound",
                             r->resume.generation, c->host.generation);
    if (c->unended.request != NULL && r->number == c->host.n_turns + 1) /* it was not reopened */
        return error_draining(err);
    if (r->number == 0 || r->number > c->host.n_turns + c->host.n_live)
        return error_because(err, STATUS_RANGE, REASON_CURSOR_NOT_FOUND, "resume_from.turn",
                             "there is no turn %u", r->number);
    rc = turn_again(c, r, reader, err);
    if (rc == STATUS_OK)
        rc = reader_seek(reader, r->resume.index, err);
    if (rc == STATUS_RANGE)
        reader_close(reader, STATUS_CANCELLED);
    return rc;
}

static enum status conversation_take_turn(struct conversation *c, const struct turn_request *r,
                                          struct turn_reader *reader, struct error *err)
{
    uint32_t next = c->host.n_turns + c->host.n_live + 1;
    size_t n_bytes = r->n_plain_ids * sizeof(r->plain_ids[0]);
    enum status rc;

    if (r->resume.is_wanted)
        return turn_resume(c, r, reader, err);
    if (r->number != 0 && r->number <= c->host.n_turns) /* it needs no model */
        return turn_again(c, r, reader, err);
    rc = conversation_check_model(c, err); /* the model may be unloading */
    if (rc == STATUS_OK)
        rc = conversation_check_turn(c, r, err);
    if (rc != STATUS_OK)
        return rc;
    if (r->number > next)
        return error_because(err, STATUS_PRECONDITION, REASON_TURN_GAP, "turn",
                             "turn %u cannot come yet: the next is turn %u", r->number, next);
    if (r->number != 0 && r->number < next)
        return turn_again(c, r, reader, err);
    for (size_t i = 0; i < r->n_messages; i++)
        n_bytes += r->messages[i].len;
    rc = check_limits(c, n_bytes, err);
    if (rc == STATUS_OK)
        rc = tool_results_check(&c->host, r, err);
    if (rc != STATUS_OK)
        return rc;
    return turn_open(&c->host, r, next, reader, err);
}

/* The turn that an earlier process had accepted is run again, before any other. One that the agent
 * refuses is withdrawn; if it only cannot be run now, it stays, and other turns have to wait. */
static enum status conversation_reopen_turn(struct conversation *c, struct error *err)
{
    const struct unended_turn *u = &c->unended;
    uint32_t number = c->host.n_turns + 1;
    enum status rc;

    if (u->request == NULL || c->all->is_draining)
        return STATUS_OK;
    rc = conversation_check_model(c, err);
    if (rc != STATUS_OK)
        return rc;
    rc = turn_reopen(&c->host, u->request, u->resolved, number, u->is_changed, err);
    if (rc == STATUS_OK) {
        c->unended = (struct unended_turn){0};
        return STATUS_OK;
    }
    if (rc == STATUS_EXHAUSTED || rc == STATUS_UNAVAILABLE)
        return rc;
    keeping_withdraw(c, number);
    conversation_drop_unended(c);
    return STATUS_OK;
}

enum status conversation_turn(struct conversation *c, const struct turn_request *r,
                              struct turn_reader *reader, struct error *err)
{
    enum status rc = conversation_reopen_turn(c, err);

    if (rc == STATUS_OK || (r->number != 0 && r->number <= c->host.n_turns))
        rc = conversation_take_turn(c, r, reader, err);
    if (rc != STATUS_OK)
        statistics_refuse(&c->host.model->statistics, rc);
    return rc;
}

enum status conversation_run_unended(struct conversation *c, struct error *err)
{
    if (c->unended.request != NULL)
        c->unended.request->is_detached = true;
    return conversation_reopen_turn(c, err);
}

uint64_t conversation_idle_us(const struct conversation *c)
{
    return c->host.n_live > 0 ? 0 : env_now_us(c->all->config.env) - c->host.last_done_us;
}
