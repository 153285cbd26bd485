/* The happy path: sequences_enter finds or makes the sequence and queues the request. Its turn or
 * step runs when it is the first; sequence_leave begins the next one, or the idle time.
 *
 * A sequence that has ended, or was started anew, is retired: no new request finds it, and it is
 * closed when its last request has left. It refers to its conversation or session by id, since
 * those may be closed elsewhere. */
#include "server/api/kserve/sequences.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alarm.h"
#include "base/alloc.h"
#include "server/model/model.h"

static const struct limit_kind kind_of_sequences = {"sequences of KServe", NULL, NULL};

enum { RETRY_MS = 100, ENV_ID_SIZE = 40 };

struct sequence {
    struct hash_node by_key; /* not for retired ones */
    struct link link;        /* of all->idle or all->retired */
    struct sequences *all;
    struct model *model; /* NULL: unloaded */
    struct list items;   /* the first runs */
    size_t n_items;
    uint64_t idle_since_us;
    struct conversation_id conversation;
    uint64_t run; /* numbers its session */
    bool has_conversation, has_session;
    uint32_t principal; /* whose it is */
    bool is_retired;    /* no new request finds it */
    char key[];
};

static void retire_of_model(struct model_user *u, struct model *m)
{
    sequences_retire(container_of(u, struct sequences, user), m);
}

void sequences_init(struct sequences *all, const struct sequences_config *config)
{
    *all = (struct sequences){.config = *config, .user.retire = retire_of_model};
    if (config->max_sequences == 0)
        all->config.max_sequences = 65536;
    if (config->max_queued == 0)
        all->config.max_queued = 64;
    if (config->idle_ms == 0)
        all->config.idle_ms = 60000;
    shared_limit_init(&all->limit, &kind_of_sequences, all->config.max_sequences);
    hash_init(&all->by_key, config->env);
    list_init(&all->idle);
    list_init(&all->retired);
}

void sequences_deinit(void *sequences)
{
    struct sequences *all = sequences;

    assert(all->limit.held == 0 && list_is_empty(&all->retired));
    shared_limit_deinit(&all->limit);
    hash_deinit(&all->by_key);
}

/* Never 0. Hashes the model's name, which it keeps when it is loaded again. */
static uint64_t sequences_hash_of(const struct sequences *all, uint32_t principal, const char *name,
                                  const char *key)
{
    uint64_t hash = hash_text(&all->by_key, hash_text(&all->by_key, principal, name), key);

    return hash == 0 ? 1 : hash;
}

static struct sequence *sequence_of(struct hash_node *node)
{
    return node == NULL ? NULL : container_of(node, struct sequence, by_key);
}

static struct sequence *sequences_find(const struct sequences *all, uint64_t hash,
                                       uint32_t principal, const struct model *model,
                                       const char *key)
{
    struct hash_node *node = hash_first(&all->by_key, hash);
    struct sequence *s;

    while ((s = sequence_of(node)) != NULL &&
           (s->principal != principal || s->model != model || strcmp(s->key, key) != 0))
        node = hash_next(node);
    return s;
}

/* before: the sequence to replace, or NULL. */
static enum status sequence_make(struct sequence **out, struct sequences *all,
                                 const struct sequence *before, uint32_t principal,
                                 struct model *model, const char *key, uint64_t hash,
                                 struct error *err)
{
    size_t key_size = strlen(key) + 1;
    struct sequence *s;

    if (before == NULL && shared_limit_check(&all->limit, principal, 1, err) != STATUS_OK)
        return err->status;
    s = try_alloc(1, sizeof(*s) + key_size);
    if (s == NULL)
        return error_no_memory(err, sizeof(*s) + key_size, "a sequence");
    s->all = all;
    s->principal = principal;
    s->model = model;
    s->run = ++all->n_runs;
    list_init(&s->items);
    memcpy(s->key, key, key_size);
    hash_add(&all->by_key, &s->by_key, hash);
    shared_limit_hold(&all->limit, principal, 1);
    *out = s;
    return STATUS_OK;
}

static void env_id(const struct sequence *s, char out[ENV_ID_SIZE])
{
    (void)snprintf(out, ENV_ID_SIZE, "sequence/%llu", (unsigned long long)s->run);
}

/* Also closes its conversation or session. */
static void close_sequence(struct sequence *s, enum watch_what what, const char *reason)
{
    struct conversation *c = s->has_conversation
                                 ? conversations_get(s->all->config.conversations, &s->conversation)
                                 : NULL;
    char id[ENV_ID_SIZE];

    assert(list_is_empty(&s->items) && s->is_retired);
    list_remove(&s->link);
    if (c != NULL)
        conversation_close(c, what, reason);
    if (s->has_session && s->model != NULL) {
        env_id(s, id);
        sessions_end(s->all->config.sessions, s->principal, s->model, id);
    }
    free(s);
}

/* No new request finds it from now on. */
static void sequence_take_out(struct sequence *s)
{
    hash_remove(&s->all->by_key, &s->by_key);
    shared_limit_give(&s->all->limit, s->principal, 1);
    s->is_retired = true;
    if (link_is_on(&s->link))
        list_remove(&s->link);
    list_push(&s->all->retired, &s->link);
}

static void retire(struct sequence *s)
{
    sequence_take_out(s);
    if (list_is_empty(&s->items))
        close_sequence(s, WATCH_CLOSED, "its sequence ended");
}

/* --- sequences closed as idle --- */

static void sequences_remember(struct sequences *all, uint64_t hash)
{
    all->reaped[all->n_reaped++ % SEQUENCES_REMEMBERED] = hash;
}

static uint64_t *find_reaped(struct sequences *all, uint64_t hash)
{
    size_t n = all->n_reaped < SEQUENCES_REMEMBERED ? (size_t)all->n_reaped : SEQUENCES_REMEMBERED;

    for (size_t i = 0; i < n; i++)
        if (all->reaped[i] == hash)
            return &all->reaped[i];
    return NULL;
}

/* A new sequence of this key has begun: it counts as any other. */
static void sequences_forget(struct sequences *all, uint64_t hash)
{
    uint64_t *at = find_reaped(all, hash);

    if (at != NULL)
        *at = 0;
}

static enum status not_there(struct sequences *all, const struct model *model, const char *key,
                             uint64_t hash, struct error *err)
{
    if (find_reaped(all, hash) != NULL) {
        (void)error_field(err, "sequence_id",
                          "%.40s of model '%.40s' was closed after %llu ms without a request: its "
                          "state is gone, start it again",
                          key, model->name, (unsigned long long)all->config.idle_ms);
        err->reason = REASON_SEQUENCE_NOT_FOUND;
        return err->status = STATUS_ABORTED;
    }
    (void)error_field(err, "sequence_id",
                      "%.40s of model '%.40s' is not there: the first request of a sequence must "
                      "specify the START flag (sequence_start)",
                      key, model->name);
    err->reason = REASON_SEQUENCE_NOT_FOUND;
    return err->status;
}

/* --- requests --- */

enum status sequences_enter(struct sequences *all, uint32_t principal, struct model *model,
                            const char *key, bool starts, bool ends, struct sequence_slot *item,
                            struct error *err)
{
    uint64_t hash = sequences_hash_of(all, principal, model->name, key);
    struct sequence *s = sequences_find(all, hash, principal, model, key),
                    *before = starts ? s : NULL;
    enum status rc;

    if (s == NULL && !starts)
        return not_there(all, model, key, hash, err);
    if (starts) {
        rc = sequence_make(&s, all, before, principal, model, key, hash, err);
        if (rc != STATUS_OK)
            return rc;
        sequences_forget(all, hash);
        if (before != NULL)
            retire(before);
    }
    if (s->n_items > all->config.max_queued) {
        (void)error_because(err, STATUS_EXHAUSTED, REASON_QUEUE_FULL, NULL,
                            "%zu requests of sequence %.40s wait already", all->config.max_queued,
                            key);
        err->retry_after_ms = RETRY_MS;
        return STATUS_EXHAUSTED;
    }
    if (link_is_on(&s->link))
        list_remove(&s->link);
    item->sequence = s;
    list_push(&s->items, &item->link);
    s->n_items++;
    if (ends)
        sequence_take_out(s);
    return STATUS_OK;
}

bool sequence_slot_is_first(const struct sequence_slot *item)
{
    return list_first(&item->sequence->items) == &item->link;
}

static void sequence_begin_idle(struct sequence *s)
{
    struct sequences *all = s->all;
    bool is_first = list_is_empty(&all->idle);

    s->idle_since_us = env_now_us(all->config.env);
    list_push(&all->idle, &s->link);
    if (is_first)
        alarm_set(all->config.alarm, s->idle_since_us + all->config.idle_ms * 1000);
}

void sequence_leave(struct sequence_slot *item)
{
    struct sequence *s = item->sequence;
    bool was_first;

    if (s == NULL)
        return;
    was_first = sequence_slot_is_first(item);
    item->sequence = NULL;
    list_remove(&item->link);
    s->n_items--;
    if (!list_is_empty(&s->items)) {
        struct sequence_slot *next =
            container_of(list_first(&s->items), struct sequence_slot, link);

        if (was_first)
            next->begin(next);
    } else if (s->is_retired) {
        close_sequence(s, WATCH_CLOSED, "its sequence ended");
    } else {
        sequence_begin_idle(s);
    }
}

static enum status check_model(const struct sequence *s, struct error *err)
{
    if (s->model == NULL)
        return error_because(err, STATUS_UNAVAILABLE, REASON_MODEL_NOT_READY, NULL,
                             "the model of sequence %.40s was unloaded", s->key);
    return STATUS_OK;
}

static enum status conversation_of(struct conversation **out, struct sequence *s, int priority,
                                   struct error *err)
{
    const struct open_request r = {.principal = s->principal, .limits.priority = priority};
    enum status rc;

    if (s->has_conversation) {
        *out = conversations_get(s->all->config.conversations, &s->conversation);
        if (*out == NULL)
            return error_because(err, STATUS_ABORTED, REASON_SEQUENCE_NOT_FOUND, "sequence_id",
                                 "the conversation of sequence %.40s was closed: start it again",
                                 s->key);
        return STATUS_OK;
    }
    rc = conversation_open(out, s->all->config.conversations, s->model, &r, err);
    if (rc == STATUS_OK) {
        s->has_conversation = true;
        s->conversation = (*out)->id;
    }
    return rc;
}

enum status sequence_turn(struct sequence_slot *item, const struct turn_request *r, int priority,
                          struct turn_reader *reader, struct error *err)
{
    struct sequence *s = item->sequence;
    struct conversation *c;
    enum status rc = check_model(s, err);

    assert(sequence_slot_is_first(item));
    if (rc == STATUS_OK)
        rc = conversation_of(&c, s, priority, err);
    return rc == STATUS_OK ? conversation_turn(c, r, reader, err) : rc;
}

enum status sequence_step(struct sequence_slot *item, struct step_request *r, struct arena *arena,
                          struct step_wait *w, struct error *err)
{
    struct sequence *s = item->sequence;
    struct step_reply *stored;
    char id[ENV_ID_SIZE];
    enum status rc = check_model(s, err);

    assert(sequence_slot_is_first(item));
    if (rc != STATUS_OK)
        return rc;
    env_id(s, id);
    r->principal = s->principal;
    r->model = s->model;
    r->env_id = id;
    r->run_id = s->run;
    r->seq = 1;
    r->is_next = s->has_session;
    rc = sessions_step(s->all->config.sessions, r, arena, w, &stored, err);
    if (rc != STATUS_OK)
        return rc;
    assert(stored == NULL); /* is_next: it has no stored reply */
    s->has_session = true;
    return STATUS_OK;
}

/* --- the end --- */

void sequences_tick(void *sequences)
{
    struct sequences *all = sequences;
    uint64_t now_us = env_now_us(all->config.env);
    uint64_t idle_us = all->config.idle_ms * 1000;
    struct link *l;

    while ((l = list_first(&all->idle)) != NULL) {
        struct sequence *s = container_of(l, struct sequence, link);

        if (s->idle_since_us + idle_us > now_us) {
            alarm_set(all->config.alarm, s->idle_since_us + idle_us);
            return;
        }
        sequences_remember(all, s->by_key.hash);
        sequence_take_out(s);
        close_sequence(s, WATCH_EXPIRED, "its sequence was idle for too long");
    }
}

void sequences_retire(struct sequences *all, const struct model *model)
{
    struct hash_node *node, *next;

    for (node = hash_each(&all->by_key, NULL); node != NULL; node = next) {
        struct sequence *s = sequence_of(node);

        next = hash_each(&all->by_key, node);
        if (model == NULL || s->model == model)
            retire(s);
    }
    for (struct link *l = list_first(&all->retired); l != NULL; l = list_next(&all->retired, l)) {
        struct sequence *s = container_of(l, struct sequence, link);

        if (model == NULL || s->model == model)
            s->model = NULL;
    }
}
