/* The chat service in the journal: writing. Changes become records in a queue, in the order in
 * which they have happened; one transaction is in flight at a time, and has the records of whole
 * turns where these are not too many. What a kill tears apart, restore.c mends: nobody was told of
 * it.
 *
 * Failures: the records stay in the queue, and are written again, in their order, until that
 * succeeds. Meanwhile nobody is told anything, but that what it says is not taken; and the turn
 * does not end, so a thing that changes again and again is written once. The same holds while too
 * many bytes wait to be written. */
#include "server/service/keeping.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alarm.h"
#include "base/alloc.h"
#include "base/env.h"
#include "base/log.h"
#include "server/journal/keeper.h"
#include "server/service/service.h"
#include "server/service/world.h"

enum { SERVICE_KEY_BYTES = 96 };

/* A record that is to be written. */
struct service_record {
    struct link link;
    uint64_t turn;
    char key[SERVICE_KEY_BYTES];
    size_t size_bytes; /* 0: the journal is to forget what has the key */
    unsigned char body[];
};

/* NULL where nothing is kept. */
static struct service_keeping *service_keeper(const struct chat_service *s)
{
    return s->keeping == NULL || s->keeping->is_over ? NULL : s->keeping;
}

/* --- times --- */

uint64_t service_keeping_unix_ms(const struct chat_service *s, uint64_t us)
{
    return s->keeping->storage.unix_ms() - (env_now_us(s->config.env) - us) / 1000;
}

uint64_t service_keeping_us(const struct chat_service *s, uint64_t unix_ms)
{
    const uint64_t now_ms = s->keeping->storage.unix_ms(), now_us = env_now_us(s->config.env);
    const uint64_t since_ms = now_ms > unix_ms ? now_ms - unix_ms : 0;

    return since_ms >= now_us / 1000 ? 0 : now_us - since_ms * 1000;
}

/* --- names of things --- */

/* rest NULL: the thing itself. */
static void service_key_write(char out[SERVICE_KEY_BYTES], int what, const void *id, size_t id_len,
                              const uint32_t *number)
{
    const unsigned char *bytes = id;
    size_t at = (size_t)snprintf(out, SERVICE_KEY_BYTES, "%c/", what);

    for (size_t i = 0; i < id_len; i++)
        at += (size_t)snprintf(out + at, SERVICE_KEY_BYTES - at, "%02x", bytes[i]);
    if (number != NULL)
        (void)snprintf(out + at, SERVICE_KEY_BYTES - at, "/%010u", *number);
}

/* --- the queue --- */

static void service_queue(struct service_keeping *k, struct service_record *r)
{
    r->turn = k->turn;
    list_push(&k->queue, &r->link);
    k->queue_bytes += sizeof(*r) + r->size_bytes;
}

static void service_queue_pop(struct service_keeping *k)
{
    struct service_record *r = container_of(list_pop(&k->queue), struct service_record, link);

    k->queue_bytes -= sizeof(*r) + r->size_bytes;
    free(r);
}

/* Something is to be written that no turn may end with. */
static void service_queue_soon(struct service_keeping *k)
{
    alarm_by(k->service->config.alarm, env_now_us(k->service->config.env));
}

void service_unkeep(struct service_keeping *k, int what, const void *id, size_t id_len,
                    const uint32_t *number)
{
    struct service_record *r = xalloc(sizeof(*r));

    *r = (struct service_record){.size_bytes = 0};
    service_key_write(r->key, what, id, id_len, number);
    service_queue(k, r);
}

/* A thing that is being written into a record. */
struct service_thing {
    struct buf body;
    struct body_writer w;
};

static void service_thing_begin(struct service_thing *t, int what)
{
    const char sum[JOURNAL_SUM_BYTES] = {0};

    buf_init(&t->body, SERVICE_BODY_BYTES);
    t->w = (struct body_writer){.out = &t->body};
    t->w.has_failed = buf_append(&t->body, sum, sizeof(sum)) != STATUS_OK;
    body_put_u32(&t->w, SERVICE_BODY_VERSION);
    body_put_u32(&t->w, (uint32_t)what);
}

/* Ends t, whose record takes its place in the queue. */
static enum status service_thing_queue(struct service_thing *t, struct service_keeping *k, int what,
                                       const void *id, size_t id_len, const uint32_t *number,
                                       struct error *err)
{
    struct service_record *r = NULL;
    enum status rc = body_written(&t->w, err);

    if (rc == STATUS_OK && (r = try_alloc(1, sizeof(*r) + t->body.len)) == NULL)
        rc = error_no_memory(err, t->body.len, "what is kept of the chat service");
    if (rc == STATUS_OK) {
        journal_put_sum(t->body.data, t->body.len);
        memcpy(r->body, t->body.data, t->body.len);
        r->size_bytes = t->body.len;
        service_key_write(r->key, what, id, id_len, number);
        service_queue(k, r);
    }
    buf_deinit(&t->body);
    return rc;
}

/* --- people --- */

void service_user_changed(struct service_user *u)
{
    struct service_keeping *k = service_keeper(u->service);

    if (k != NULL && u->has_id && !link_is_on(&u->changed) && u->state != SERVICE_GONE &&
        (u->is_kept || u->state != SERVICE_NEW))
        list_push(&k->users, &u->changed);
}

void service_message_unkeep(struct service_user *u, struct service_message *m)
{
    struct service_keeping *k = service_keeper(u->service);

    if (k == NULL || !m->is_kept)
        return;
    m->is_kept = false;
    service_unkeep(k, SERVICE_OF_MESSAGE, u->proof, sizeof(u->proof), &m->number);
    service_queue_soon(k);
}

void service_user_unkeep(struct service_user *u)
{
    struct service_keeping *k = service_keeper(u->service);

    if (link_is_on(&u->changed))
        list_remove(&u->changed);
    if (link_is_on(&u->holding))
        list_remove(&u->holding);
    if (k == NULL || !u->is_kept)
        return;
    u->is_kept = false;
    service_unkeep(k, SERVICE_OF_USER, u->proof, sizeof(u->proof), NULL);
}

static const char *service_user_pool_name(const struct service_user *u)
{
    return u->pool == NULL ? "" : u->pool->plan->name;
}

static enum status service_user_queue(struct service_user *u, struct service_keeping *k,
                                      struct error *err)
{
    const bool is_task = u->state == SERVICE_TASK && u->scene != NULL;
    const bool is_form = u->state == SERVICE_FORM && u->scene != NULL;
    uint32_t n = 0;
    struct service_thing t;

    for (struct link *l = list_first(&u->answers); l != NULL; l = list_next(&u->answers, l))
        n++;
    service_thing_begin(&t, SERVICE_OF_USER);
    body_put_bytes(&t.w, u->proof, sizeof(u->proof));
    body_put_u32(&t.w, (uint32_t)u->state);
    body_put_text(&t.w, service_user_pool_name(u));
    body_put_u64(&t.w, service_keeping_unix_ms(k->service, u->since_us));
    body_put_u32(&t.w, !link_is_on(&u->unnoticed));
    body_put_u64(&t.w, u->place);
    body_put_u32(&t.w, is_form ? (uint32_t)u->scene->at : 0);
    body_put_u64(&t.w, is_form ? service_keeping_unix_ms(k->service, u->scene->said_us) : 0);
    body_put_u64(&t.w, is_task ? u->scene->id : 0);
    body_put_u32(&t.w, u->n_told);
    body_put_u32(&t.w, n);
    for (struct link *l = list_first(&u->answers); l != NULL; l = list_next(&u->answers, l)) {
        const struct service_answer *a = container_of(l, struct service_answer, link);

        body_put_text(&t.w, a->key);
        body_put_text(&t.w, a->value);
    }
    return service_thing_queue(&t, k, SERVICE_OF_USER, u->proof, sizeof(u->proof), NULL, err);
}

static enum status service_message_queue(const struct service_user *u,
                                         const struct service_message *m, struct service_keeping *k,
                                         struct error *err)
{
    struct service_thing t;

    service_thing_begin(&t, SERVICE_OF_MESSAGE);
    body_put_bytes(&t.w, u->proof, sizeof(u->proof));
    body_put_u32(&t.w, m->number);
    body_put_text(&t.w, m->text);
    body_put_text(&t.w, m->payload == NULL ? "" : m->payload);
    body_put_u32(&t.w, (uint32_t)m->n_quick_replies);
    for (size_t i = 0; i < m->n_quick_replies; i++)
        body_put_text(&t.w, m->quick_replies[i]);
    return service_thing_queue(&t, k, SERVICE_OF_MESSAGE, u->proof, sizeof(u->proof), &m->number,
                               err);
}

/* The person, and what it has not got yet. */
static enum status service_user_write(struct service_user *u, struct service_keeping *k,
                                      struct error *err)
{
    if (service_user_queue(u, k, err) != STATUS_OK)
        return err->status;
    u->is_kept = true;
    for (struct link *l = list_first(&u->untaken); l != NULL; l = list_next(&u->untaken, l)) {
        struct service_message *m = container_of(l, struct service_message, link);

        if (m->is_kept || m->number == 0)
            continue;
        if (service_message_queue(u, m, k, err) != STATUS_OK)
            return err->status;
        m->is_kept = true;
    }
    return STATUS_OK;
}

/* --- tasks --- */

static bool scene_is_kept(const struct scene *s)
{
    return s->script->world->kind == SCENE_TASK && service_keeper(s->service) != NULL;
}

void scene_changed(struct scene *s)
{
    if (scene_is_kept(s) && !link_is_on(&s->changed))
        list_push(&s->service->keeping->scenes, &s->changed);
}

void scene_unkeep(struct scene *s)
{
    struct service_keeping *k = service_keeper(s->service);

    if (scene_is_kept(s)) {
        scene_unkeep_heard(s, s->n_heard);
        for (uint32_t i = 1; i <= s->n_logged; i++)
            service_unkeep(k, SERVICE_OF_LINE, &s->id, sizeof(s->id), &i);
        service_unkeep(k, SERVICE_OF_TASK, &s->id, sizeof(s->id), NULL);
    }
    if (link_is_on(&s->changed)) /* last: each of these changes it */
        list_remove(&s->changed);
}

/* What a text costs when all is read again. */
static size_t scene_text_bytes(const char *name, const char *text)
{
    return sizeof(struct service_record) + (name == NULL ? 0 : strlen(name)) + strlen(text);
}

/* The bytes are limit's; *held counts the scene's. */
static enum status scene_queue_text(struct scene *s, int what, uint32_t number, const char *name,
                                    const char *text, bool is_new_group, struct shared_limit *limit,
                                    size_t *held, struct error *err)
{
    const size_t size = scene_text_bytes(name, text);
    struct service_thing t;

    if (shared_limit_check(limit, 0, size, err) != STATUS_OK)
        return err->status;
    service_thing_begin(&t, what);
    body_put_u64(&t.w, s->id);
    body_put_u32(&t.w, number);
    body_put_u32(&t.w, name != NULL);
    body_put_text(&t.w, name == NULL ? "" : name);
    body_put_text(&t.w, text);
    body_put_u32(&t.w, is_new_group);
    if (service_thing_queue(&t, s->service->keeping, what, &s->id, sizeof(s->id), &number, err) !=
        STATUS_OK)
        return err->status;
    shared_limit_hold(limit, 0, size);
    *held += size;
    return STATUS_OK;
}

void scene_hold_line(struct scene *s, const char *name, const char *text)
{
    const size_t size = scene_text_bytes(name, text);

    shared_limit_hold(&s->service->log_bytes, 0, size);
    s->log_bytes += size;
}

void scene_hold_heard(struct scene *s, uint32_t number, const char *name, const char *text)
{
    const size_t size = scene_text_bytes(name, text);

    shared_limit_hold(&s->service->heard_bytes, 0, size);
    s->heard_bytes += size;
    s->restored_bytes += size;
    if (s->is_asked && number <= s->asked)
        s->asked_bytes += size;
}

void scene_keep_line(struct scene *s, const char *name, const char *text, bool is_new_group)
{
    struct error err;

    if (!scene_is_kept(s))
        return;
    if (scene_queue_text(s, SERVICE_OF_LINE, s->n_logged + 1, name, text, is_new_group,
                         &s->service->log_bytes, &s->log_bytes, &err) == STATUS_OK)
        s->n_logged++;
    else
        s->is_log_cut = true;
    scene_changed(s);
}

enum status scene_keep_heard(struct scene *s, const char *name, const char *text, struct error *err)
{
    if (!scene_is_kept(s))
        return STATUS_OK;
    if (scene_queue_text(s, SERVICE_OF_HEARD, s->n_heard + 1, name, text, false,
                         &s->service->heard_bytes, &s->heard_bytes, err) != STATUS_OK)
        return err->status;
    s->n_heard++;
    scene_changed(s);
    return STATUS_OK;
}

void scene_unkeep_heard(struct scene *s, uint32_t number)
{
    const size_t size = number == s->n_heard ? s->heard_bytes : s->asked_bytes;

    if (!scene_is_kept(s))
        return;
    shared_limit_give(&s->service->heard_bytes, 0, size);
    s->heard_bytes -= size;
    s->asked_bytes = 0;
    for (uint32_t i = s->answered + 1; i <= number; i++)
        service_unkeep(s->service->keeping, SERVICE_OF_HEARD, &s->id, sizeof(s->id), &i);
    if (number > s->answered)
        s->answered = number;
    scene_changed(s);
}

static enum status scene_write(struct scene *s, struct service_keeping *k, struct error *err)
{
    struct service_thing t;

    service_thing_begin(&t, SERVICE_OF_TASK);
    body_put_u64(&t.w, s->id);
    body_put_text(&t.w, s->pool->plan->name);
    body_put_u64(&t.w, service_keeping_unix_ms(k->service, s->said_us));
    body_put_u32(&t.w, s->n_said);
    body_put_u32(&t.w, s->is_asked);
    body_put_u32(&t.w, s->is_due);
    body_put_u64(&t.w, s->spoken);
    body_put_u32(&t.w, s->is_log_cut);
    body_put_u32(&t.w, s->n_logged);
    body_put_u32(&t.w, s->n_heard);
    body_put_u32(&t.w, s->answered);
    body_put_u32(&t.w, s->asked);
    body_put_u32(&t.w, (uint32_t)s->at);
    body_put_u32(&t.w, (uint32_t)s->n_people);
    for (size_t i = 0; i < s->n_people; i++) {
        body_put_bytes(&t.w, s->people[i]->proof, s->people[i]->has_id ? SHA256_BYTES : 0);
        body_put_text(&t.w, s->people[i]->role);
    }
    body_put_u32(&t.w, s->agent != NULL);
    if (s->agent != NULL)
        k->service->config.agents->keep(s->agent, &t.w);
    return service_thing_queue(&t, k, SERVICE_OF_TASK, &s->id, sizeof(s->id), NULL, err);
}

/* --- messages --- */

bool service_message_waits(struct service_user *u, struct service_message *m)
{
    struct service_keeping *k = service_keeper(u->service);

    m->number = ++u->n_told;
    if (k == NULL)
        return false;
    m->turn = k->turn;
    if (!link_is_on(&u->holding))
        list_push(&k->holding, &u->holding);
    if (u->peer == NULL || (u->scene != NULL && link_is_on(&u->scene->changed)))
        service_user_changed(u); /* the message is kept with what it follows from */
    return true;
}

bool service_message_is_due(const struct service_user *u, const struct service_message *m)
{
    const struct service_keeping *k = u->service->keeping;

    return k == NULL || m->turn <= k->written_turn;
}

void service_place_tell(struct service_user *u)
{
    struct service_keeping *k = service_keeper(u->service);

    if (u->peer == NULL || !u->peer->is_watching)
        return;
    if (service_place_is_due(u))
        u->peer->notify(u->peer);
    else if (!link_is_on(&u->holding))
        list_push(&k->holding, &u->holding);
}

void service_user_moved(struct service_user *u)
{
    struct service_keeping *k = service_keeper(u->service);

    u->moved_turn = k == NULL ? 0 : k->turn;
    service_place_tell(u);
}

bool service_place_is_due(const struct service_user *u)
{
    const struct service_keeping *k = service_keeper(u->service);

    return k == NULL || u->moved_turn <= k->written_turn;
}

static void service_tell_agents(struct service_keeping *k, uint64_t turn)
{
    const struct service_config *config = &k->service->config;

    config->agents->written(config->agents_self, turn);
}

/* What was told in these turns, people get now. */
static void service_release(struct service_keeping *k, uint64_t turn)
{
    struct list now;
    struct link *l;

    if (turn <= k->written_turn)
        return;
    k->written_turn = turn;
    service_tell_agents(k, turn);
    list_init(&now);
    list_move(&k->holding, &now);
    while ((l = list_pop(&now)) != NULL) {
        struct service_user *u = container_of(l, struct service_user, holding);
        const struct service_message *last =
            list_is_empty(&u->untaken)
                ? NULL
                : container_of(list_last(&u->untaken), struct service_message, link);

        if ((last != NULL && last->turn > turn) || u->moved_turn > turn)
            list_push(&k->holding, &u->holding);
        if (u->peer != NULL && (last != NULL || u->peer->is_watching))
            u->peer->notify(u->peer);
    }
}

/* --- writing --- */

static void service_write(struct service_keeping *k);

static void service_write_later(struct service_keeping *k, const struct error *err)
{
    if (k->again_us == 0)
        log_error("service", "the journal cannot be written: error=\"%s\"", err->text);
    k->n_writing = 0;
    k->again_us = env_now_us(k->service->config.env) + SERVICE_RETRY_MS * (uint64_t)1000;
    alarm_by(k->service->config.alarm, k->again_us);
}

static void on_service_written(void *arg, const struct error *err)
{
    struct service_keeping *k = arg;
    const struct link *first;

    if (k->is_over)
        return;
    if (k->n_strays > 0) { /* writes end in their order */
        k->n_strays--;
        return;
    }
    if (err->status != STATUS_OK) {
        service_write_later(k, err);
        return;
    }
    if (k->again_us != 0)
        log_info("service", "the journal can be written again");
    k->again_us = 0;
    for (; k->n_writing > 0; k->n_writing--)
        service_queue_pop(k);
    first = list_first(&k->queue);
    service_release(
        k, (first == NULL ? k->turn : container_of(first, struct service_record, link)->turn) - 1);
    service_keeping_settle(k->service); /* what has changed meanwhile comes next */
}

static enum status service_record_append(struct service_keeping *k, const struct service_record *r,
                                         journal_done_fn done, struct error *err)
{
    struct journal_record of = {
        .kind = r->size_bytes == 0 ? JOURNAL_FORGET : JOURNAL_KEEP,
        .generation = KEEPER_SERVICE,
        .unix_ms = k->storage.unix_ms(),
        .principal = "",
        .name = r->key,
        .body = r->body,
        .size_bytes = r->size_bytes,
        .owner_epoch = k->epoch,
    };
    const struct env *env = k->service->config.env;

    env->random(env->self, of.conversation, sizeof(of.conversation));
    return journal_append(k->storage.journal, &of, done, k, err);
}

/* How many of the first records are written at once: those of whole turns, if that is possible. */
static size_t service_n_next(const struct service_keeping *k)
{
    const uint64_t *turn = NULL;
    size_t n = 0, n_whole = 0;

    for (struct link *l = list_first(&k->queue); l != NULL; l = list_next(&k->queue, l)) {
        const struct service_record *r = container_of(l, struct service_record, link);

        if (turn != NULL && *turn != r->turn)
            n_whole = n;
        if (n == JOURNAL_MAX_HELD)
            return n_whole > 0 ? n_whole : n;
        turn = &r->turn;
        n++;
    }
    return n;
}

/* All of them, or none; the last one's end is that of all. */
static enum status service_append(struct service_keeping *k, size_t n, struct error *err)
{
    struct link *l = list_first(&k->queue);

    for (size_t i = 0; i < n; i++, l = list_next(&k->queue, l))
        if (service_record_append(k, container_of(l, struct service_record, link),
                                  i + 1 == n ? on_service_written : NULL, err) != STATUS_OK)
            return err->status;
    return STATUS_OK;
}

/* Writes what comes next, unless a transaction is in flight, or one has just failed. */
static void service_write(struct service_keeping *k)
{
    const size_t n = service_n_next(k);
    struct error err;

    if (k->n_writing > 0 || k->again_us > env_now_us(k->service->config.env))
        return;
    if (n == 0) {
        service_release(k, k->turn - 1);
        return;
    }
    journal_hold(k->storage.journal);
    if (service_append(k, n, &err) != STATUS_OK) {
        journal_drop(k->storage.journal);
        service_write_later(k, &err);
        return;
    }
    journal_release(k->storage.journal);
    k->n_writing = n;
}

/* Without memory the person is removed, and a task fails, which may change more of them. */
static void service_queue_changed(struct service_keeping *k)
{
    struct error err;
    struct link *l;

    while (!list_is_empty(&k->scenes) || !list_is_empty(&k->users)) {
        while ((l = list_pop(&k->scenes)) != NULL) {
            struct scene *s = container_of(l, struct scene, changed);

            if (scene_write(s, k, &err) != STATUS_OK)
                scene_fail(s, &err);
        }
        while ((l = list_pop(&k->users)) != NULL) {
            struct service_user *u = container_of(l, struct service_user, changed);

            if (!link_is_on(&u->doomed) && service_user_write(u, k, &err) != STATUS_OK)
                service_user_doom(u, SERVICE_END_MEMORY);
        }
    }
    if (!list_is_empty(&k->service->doomed))
        service_queue_soon(k);
}

void service_keeping_settle(struct chat_service *s)
{
    struct service_keeping *k = service_keeper(s);

    if (k == NULL)
        return;
    if (!service_keeping_is_failing(s)) {
        service_queue_changed(k);
        k->turn++;
    }
    service_write(k);
}

bool service_keeping_is_failing(const struct chat_service *s)
{
    const struct service_keeping *k = service_keeper(s);

    return k != NULL && (k->again_us != 0 || k->queue_bytes >= SERVICE_QUEUE_MAX_BYTES);
}

uint64_t service_keeping_next_us(const struct chat_service *s)
{
    const struct service_keeping *k = service_keeper(s);

    if (k == NULL)
        return UINT64_MAX;
    if (!list_is_empty(&s->doomed))
        return env_now_us(s->config.env);
    return k->again_us == 0 || k->n_writing > 0 ? UINT64_MAX : k->again_us;
}

/* --- life --- */

void service_keep(struct chat_service *s, const struct service_storage *storage)
{
    struct service_keeping *k;

    if (s->config.plan == NULL || storage->journal == NULL)
        return;
    k = xalloc(sizeof(*k));
    *k = (struct service_keeping){.service = s, .storage = *storage, .turn = 1};
    list_init(&k->users);
    list_init(&k->scenes);
    list_init(&k->queue);
    list_init(&k->holding);
    s->keeping = k;
    service_restore_ask(k);
}

void service_keeping_leave(struct chat_service *s)
{
    struct service_keeping *k = s->keeping;

    service_restore_leave(k);
    while (!list_is_empty(&k->queue))
        service_queue_pop(k);
    k->n_strays += k->n_writing > 0;
    k->n_writing = 0;
    k->again_us = 0;
    k->is_over = true;
}

void service_keeping_return(struct chat_service *s)
{
    s->keeping->is_over = false;
    service_restore_ask(s->keeping);
}

void service_keeping_end(struct chat_service *s)
{
    struct service_keeping *k = service_keeper(s);
    enum status rc = STATUS_OK;
    struct error err;

    if (k == NULL)
        return;
    service_restore_leave(k);
    for (struct link *l = list_first(&s->users); l != NULL; l = list_next(&s->users, l)) {
        struct service_user *u = container_of(l, struct service_user, link);

        if (!list_is_empty(&u->untaken))
            service_user_changed(u);
    }
    service_queue_changed(k);
    for (struct link *l = list_first(&k->queue); l != NULL && rc == STATUS_OK;
         l = list_next(&k->queue, l)) {
        if (k->n_writing > 0) /* it was appended */
            k->n_writing--;
        else
            rc = service_record_append(k, container_of(l, struct service_record, link), NULL, &err);
    }
    if (rc == STATUS_OK)
        service_tell_agents(k, k->turn);
    else
        log_error("service", "not all was kept: error=\"%s\"", err.text);
    while (!list_is_empty(&k->queue))
        service_queue_pop(k);
    k->is_over = true;
}

void service_keeping_close(struct chat_service *s)
{
    free(s->keeping);
    s->keeping = NULL;
}
