#include "server/conversation.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "server/model.h"
#include "server/turn.h"

/* Ten years; longer is a mistake. */
#define TTL_MAX_MS ((uint64_t)10 * 365 * 24 * 60 * 60 * 1000)

/* --- what a conversation is opened with --- */

static enum status terms_open(struct terms **out, const struct conversations *all,
                              const struct open_request *r, struct error *err)
{
    struct terms *t = try_alloc(1, sizeof(*t) + r->system_len + 1);
    enum status rc;

    if (t == NULL)
        return error_no_memory(err, r->system_len, "the system prompt");
    rc = sampling_patch_copy(&t->patch, r->patch, err);
    if (rc != STATUS_OK) {
        free(t);
        return rc;
    }
    t->n_refs = 1;
    t->limits = r->limits;
    t->ttl_ms = r->ttl_ms == 0 ? all->config.ttl_ms : r->ttl_ms;
    t->system_len = r->system_len;
    if (r->system_len > 0)
        memcpy(t->system, r->system, r->system_len);
    *out = t;
    return STATUS_OK;
}

static struct terms *terms_ref(struct terms *t)
{
    t->n_refs++;
    return t;
}

static void terms_unref(struct terms *t)
{
    if (t == NULL || --t->n_refs > 0)
        return;
    free(t->patch);
    free(t);
}

static enum status metadata_open(struct metadata **out, const struct pair *pairs, size_t n,
                                 struct error *err)
{
    struct metadata *m;
    size_t n_bytes = 0;
    char *at;

    if (n == 0) {
        *out = NULL;
        return STATUS_OK;
    }
    if (n > METADATA_MAX_PAIRS)
        return error_set(err, STATUS_EXHAUSTED, "metadata has %zu entries, at most %d are kept", n,
                         METADATA_MAX_PAIRS);
    for (size_t i = 0; i < n; i++)
        n_bytes += strlen(pairs[i].key) + strlen(pairs[i].value) + 2;
    if (n_bytes > METADATA_MAX_BYTES)
        return error_set(err, STATUS_EXHAUSTED, "metadata has %zu bytes, at most %d are kept",
                         n_bytes, METADATA_MAX_BYTES);
    m = try_alloc(1, sizeof(*m) + n * sizeof(m->pairs[0]) + n_bytes);
    if (m == NULL)
        return error_no_memory(err, n_bytes, "metadata");
    m->n_pairs = n;
    at = (char *)(m->pairs + n);
    for (size_t i = 0; i < n; i++) {
        size_t key_size = strlen(pairs[i].key) + 1;
        size_t value_size = strlen(pairs[i].value) + 1;

        m->pairs[i] = (struct pair){.key = at, .value = at + key_size};
        memcpy(at, pairs[i].key, key_size);
        memcpy(at + key_size, pairs[i].value, value_size);
        at += key_size + value_size;
    }
    *out = m;
    return STATUS_OK;
}

static enum status check_open(const struct model *m, const struct open_request *r,
                              struct error *err)
{
    struct sampling s = m->info.defaults;

    if (r->system_len > SYSTEM_MAX_BYTES)
        return error_set(err, STATUS_EXHAUSTED,
                         "the system prompt has %zu bytes, at most %d may be", r->system_len,
                         SYSTEM_MAX_BYTES);
    if (r->limits.priority < -100 || r->limits.priority > 100)
        return error_field(err, "limits.priority", "is %d, it must be from -100 to 100",
                           r->limits.priority);
    if (r->ttl_ms > TTL_MAX_MS)
        return error_field(err, "ttl_ms", "is more than ten years");
    sampling_patch_lay(r->patch, &s);
    return sampling_check(&s, m->info.n_vocab, err);
}

/* --- life --- */

static void announce(const struct conversation *c, enum watch_what what, const char *reason)
{
    struct watch_event e = {
        .id = c->id,
        .parent = c->parent,
        .what = what,
        .reason = reason,
        .unix_ms = conversations_unix_ms(c->all),
    };

    watch_ring_put(&c->all->watch, &e);
}

static void release(struct conversation *c)
{
    clone_close(c->clone);
    terms_unref(c->terms);
    free(c->metadata);
    record_unref(c->newest);
    free(c);
}

static enum status open_clone(struct conversation *c, struct error *err)
{
    struct clone_config config = {
        .system = c->terms->system_len == 0 ? NULL : c->terms->system,
        .system_len = c->terms->system_len,
    };

    return clone_open(&c->clone, c->model->agent, &config, err);
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
    c->model = model;
    list_init(&c->turns);
    rc = terms_open(&c->terms, all, r, err);
    if (rc == STATUS_OK)
        rc = metadata_open(&c->metadata, r->metadata, r->n_metadata, err);
    if (rc == STATUS_OK)
        rc = open_clone(c, err);
    if (rc == STATUS_OK)
        rc = conversations_add(all, c, err);
    if (rc != STATUS_OK) {
        release(c);
        return rc;
    }
    model->n_conversations++;
    announce(c, WATCH_OPENED, "");
    *out = c;
    return STATUS_OK;
}

enum status conversation_fork(struct conversation **out, struct conversation *c, uint32_t at_turn,
                              const struct pair *metadata, size_t n_metadata, struct error *err)
{
    struct conversation *f;
    enum status rc;

    if (at_turn > c->n_turns)
        return error_set(err, STATUS_RANGE, "at_turn is %u, there are %u complete turns", at_turn,
                         c->n_turns);
    at_turn = at_turn == 0 ? c->n_turns : at_turn;
    f = try_alloc(1, sizeof(*f));
    if (f == NULL)
        return error_no_memory(err, sizeof(*f), "a conversation");
    f->model = c->model;
    f->terms = terms_ref(c->terms);
    f->parent = c->id;
    f->has_parent = true;
    f->n_turns = at_turn;
    list_init(&f->turns);
    if (at_turn > 0)
        f->newest = record_ref(record_find(c->newest, at_turn));
    rc = metadata_open(&f->metadata, metadata, n_metadata, err);
    if (rc == STATUS_OK)
        rc = clone_fork(&f->clone, c->clone, at_turn, err);
    if (rc == STATUS_OK)
        rc = conversations_add(c->all, f, err);
    if (rc != STATUS_OK) {
        release(f);
        return rc;
    }
    f->seed = c->seed; /* the fork would answer as its parent would */
    f->model->n_conversations++;
    announce(f, WATCH_FORKED, "");
    *out = f;
    return STATUS_OK;
}

enum status conversation_rewind(struct conversation *c, uint32_t to_turn, struct error *err)
{
    struct record *newest;
    enum status rc;

    if (c->n_live > 0)
        return error_set(err, STATUS_PRECONDITION,
                         "a turn is in flight: cancel it, or wait for its end");
    if (to_turn > c->n_turns)
        return error_set(err, STATUS_RANGE, "to_turn is %u, there are %u complete turns", to_turn,
                         c->n_turns);
    if (to_turn == c->n_turns)
        return STATUS_OK;
    rc = c->model->agent->type->rewind(c->clone, to_turn, err);
    if (rc != STATUS_OK)
        return rc;
    newest = record_find(c->newest, to_turn);
    if (newest != NULL)
        (void)record_ref(newest);
    record_unref(c->newest);
    c->newest = newest;
    c->n_turns = to_turn;
    return STATUS_OK;
}

void conversation_free(struct conversation *c)
{
    struct model *m = c->model;

    assert(c->is_closed && c->n_live == 0);
    c->all->n_closing--;
    release(c);
    m->n_conversations--;
}

void conversation_close(struct conversation *c, enum watch_what what, const char *reason)
{
    bool is_busy = c->n_live > 0;

    announce(c, what, reason);
    conversations_remove(c->all, c);
    c->all->n_closing++;
    if (is_busy) {
        /* Queued turns are gone inside this call; the one in flight is not, so c stays for now. */
        (void)conversation_cancel(c);
        c->is_closed = true;
        if (c->n_live > 0)
            return;
    }
    c->is_closed = true;
    conversation_free(c);
}

/* --- turns --- */

static enum status check_turn(const struct conversation *c, const struct turn_request *r,
                              struct error *err)
{
    struct sampling s = c->model->info.defaults;
    size_t n_bytes = r->n_plain_ids * sizeof(r->plain_ids[0]);

    if (r->is_plain && c->model->agent->type->tokenize == NULL)
        return error_set(err, STATUS_INVALID, "model '%s' takes messages only, no raw prompt",
                         c->model->name);
    if (r->n_messages == 0 && n_bytes == 0)
        return error_field(err, "messages", "is empty: a turn says something");
    for (size_t i = 0; i < r->n_messages; i++)
        n_bytes += r->messages[i].len;
    if (n_bytes == 0)
        return error_field(err, r->n_messages == 1 ? "messages[0].text" : "messages",
                           "is empty: a turn says something");
    if (r->n_logprobs > SAMPLING_MAX_LOGPROBS)
        return error_field(err, "want_logprobs", "is %u, it may be at most %d", r->n_logprobs,
                           SAMPLING_MAX_LOGPROBS);
    sampling_patch_lay(c->terms->patch, &s);
    sampling_patch_lay(r->patch, &s);
    return sampling_check(&s, c->model->info.n_vocab, err);
}

/* Room for one more, after those that are there. */
static enum status check_room(const struct conversation *c, size_t n_bytes, struct error *err)
{
    const struct conversations_config *config = &c->all->config;
    uint32_t max_turns = c->terms->limits.max_turns;
    size_t n_turns = (size_t)c->n_turns + c->n_live;
    size_t used = c->newest == NULL ? 0 : c->newest->total_bytes;

    if (c->all->is_draining)
        return error_set(err, STATUS_UNAVAILABLE, "the server is stopping");
    if (c->n_live > config->max_queued_turns) {
        (void)error_set(err, STATUS_EXHAUSTED, "%zu turns of this conversation wait already",
                        config->max_queued_turns);
        err->retry_after_ms = 100;
        return STATUS_EXHAUSTED;
    }
    if (n_turns >= config->max_turns || (max_turns > 0 && n_turns >= max_turns))
        return error_set(err, STATUS_EXHAUSTED, "the conversation is limited to %zu turns",
                         max_turns > 0 && max_turns < config->max_turns ? max_turns
                                                                        : config->max_turns);
    if (n_bytes + used > config->max_transcript_bytes)
        return error_set(err, STATUS_EXHAUSTED,
                         "the transcript is limited to %zu bytes, %zu are used",
                         config->max_transcript_bytes, used);
    return STATUS_OK;
}

static struct turn *find_live(const struct conversation *c, uint32_t number)
{
    struct link *at;

    for (at = list_first(&c->turns); at != NULL; at = list_next(&c->turns, at)) {
        struct turn *t = container_of(at, struct turn, link);

        if (t->number == number)
            return t;
    }
    return NULL;
}

/* A number that was taken before: the same request joins, another is refused. */
static enum status turn_again(struct conversation *c, const struct turn_request *r,
                              struct reader *reader, struct error *err)
{
    struct record *record = NULL;
    struct turn *live = NULL;
    const struct body *body;

    if (r->number <= c->n_turns) {
        record = record_find(c->newest, r->number);
        body = record->body;
    } else {
        live = find_live(c, r->number);
        body = live->body;
    }
    if (!body_is_of(body, r))
        return error_set(err, STATUS_EXISTS, "turn %u was given before, with another body",
                         r->number);
    reader->deadline_us = r->deadline_us;
    if (live != NULL)
        turn_attach(live, reader);
    else
        turn_attach_record(record, reader);
    return STATUS_OK;
}

static enum status take_turn(struct conversation *c, const struct turn_request *r,
                             struct reader *reader, struct error *err)
{
    uint32_t next = c->n_turns + c->n_live + 1;
    size_t n_bytes = r->n_plain_ids * sizeof(r->plain_ids[0]);
    enum status rc;

    rc = model_check_ready(c->model, err); /* it may be on its way out */
    if (rc == STATUS_OK)
        rc = check_turn(c, r, err);
    if (rc != STATUS_OK)
        return rc;
    if (r->number > next)
        return error_set(err, STATUS_PRECONDITION, "turn %u cannot come yet: the next is turn %u",
                         r->number, next);
    if (r->number != 0 && r->number < next)
        return turn_again(c, r, reader, err);
    for (size_t i = 0; i < r->n_messages; i++)
        n_bytes += r->messages[i].len;
    rc = check_room(c, n_bytes, err);
    if (rc != STATUS_OK)
        return rc;
    return turn_open(c, r, next, reader, err);
}

enum status conversation_turn(struct conversation *c, const struct turn_request *r,
                              struct reader *reader, struct error *err)
{
    enum status rc = take_turn(c, r, reader, err);

    if (rc != STATUS_OK)
        statistics_refuse(&c->model->statistics, rc);
    return rc;
}

size_t conversation_cancel(struct conversation *c)
{
    size_t n = 0;

    /* From the end: what goes has nothing behind it that would have to move up. */
    while (!list_is_empty(&c->turns)) {
        struct turn *t = container_of(list_last(&c->turns), struct turn, link);

        if (t->state == TURN_ENDING)
            break;
        n++;
        turn_end(t, FINISH_CANCELLED);
    }
    return n;
}

uint64_t conversation_idle_us(const struct conversation *c)
{
    return c->n_live > 0 ? 0 : env_now_us(c->all->config.env) - c->last_done_us;
}
