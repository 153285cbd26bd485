/* The chat service in the journal: reading. All of it is read at the start, in passes: people,
 * tasks with them, what people have not got yet, the tasks' logs, what their agents have heard.
 * Then what does not fit together, since a kill came between or the plan has changed, is mended:
 * who is nowhere is in the menu, who has no secret or is gone has left its task. Deadlines are
 * times of the wall clock, so they go on while no process is there; the grace of people begins
 * anew. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alarm.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "base/env.h"
#include "base/log.h"
#include "server/journal/keeper.h"
#include "server/service/keeping.h"
#include "server/service/service.h"
#include "server/service/world.h"

struct service_restore {
    struct service_keeping *keeping;
    struct journal_wait wait;
    uint64_t again_us; /* when the journal is asked again; 0: it is being asked */
};

/* A person as it was stored. */
struct restored_user {
    struct service_user *user;
    struct service_pool *pool; /* NULL: none, or it is not in the plan any more */
    enum service_state state;
    bool is_noticed;
    uint32_t form_at;
    uint64_t since_us, said_us, task;
};

/* A task as it was stored. */
struct restored_task {
    uint64_t id;
    struct scene *scene;  /* NULL: nobody is in it any more */
    struct error *failed; /* NULL: it can go on */
    bool has_gone_on;     /* its agent has */
    size_t n_lost;
    char (*lost)[4 * SERVICE_NAME_MAX_CHARS + 1]; /* [n_lost] names of those who are gone */
};

/* All that is being made of what was read. */
struct restored {
    struct chat_service *service;
    struct restored_user *users; /* [n_users] */
    struct restored_task *tasks; /* [n_tasks] by id, once all are read */
    size_t n_users, n_tasks;
};

typedef enum status (*restore_fn)(struct restored *all, struct body_reader *body,
                                  struct error *err);

/* --- people --- */

static struct service_pool *restored_pool(struct chat_service *s, const char *name)
{
    const size_t at = service_plan_find(s->config.plan, name);

    return at == SIZE_MAX ? NULL : &s->pools[at];
}

static enum status restored_proof(const uint8_t **out, struct body_reader *body, struct error *err)
{
    size_t len;

    *out = body_take_bytes(body, &len);
    return len == SHA256_BYTES ? STATUS_OK
                               : error_set(err, STATUS_DATA_LOSS, "a stored person has no secret");
}

static enum status restore_user(struct restored *all, struct body_reader *body, struct error *err)
{
    struct chat_service *s = all->service;
    struct restored_user *r = &all->users[all->n_users];
    struct service_user *u;
    const uint8_t *proof;
    uint64_t place;
    uint32_t n_told;

    if (restored_proof(&proof, body, err) != STATUS_OK)
        return err->status;
    r->state = (enum service_state)body_take_up_to(body, SERVICE_TASK);
    r->pool = restored_pool(s, body_take_text(body));
    r->since_us = service_keeping_us(s, body_take_u64(body));
    r->is_noticed = body_take_up_to(body, 1) != 0;
    place = body_take_u64(body);
    r->form_at = body_take_u32(body);
    r->said_us = service_keeping_us(s, body_take_u64(body));
    r->task = body_take_u64(body);
    n_told = body_take_u32(body);
    if (service_user_open(&u, s, proof, err) != STATUS_OK)
        return err->status;
    r->user = u;
    u->restored = r;
    u->is_kept = true;
    u->place = place;
    u->n_told = n_told;
    u->is_admitted = r->state != SERVICE_NEW;
    all->n_users++;
    if (place > s->n_places)
        s->n_places = place;
    for (uint32_t n = body_take_u32(body); n > 0 && !body->is_bad && !body->is_short; n--) {
        const char *key = body_take_text(body), *value = body_take_text(body);

        service_user_keep(u, key, value);
    }
    return body_end(body, err);
}

/* Earlier versions told more than a socket takes, which cut the person off at each return. */
static bool restored_is_too_large(const char *text, const char *payload, const char *const *quick,
                                  size_t n)
{
    return service_message_size_bytes(text, payload, quick, n) >
           service_message_size_bytes("", NULL, NULL, 0) + SERVICE_TOLD_MAX_BYTES;
}

static enum status restore_untaken(struct restored *all, struct body_reader *body,
                                   struct error *err)
{
    struct chat_service *s = all->service;
    const char *text, *payload, **quick;
    struct service_user *u;
    const uint8_t *proof;
    uint32_t number, n, n_told;

    if (restored_proof(&proof, body, err) != STATUS_OK)
        return err->status;
    number = body_take_u32(body);
    text = body_take_text(body);
    payload = body_take_text(body);
    n = body_take_up_to(body, SERVICE_MAX_POOLS + 1);
    quick = body_take_array(body, n, sizeof(quick[0]), 4);
    for (uint32_t i = 0; quick != NULL && i < n; i++)
        quick[i] = body_take_text(body);
    if (body_end(body, err) != STATUS_OK)
        return err->status;
    u = service_find_proof(s, proof);
    if (u == NULL || number == 0) {
        service_unkeep(s->keeping, SERVICE_OF_MESSAGE, proof, SHA256_BYTES, &number);
        return STATUS_OK;
    }
    if (payload[0] == '\0')
        payload = NULL;
    if (restored_is_too_large(text, payload, quick, n)) {
        service_unkeep(s->keeping, SERVICE_OF_MESSAGE, proof, SHA256_BYTES, &number);
        return error_set(err, STATUS_RANGE, "a stored message has more than %d bytes",
                         SERVICE_TOLD_MAX_BYTES);
    }
    n_told = u->n_told;
    u->n_told = number - 1;
    service_user_tell(u, text, payload, quick, n);
    if (!list_is_empty(&u->untaken)) /* else the person is removed, and the message with it */
        container_of(list_last(&u->untaken), struct service_message, link)->is_kept = true;
    if (u->n_told < n_told)
        u->n_told = n_told;
    return STATUS_OK;
}

/* --- tasks --- */

static enum status restored_task_lose(struct restored_task *t, const char *name, struct error *err)
{
    if (t->lost == NULL)
        t->lost = try_alloc(SERVICE_MAX_PEOPLE, sizeof(t->lost[0]));
    if (t->lost == NULL)
        return error_no_memory(err, sizeof(t->lost[0]), "a stored task");
    (void)snprintf(t->lost[t->n_lost++], sizeof(t->lost[0]), "%s", name);
    return STATUS_OK;
}

/* Finds those of the task's people that are there, and the names of the others. */
static enum status restored_people(struct service_user **out, size_t *ret_n,
                                   struct restored_task *t, const struct chat_service *s,
                                   struct body_reader *body, struct error *err)
{
    size_t n = 0;

    for (uint32_t left = body_take_up_to(body, SERVICE_MAX_PEOPLE); left > 0; left--) {
        size_t len;
        const uint8_t *proof = body_take_bytes(body, &len);
        const char *role = body_take_text(body);
        struct service_user *u = len == SHA256_BYTES ? service_find_proof(s, proof) : NULL;

        if (u != NULL && u->restored->state == SERVICE_TASK && u->restored->task == t->id) {
            (void)snprintf(u->role, sizeof(u->role), "%s", role);
            u->restored->task = 0; /* a person is in a task once */
            out[n++] = u;
        } else if (restored_task_lose(t, role, err) != STATUS_OK) {
            return err->status;
        }
    }
    *ret_n = n;
    return STATUS_OK;
}

/* The numbers of a task. */
struct restored_scene {
    struct service_pool *pool;
    uint64_t said_us, spoken;
    uint32_t n_said, n_logged, n_heard, answered, asked, at;
    bool is_asked, is_due, is_log_cut;
};

static void restored_scene_read(struct restored_scene *out, struct chat_service *s,
                                struct body_reader *body)
{
    out->pool = restored_pool(s, body_take_text(body));
    out->said_us = service_keeping_us(s, body_take_u64(body));
    out->n_said = body_take_u32(body);
    out->is_asked = body_take_up_to(body, 1) != 0;
    out->is_due = body_take_up_to(body, 1) != 0;
    out->spoken = body_take_u64(body);
    out->is_log_cut = body_take_up_to(body, 1) != 0;
    out->n_logged = body_take_u32(body);
    out->n_heard = body_take_u32(body);
    out->answered = body_take_u32(body);
    out->asked = body_take_u32(body);
    out->at = body->version < 2 ? 0 : body_take_up_to(body, SERVICE_MAX_PEOPLE);
}

static enum status restored_scene_open(struct scene **out, const struct restored_scene *of,
                                       struct service_user *const *people, size_t n,
                                       struct error *err)
{
    struct service_pool *pool = of->pool;
    struct scene *s;

    if (!scene_open(&s, people[0]->service, &pool->plan->task, pool, people, n))
        return error_no_memory(err, sizeof(*s), "a stored task");
    scene_set_said(s, of->said_us);
    s->spoken = of->spoken;
    s->n_said = of->n_said;
    s->n_heard = of->n_heard;
    s->answered = of->answered;
    s->asked = of->asked;
    s->at = of->at;
    s->restored = of->n_heard;
    s->is_asked = of->is_asked;
    s->is_due = of->is_due;
    s->is_log_cut = of->is_log_cut;
    s->n_logged = of->n_logged;
    for (size_t i = 0; i < n; i++) {
        people[i]->state = SERVICE_TASK;
        people[i]->pool = pool;
    }
    *out = s;
    return STATUS_OK;
}

static enum status restored_agent(struct scene *s, struct body_reader *body, struct error *err)
{
    const struct service_config *config = &s->service->config;
    const bool has_agent = body_take_up_to(body, 1) != 0;

    if (has_agent && !s->script->world->has_agent)
        config->agents->forget(config->agents_self, body);
    if (has_agent != s->script->world->has_agent)
        return error_set(err, STATUS_PRECONDITION, "the plan of the task has changed");
    if (!has_agent)
        return body_end(body, err);
    return config->agents->restore(config->agents_self, &s->agent, s, s->pool->plan, body, err);
}

/* A task that cannot go on fails in the end, when its log and what its people were told are there.
 */
static enum status restore_task(struct restored *all, struct body_reader *body, struct error *err)
{
    const struct service_config *config = &all->service->config;
    struct service_user *people[SERVICE_MAX_PEOPLE];
    struct restored_task *t = &all->tasks[all->n_tasks];
    struct restored_scene of;
    struct scene *s = NULL;
    size_t n = 0;

    t->id = body_take_u64(body);
    restored_scene_read(&of, all->service, body);
    if (restored_people(people, &n, t, all->service, body, err) != STATUS_OK)
        return err->status;
    all->n_tasks++;
    if (of.pool == NULL || n == 0) {
        if (body_take_up_to(body, 1) != 0)
            config->agents->forget(config->agents_self, body);
        service_unkeep(all->service->keeping, SERVICE_OF_TASK, &t->id, sizeof(t->id), NULL);
        return STATUS_OK;
    }
    if (restored_scene_open(&s, &of, people, n, err) != STATUS_OK)
        return err->status;
    s->id = t->id;
    t->scene = s;
    if (scene_open_log(s, err) != STATUS_OK || restored_agent(s, body, err) != STATUS_OK) {
        t->failed = xalloc(sizeof(*t->failed));
        *t->failed = *err;
    }
    return STATUS_OK;
}

static int restored_task_order(const void *a, const void *b)
{
    const uint64_t x = ((const struct restored_task *)a)->id;
    const uint64_t y = ((const struct restored_task *)b)->id;

    return x < y ? -1 : x > y;
}

/* A line of a task's log, or a text that its agent has heard. */
struct restored_text {
    struct restored_task *task; /* NULL: it is gone */
    uint32_t number;
    const char *name, *text; /* name NULL: none */
    bool is_new_group;
};

static enum status restored_text_read(struct restored_text *out, struct restored *all, int what,
                                      struct body_reader *body, struct error *err)
{
    struct restored_task key = {.id = body_take_u64(body)};
    bool has_name;

    out->number = body_take_u32(body);
    has_name = body_take_up_to(body, 1) != 0;
    out->name = body_take_text(body);
    if (!has_name)
        out->name = NULL;
    out->text = body_take_text(body);
    out->is_new_group = body_take_up_to(body, 1) != 0;
    if (body_end(body, err) != STATUS_OK)
        return err->status;
    out->task = all->n_tasks == 0
                    ? NULL
                    : bsearch(&key, all->tasks, all->n_tasks, sizeof(key), restored_task_order);
    if (out->task != NULL && out->task->scene == NULL)
        out->task = NULL;
    if (out->task == NULL)
        service_unkeep(all->service->keeping, what, &key.id, sizeof(key.id), &out->number);
    return STATUS_OK;
}

static enum status restore_line(struct restored *all, struct body_reader *body, struct error *err)
{
    struct restored_text t;

    if (restored_text_read(&t, all, SERVICE_OF_LINE, body, err) != STATUS_OK)
        return err->status;
    if (t.task == NULL)
        return STATUS_OK;
    scene_hold_line(t.task->scene, t.name, t.text);
    if (t.task->scene->log != NULL)
        (void)scene_log_act(t.task->scene, t.name, t.text, t.is_new_group); /* or it is cut */
    return STATUS_OK;
}

static void restored_task_go_on(struct restored_task *t)
{
    const struct scene *s = t->scene;

    if (s == NULL || s->agent == NULL || t->has_gone_on)
        return;
    t->has_gone_on = true;
    s->service->config.agents->go_on(s->agent, s->is_asked);
}

/* What the agent was asked comes before what was said while it answered. */
static enum status restore_heard(struct restored *all, struct body_reader *body, struct error *err)
{
    struct restored_text t;
    struct scene *s;

    if (restored_text_read(&t, all, SERVICE_OF_HEARD, body, err) != STATUS_OK)
        return err->status;
    if (t.task == NULL || (s = t.task->scene)->agent == NULL)
        return STATUS_OK;
    if (s->is_asked && t.number > s->asked)
        restored_task_go_on(t.task);
    if (t.number <= s->answered) {
        service_unkeep(all->service->keeping, SERVICE_OF_HEARD, &s->id, sizeof(s->id), &t.number);
        return STATUS_OK;
    }
    scene_hold_heard(s, t.number, t.name, t.text);
    return s->service->config.agents->hear(s->agent, t.name, t.text, err);
}

/* --- all of it --- */

static void restored_user_place(struct restored_user *r)
{
    struct service_user *u = r->user;
    struct chat_service *service = u->service;
    struct scene *s = NULL;

    service_user_go_away(u);
    u->restored = NULL;
    if (u->scene != NULL || r->state == SERVICE_NEW) /* in its task, or nowhere */
        return;
    if (r->state == SERVICE_WAITING && r->pool != NULL) {
        u->state = SERVICE_WAITING;
        u->pool = r->pool;
        u->since_us = r->since_us;
        service_user_wait(u, r->is_noticed);
        return;
    }
    if (r->state == SERVICE_MENU &&
        scene_open(&s, service, &service->config.plan->menu, NULL, &u, 1)) {
        u->state = SERVICE_MENU;
        return;
    }
    if (r->state == SERVICE_FORM && r->pool != NULL && r->pool->plan->onboarding.world != NULL &&
        r->form_at < r->pool->plan->onboarding.n_questions &&
        scene_open(&s, service, &r->pool->plan->onboarding, r->pool, &u, 1)) {
        u->state = SERVICE_FORM;
        u->pool = r->pool;
        s->at = r->form_at;
        scene_set_said(s, r->said_us);
        return;
    }
    service_user_start_again(u);
}

/* In the order of deadlines. Times before the machine's start, or of a wall clock that was set back
 * since, are all one: the order of coming tells. */
static int restored_user_order(const void *a, const void *b)
{
    const struct restored_user *x = a, *y = b;

    if (x->since_us != y->since_us)
        return x->since_us < y->since_us ? -1 : 1;
    return x->user->place < y->user->place ? -1 : x->user->place > y->user->place;
}

/* Whether e is a thing of this kind that can be read. */
static bool stored_begin(struct body_reader *out, const struct journal_event *e, int what,
                         struct arena *arena)
{
    if (!journal_sum_is_right(e->body, e->size_bytes))
        return false;
    *out = body_begin(e->body + JOURNAL_SUM_BYTES, e->size_bytes - JOURNAL_SUM_BYTES,
                      SERVICE_BODY_VERSION, arena);
    return body_take_u32(out) == (uint32_t)what;
}

static void stored_pass(struct restored *all, const struct journal_found *found, int what,
                        restore_fn restore)
{
    for (struct link *l = list_first(&found->events); l != NULL; l = list_next(&found->events, l)) {
        struct body_reader body;
        struct arena arena;
        struct error err;

        arena_init(&arena, 2 * SERVICE_BODY_BYTES);
        if (stored_begin(&body, container_of(l, struct journal_event, link), what, &arena) &&
            restore(all, &body, &err) != STATUS_OK)
            log_error("restore", "service error=\"%s\"", err.text);
        arena_deinit(&arena);
    }
}

static void restored_tasks_end(struct restored *all)
{
    for (size_t i = 0; i < all->n_tasks; i++) {
        struct restored_task *t = &all->tasks[i];

        restored_task_go_on(t);
        if (t->failed != NULL) {
            scene_fail(t->scene, t->failed);
            t->scene = NULL;
        }
        free(t->failed);
        for (size_t n = 0; n < t->n_lost && t->scene != NULL; n++)
            if (!scene_lost(t->scene, t->lost[n]))
                t->scene = NULL;
        free(t->lost);
    }
}

static void service_restored(struct service_keeping *k, const struct journal_found *found)
{
    struct chat_service *s = k->service;
    struct restored all = {.service = s};
    size_t n = 1;

    for (struct link *l = list_first(&found->events); l != NULL; l = list_next(&found->events, l))
        n++;
    all.users = xalloc(n * sizeof(all.users[0]));
    all.tasks = xalloc(n * sizeof(all.tasks[0]));
    stored_pass(&all, found, SERVICE_OF_USER, restore_user);
    stored_pass(&all, found, SERVICE_OF_TASK, restore_task);
    stored_pass(&all, found, SERVICE_OF_MESSAGE, restore_untaken);
    qsort(all.tasks, all.n_tasks, sizeof(all.tasks[0]), restored_task_order);
    stored_pass(&all, found, SERVICE_OF_LINE, restore_line);
    stored_pass(&all, found, SERVICE_OF_HEARD, restore_heard);
    qsort(all.users, all.n_users, sizeof(all.users[0]), restored_user_order);
    for (size_t i = 0; i < all.n_users; i++)
        restored_user_place(&all.users[i]);
    restored_tasks_end(&all);
    if (all.n_users > 0)
        log_info("restored", "people=%zu tasks=%zu", all.n_users, s->n_tasks);
    free(all.users);
    free(all.tasks);
}

static void on_service_found(void *arg, struct journal_found *found, const struct error *err)
{
    struct service_restore *restore = arg;
    struct service_keeping *k = restore->keeping;
    struct chat_service *s = k->service;

    if (err->status != STATUS_OK) { /* who was there is not known: nobody can come */
        log_error("restore", "service error=\"%s\"", err->text);
        restore->again_us = env_now_us(s->config.env) + SERVICE_RETRY_MS * (uint64_t)1000;
        alarm_by(s->config.alarm, restore->again_us);
        return;
    }
    if (k->storage.arrived != NULL && !k->storage.arrived(k->storage.self, found->owner_epoch))
        return; /* restore is gone */
    k->epoch = found->owner_epoch;
    service_restored(k, found);
    k->restore = NULL;
    free(restore);
    service_settle(s);
}

void service_restore_ask(struct service_keeping *k)
{
    const struct journal_query q = {.by = JOURNAL_KEPT, .number = KEEPER_SERVICE};

    if (k->restore == NULL) {
        k->restore = xalloc(sizeof(*k->restore));
        *k->restore = (struct service_restore){.keeping = k};
    }
    k->restore->again_us = 0;
    journal_read(k->storage.journal, &k->restore->wait, &q, on_service_found, k->restore);
}

void service_restore_again(struct service_keeping *k)
{
    const struct service_restore *restore = k->restore;

    if (restore == NULL || restore->again_us == 0 || k->is_over)
        return;
    if (restore->again_us > env_now_us(k->service->config.env))
        alarm_by(k->service->config.alarm, restore->again_us);
    else
        service_restore_ask(k);
}

void service_restore_leave(struct service_keeping *k)
{
    if (k->restore == NULL)
        return;
    journal_leave(&k->restore->wait);
    free(k->restore);
    k->restore = NULL;
}
