/* People, pools and scenes of the chat service. Each entry from outside (a text, a lost connection,
 * an agent's answer, the alarm) plays worlds until nothing more follows, then removes the people
 * that cannot go on, and sets the alarm.
 *
 * All who wait in a pool have the same time-out, so its list is in the order of their deadlines; so
 * are those who are away, and the scenes of a pool by when somebody spoke last. */
#include "server/service/service.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alarm.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "base/checksum.h"
#include "base/env.h"
#include "base/log.h"
#include "server/service/keeping.h"
#include "server/service/scene.h"
#include "server/service/user.h"
#include "server/service/world.h"
#include "server/telemetry/metric.h"

static const struct limit_kind kind_of_service_people = {"people of the chat service", NULL, NULL};
static const struct limit_kind kind_of_service_bytes = {"bytes of the chat service's messages",
                                                        NULL, NULL};
static const struct limit_kind kind_of_service_logs = {"bytes of the chat service's kept logs",
                                                       NULL, NULL};
static const struct limit_kind kind_of_service_heard = {"bytes of the chat service's heard texts",
                                                        NULL, NULL};

static const char wait_text[] = "Please wait while we pair you with another person. "
                                "If you wish to exit, type *EXIT*.";
static const char notice_text[] = "Pairing is taking longer than expected. "
                                  "If you wish to exit, type *EXIT*.";
static const char timeout_text[] = "Nobody was found to pair you with.";
static const char closed_text[] = "Sorry, this world closed. Returning to overworld.";
static const char password_text[] = "Sorry, this conversation bot is password-protected. "
                                    "If you have the password, please send it now.";
static const char draining_text[] = "System: The conversation bot going to go offline soon, "
                                    "finish any active conversations.";

static const char failing_text[] =
    "The journal cannot be written now: this message was not delivered. "
    "Please say it again later.";

static const uint64_t say_us = 1000000 / SERVICE_SAYS_PER_S;
static const uint64_t says_us = SERVICE_SAYS_AT_ONCE * (1000000 / SERVICE_SAYS_PER_S);

static const uint32_t moves[] = {
    [SERVICE_NEW] = 1u << SERVICE_MENU | 1u << SERVICE_GONE,
    [SERVICE_MENU] =
        1u << SERVICE_FORM | 1u << SERVICE_WAITING | 1u << SERVICE_NEW | 1u << SERVICE_GONE,
    [SERVICE_FORM] = 1u << SERVICE_WAITING | 1u << SERVICE_MENU | 1u << SERVICE_GONE,
    [SERVICE_WAITING] =
        1u << SERVICE_TASK | 1u << SERVICE_WAITING | 1u << SERVICE_MENU | 1u << SERVICE_GONE,
    [SERVICE_TASK] =
        1u << SERVICE_WAITING | 1u << SERVICE_MENU | 1u << SERVICE_NEW | 1u << SERVICE_GONE,
    [SERVICE_GONE] = 0,
};

const char *service_state_name(enum service_state s)
{
    static const char *const names[] = {
        [SERVICE_NEW] = "new",         [SERVICE_MENU] = "overworld", [SERVICE_FORM] = "onboarding",
        [SERVICE_WAITING] = "waiting", [SERVICE_TASK] = "task",      [SERVICE_GONE] = "gone",
    };

    return names[s];
}

static void service_user_move(struct service_user *u, enum service_state to)
{
    assert((moves[u->state] & 1u << to) != 0);
    log_debug("service", "from=%s to=%s", service_state_name(u->state), service_state_name(to));
    u->state = to;
    service_user_changed(u);
    service_user_moved(u);
}

void service_init(struct chat_service *s, const struct service_config *config)
{
    *s = (struct chat_service){.config = *config};
    hash_init(&s->by_id, config->env);
    list_init(&s->users);
    list_init(&s->away);
    list_init(&s->doomed);
    shared_limit_init(&s->n_users, &kind_of_service_people, SERVICE_MAX_PEOPLE_ALL);
    shared_limit_init(&s->bytes, &kind_of_service_bytes, SERVICE_MAX_BYTES);
    shared_limit_init(&s->log_bytes, &kind_of_service_logs, SERVICE_KEPT_MAX_BYTES);
    shared_limit_init(&s->heard_bytes, &kind_of_service_heard, SERVICE_KEPT_MAX_BYTES);
    for (size_t i = 0; config->plan != NULL && i < config->plan->n_pools; i++) {
        s->pools[i].plan = &config->plan->pools[i];
        list_init(&s->pools[i].waiting);
        list_init(&s->pools[i].ready);
        list_init(&s->pools[i].unnoticed);
        list_init(&s->pools[i].scenes);
    }
}

static size_t service_n_pools(const struct chat_service *s)
{
    return s->config.plan == NULL ? 0 : s->config.plan->n_pools;
}

/* --- scenes --- */

static void service_user_to_menu(struct service_user *u);
static void service_user_to_pool(struct service_user *u, struct service_pool *pool);
static void service_user_to_form(struct service_user *u, struct service_pool *pool);
static void service_user_exit(struct service_user *u);
static void service_pool_match(struct chat_service *s, struct service_pool *pool);

static bool scene_is_task(const struct scene *s)
{
    return s->script->world->kind == SCENE_TASK;
}

void scene_close(struct scene *s)
{
    struct chat_service *service = s->service;

    if (s->agent != NULL && service->keeping != NULL && service->has_ended)
        service->config.agents->leave(s->agent);
    else if (s->agent != NULL)
        service->config.agents->close(s->agent);
    scene_unkeep(s);
    shared_limit_give(&service->log_bytes, 0, s->log_bytes);
    shared_limit_give(&service->heard_bytes, 0, s->heard_bytes);
    if (s->pool != NULL)
        list_remove(&s->link);
    if (scene_is_task(s))
        service->n_tasks--;
    if (s->log != NULL) {
        buf_deinit(s->log);
        free(s->log);
    }
    free(s);
}

static void service_user_after_scene(struct service_user *u, const struct scene *s)
{
    const struct service_pool_plan *plan = s->pool == NULL ? NULL : s->pool->plan;

    if (s->is_exit) {
        service_user_exit(u);
    } else if (s->is_left) {
        service_user_to_menu(u);
    } else if (s->script->world->kind == SCENE_MENU) {
        service_user_to_form(u, &s->service->pools[s->to]);
    } else if (s->script->world->kind == SCENE_FORM) {
        service_user_to_pool(u, s->pool);
    } else if (plan->next_at != SIZE_MAX) {
        service_user_to_pool(u, &s->service->pools[plan->next_at]);
    } else if (plan->next != NULL) {
        service_user_exit(u);
    } else {
        service_user_to_menu(u);
    }
}

/* Ends a scene that is over, and sends its people on. */
static void scene_settle(struct scene *s)
{
    if (!s->is_over || s->is_playing)
        return;
    if (scene_is_task(s))
        scene_write_log(s);
    for (size_t i = 0; i < s->n_people; i++)
        s->people[i]->scene = NULL;
    for (size_t i = 0; i < s->n_people; i++)
        service_user_after_scene(s->people[i], s);
    scene_close(s);
}

bool scene_open(struct scene **out, struct chat_service *service,
                const struct service_script *script, struct service_pool *pool,
                struct service_user *const *people, size_t n)
{
    struct scene *s = try_alloc(1, sizeof(*s) + n * sizeof(s->people[0]));

    if (s == NULL)
        return false;
    s->service = service;
    s->script = script;
    s->pool = pool;
    s->to = SIZE_MAX;
    s->said_us = env_now_us(service->config.env);
    s->n_people = n;
    for (size_t i = 0; i < n; i++) {
        s->people[i] = people[i];
        people[i]->scene = s;
    }
    if (pool != NULL)
        list_push(&pool->scenes, &s->link);
    if (scene_is_task(s)) {
        service->n_tasks++;
        service->config.env->random(service->config.env->self, &s->id, sizeof(s->id));
        scene_changed(s);
    }
    *out = s;
    return true;
}

static void scene_play_begin(struct scene *s)
{
    s->is_playing = true;
    s->script->world->begin(s);
    s->is_playing = false;
    scene_settle(s);
}

void scene_set_said(struct scene *s, uint64_t said_us)
{
    struct link *before = &s->pool->scenes.head;

    s->said_us = said_us;
    list_remove(&s->link);
    while (before->prev != &s->pool->scenes.head &&
           container_of(before->prev, struct scene, link)->said_us > said_us)
        before = before->prev;
    list_insert_before(before, &s->link);
}

static void scene_play_said(struct scene *s, struct service_user *u, const char *text,
                            const char *payload)
{
    if (s->pool != NULL)
        scene_set_said(s, env_now_us(s->service->config.env));
    if (s->pool != NULL && (s->agent != NULL || s->pool->plan->idle_s > 0))
        scene_changed(s);
    if (u->state == SERVICE_FORM)
        service_user_changed(u);
    s->is_playing = true;
    s->script->world->said(s, u, text, payload);
    s->is_playing = false;
    scene_settle(s);
}

static void scene_remove(struct scene *s, struct service_user *u)
{
    size_t at = 0;

    while (s->people[at] != u)
        at++;
    s->n_people--;
    for (; at < s->n_people; at++)
        s->people[at] = s->people[at + 1];
    s->spoken = UINT64_MAX; /* the order has changed: a group of the log is over */
    u->scene = NULL;
    scene_changed(s);
}

/* Returns whether the scene goes on. */
static bool scene_play_without(struct scene *s, const struct service_user *u, const char *role)
{
    bool is_over;

    s->is_playing = true;
    if (s->n_people == 0 || s->script->world->left == NULL)
        s->is_over = true;
    else if (!s->is_over)
        s->script->world->left(s, u, role);
    s->is_playing = false;
    is_over = s->is_over;
    scene_settle(s);
    return !is_over;
}

/* The person goes out of its scene, which may end. */
static void scene_play_left(struct scene *s, struct service_user *u)
{
    scene_remove(s, u);
    (void)scene_play_without(s, u, u->role); /* nobody asks */
}

bool scene_lost(struct scene *s, const char *role)
{
    s->spoken = UINT64_MAX;
    scene_changed(s);
    return scene_play_without(s, NULL, role);
}

/* All are told, and go to the menu. */
static void scene_stop(struct scene *s, const char *text)
{
    for (size_t i = 0; i < s->n_people; i++)
        service_user_tell(s->people[i], text, NULL, NULL, 0);
    scene_leave(s);
    scene_settle(s);
}

/* As ParlAI's worlds that raise. */
void scene_fail(struct scene *s, const struct error *err)
{
    s->service->n_tasks_failed++;
    log_warn("service", "task=%s error=\"%s\"", s->pool->plan->name, err->text);
    scene_stop(s, closed_text);
}

/* --- the places of a person --- */

static struct service_user *service_user_ready(struct link *l)
{
    return l == NULL ? NULL : container_of(l, struct service_user, ready);
}

/* The person may be in its pool's next task. All but a few who come back are the newest. */
static void service_user_make_ready(struct service_user *u)
{
    struct list *ready = &u->pool->ready;
    struct link *before = &ready->head;

    if (u->service->is_draining || link_is_on(&u->ready) || u->peer == NULL ||
        !service_user_is_eligible(u, u->pool->plan))
        return;
    while (before->prev != &ready->head && service_user_ready(before->prev)->place > u->place)
        before = before->prev;
    list_insert_before(before, &u->ready);
}

static void service_user_unready(struct service_user *u)
{
    if (link_is_on(&u->ready))
        list_remove(&u->ready);
}

/* Somebody has come into the pool or left it: the users are numbered again, at most once in
 * SERVICE_NUMBER_MS. */
static void service_pool_changed(struct chat_service *s, struct service_pool *pool)
{
    const uint64_t now = env_now_us(s->config.env);
    const uint64_t next = pool->numbered_us + SERVICE_NUMBER_MS * (uint64_t)1000;

    if (s->n_watching > 0 && pool->number_us == 0)
        pool->number_us = next > now ? next : now;
}

static void service_user_stop_waiting(struct service_user *u)
{
    if (u->state != SERVICE_WAITING)
        return;
    list_remove(&u->waiting);
    u->pool->n_waiting--;
    service_pool_changed(u->service, u->pool);
    service_user_unready(u);
    if (link_is_on(&u->unnoticed))
        list_remove(&u->unnoticed);
    u->service->n_waiting--;
}

static void service_user_to_menu(struct service_user *u)
{
    struct scene *s;

    service_user_stop_waiting(u);
    u->pool = NULL;
    service_user_move(u, SERVICE_MENU);
    if (scene_open(&s, u->service, &u->service->config.plan->menu, NULL, &u, 1))
        scene_play_begin(s);
    else
        service_user_doom(u, SERVICE_END_MEMORY);
}

/* With the next text it is a new person. */
static void service_user_exit(struct service_user *u)
{
    service_user_tell(u, "See you later!", NULL, NULL, 0);
    u->pool = NULL;
    u->is_admitted = false;
    service_user_forget(u);
    service_user_move(u, SERVICE_NEW);
}

static void service_user_to_form(struct service_user *u, struct service_pool *pool)
{
    struct scene *s;

    if (pool->plan->onboarding.world == NULL) {
        service_user_to_pool(u, pool);
        return;
    }
    u->pool = pool;
    service_user_move(u, SERVICE_FORM);
    if (scene_open(&s, u->service, &pool->plan->onboarding, pool, &u, 1))
        scene_play_begin(s);
    else
        service_user_doom(u, SERVICE_END_MEMORY);
}

void service_user_wait(struct service_user *u, bool is_noticed)
{
    list_push(&u->pool->waiting, &u->waiting);
    u->position = u->n_waiting = ++u->pool->n_waiting;
    service_pool_changed(u->service, u->pool);
    if (!is_noticed)
        list_push(&u->pool->unnoticed, &u->unnoticed);
    u->service->n_waiting++;
}

static void service_user_to_pool(struct service_user *u, struct service_pool *pool)
{
    service_user_stop_waiting(u);
    service_user_move(u, SERVICE_WAITING);
    u->pool = pool;
    u->since_us = env_now_us(u->service->config.env);
    u->place = ++u->service->n_places;
    service_user_wait(u, false);
    service_user_make_ready(u);
    service_pool_match(u->service, pool);
}

/* --- pools --- */

static struct service_user *service_user_waiting(struct link *l)
{
    return l == NULL ? NULL : container_of(l, struct service_user, waiting);
}

static void service_user_name(struct service_user *u, size_t at)
{
    const struct service_pool_plan *plan = u->pool->plan;
    const char *name = service_user_answer(u, "name");

    if (name == NULL || !service_is_name(name))
        name = service_user_answer(u, "user_name");
    if (at < plan->n_roles)
        name = plan->roles[at];
    if (name != NULL && service_is_name(name))
        (void)snprintf(u->role, sizeof(u->role), "%s", name);
    else
        (void)snprintf(u->role, sizeof(u->role), "Agent_%zu", at);
}

enum status scene_open_log(struct scene *s, struct error *err)
{
    if (s->service->config.log == NULL)
        return STATUS_OK;
    s->log = try_alloc(1, sizeof(*s->log));
    if (s->log == NULL)
        return error_no_memory(err, sizeof(*s->log), "a log");
    buf_init(s->log, SERVICE_LOG_MAX_BYTES);
    return STATUS_OK;
}

static enum status scene_open_agent(struct scene *s, struct error *err)
{
    const struct service_config *config = &s->service->config;

    if (scene_open_log(s, err) != STATUS_OK)
        return err->status;
    if (!s->script->world->has_agent)
        return STATUS_OK;
    return config->agents->open(config->agents_self, &s->agent, s, s->pool->plan, err);
}

static void service_pool_begin(struct service_pool *pool, struct service_user *const *people,
                               size_t n)
{
    struct chat_service *service = people[0]->service;
    struct scene *s;
    struct error err;

    for (size_t i = 0; i < n; i++) {
        service_user_stop_waiting(people[i]);
        service_user_move(people[i], SERVICE_TASK);
    }
    if (!scene_open(&s, service, &pool->plan->task, pool, people, n)) {
        for (size_t i = 0; i < n; i++)
            service_user_doom(people[i], SERVICE_END_MEMORY);
        return;
    }
    service->n_tasks_begun++;
    if (scene_open_agent(s, &err) == STATUS_OK)
        scene_play_begin(s);
    else
        scene_fail(s, &err);
}

/* Finds those who come next: the first that are here and may be in the task. Those whose role is
 * none keep their place. Returns how many there are; 0: too few. */
static size_t service_pool_find(struct service_pool *pool, struct service_user **people)
{
    const struct service_pool_plan *plan = pool->plan;
    size_t n_found = 0, n = 0;

    for (struct link *l = list_first(&pool->ready); l != NULL && n_found < plan->n_people;
         l = list_next(&pool->ready, l)) {
        struct service_user *u = service_user_ready(l);

        if (link_is_on(&u->doomed))
            continue;
        if (n_found >= plan->n_roles || plan->roles[n_found] != NULL) {
            service_user_name(u, n_found);
            people[n++] = u;
        }
        n_found++;
    }
    return n_found < plan->n_people ? 0 : n;
}

static void service_pool_match(struct chat_service *s, struct service_pool *pool)
{
    struct service_user *people[SERVICE_MAX_PEOPLE];
    size_t n;

    while (!s->is_draining && (n = service_pool_find(pool, people)) > 0)
        service_pool_begin(pool, people, n);
}

/* --- people --- */

static uint64_t service_proof_hash(const struct chat_service *s, const uint8_t *proof)
{
    return hash_bytes(&s->by_id, 0, proof, SHA256_BYTES);
}

struct service_user *service_find_proof(const struct chat_service *s, const uint8_t *proof)
{
    struct hash_node *n = hash_first(&s->by_id, service_proof_hash(s, proof));

    for (; n != NULL; n = hash_next(n)) {
        struct service_user *u = container_of(n, struct service_user, node);

        if (memcmp(u->proof, proof, SHA256_BYTES) == 0)
            return u;
    }
    return NULL;
}

static void service_user_close(struct service_user *u);

enum status service_user_open(struct service_user **out, struct chat_service *s,
                              const uint8_t *proof, struct error *err)
{
    struct service_user *u;

    if (shared_limit_room(&s->n_users, 0) == 0 && !list_is_empty(&s->away)) /* the longest away */
        service_user_close(container_of(list_first(&s->away), struct service_user, away));
    if (shared_limit_take(&s->n_users, 0, 1, err) != STATUS_OK)
        return err->status;
    u = try_alloc(1, sizeof(*u));
    if (u == NULL) {
        shared_limit_give(&s->n_users, 0, 1);
        return error_no_memory(err, sizeof(*u), "a person");
    }
    u->service = s;
    list_init(&u->answers);
    list_init(&u->untaken);
    pace_init(&u->says, env_now_us(s->config.env), says_us);
    if (proof != NULL) {
        u->has_id = true;
        memcpy(u->proof, proof, sizeof(u->proof));
        hash_add(&s->by_id, &u->node, service_proof_hash(s, proof));
    }
    list_push(&s->users, &u->link);
    *out = u;
    return STATUS_OK;
}

static void service_user_come_back(struct service_user *u)
{
    if (!link_is_on(&u->away))
        return;
    list_remove(&u->away);
    u->service->n_away--;
}

void service_user_go_away(struct service_user *u)
{
    struct chat_service *s = u->service;

    u->gone_us = env_now_us(s->config.env) + (uint64_t)s->config.plan->grace_s * 1000000;
    list_push(&s->away, &u->away);
    s->n_away++;
}

void service_user_start_again(struct service_user *u)
{
    service_user_tell(u, closed_text, NULL, NULL, 0);
    u->state = SERVICE_NEW; /* from nowhere */
    service_user_to_menu(u);
}

/* Frees a person that waits in no pool and is in no task, with its messages, here and in the
 * journal. */
static void service_user_free(struct service_user *u)
{
    struct chat_service *s = u->service;

    service_user_unkeep(u);
    service_user_drop_messages(u);
    service_user_forget(u);
    if (u->has_id)
        hash_remove(&s->by_id, &u->node);
    list_remove(&u->link);
    shared_limit_give(&s->n_users, 0, 1);
    free(u);
}

/* The person is gone: it leaves wherever it is. */
static void service_user_close(struct service_user *u)
{
    struct chat_service *s = u->service;
    struct service_pool *pool = u->state == SERVICE_WAITING ? u->pool : NULL;

    if (u->peer != NULL)
        u->peer->user = NULL;
    u->peer = NULL;
    service_user_come_back(u);
    service_user_stop_waiting(u);
    service_user_move(u, SERVICE_GONE);
    if (u->scene != NULL)
        scene_play_left(u->scene, u);
    if (link_is_on(&u->doomed))
        list_remove(&u->doomed);
    if (pool != NULL) /* a role may come to another */
        service_pool_match(s, pool);
    service_user_free(u);
}

static void service_reap(struct chat_service *s)
{
    static const char *const texts[] = {
        [SERVICE_END_SLOW] = "the person takes its messages too slowly",
        [SERVICE_END_MEMORY] = "the server has no memory for the person",
    };
    struct link *l;

    while ((l = list_pop(&s->doomed)) != NULL) {
        struct service_user *u = container_of(l, struct service_user, doomed);
        struct service_peer *peer = u->peer;

        if (peer != NULL)
            peer->end(peer, u->doom, texts[u->doom]);
        service_user_close(u);
    }
}

/* Each text costs a part of a second, and a payload as much as the texts that it is as long as. */
static bool service_user_may_say(struct service_user *u, size_t payload_len)
{
    const uint64_t cost_us = (1 + payload_len / SERVICE_TEXT_MAX_BYTES) * say_us;

    return pace_take(&u->says, env_now_us(u->service->config.env), says_us, cost_us) == 0;
}

static void service_user_wake(struct service_user *u, const char *text)
{
    const char *password = u->service->config.plan->password;

    u->is_admitted = password == NULL || (strlen(text) == strlen(password) &&
                                          secret_is(password, text, strlen(password)));
    if (u->is_admitted)
        service_user_to_menu(u);
    else
        service_user_tell(u, password_text, NULL, NULL, 0);
}

static void service_user_said(struct service_user *u, const char *text, const char *payload)
{
    const size_t payload_len = payload == NULL ? 0 : strlen(payload);
    const bool is_too_long = payload_len > SERVICE_PAYLOAD_MAX_BYTES;

    if (service_keeping_is_failing(u->service)) {
        service_user_tell_first(u, failing_text);
        return;
    }
    if (!service_user_may_say(u, is_too_long ? 0 : payload_len)) {
        service_user_tell(u, "You write too fast: this message was not delivered.", NULL, NULL, 0);
        return;
    }
    if (strlen(text) > SERVICE_TEXT_MAX_BYTES) {
        service_user_tell(u, "This message is too long: it was not delivered.", NULL, NULL, 0);
        return;
    }
    if (is_too_long) {
        service_user_tell(u, "This payload is too long: it was not delivered.", NULL, NULL, 0);
        return;
    }
    u->service->n_said++;
    if (u->scene != NULL)
        scene_play_said(u->scene, u, text, payload);
    else if (u->state == SERVICE_NEW)
        service_user_wake(u, text);
    else if (strcasecmp(text, "EXIT") == 0)
        service_user_to_menu(u);
    else
        service_user_tell(u, wait_text, NULL, NULL, 0);
}

/* --- time --- */

static uint64_t service_user_notice_us(const struct service_user *u)
{
    return u->since_us + (uint64_t)u->pool->plan->notice_s * 1000000;
}

static uint64_t service_user_timeout_us(const struct service_user *u)
{
    return u->since_us + (uint64_t)u->pool->plan->timeout_s * 1000000;
}

static void service_user_time_out(struct service_user *u)
{
    const size_t backup = u->pool->plan->backup_at;

    u->service->n_timed_out++;
    if (backup != SIZE_MAX) {
        service_user_to_pool(u, &u->service->pools[backup]);
        return;
    }
    service_user_tell(u, timeout_text, NULL, NULL, 0);
    service_user_to_menu(u);
}

static uint64_t scene_idle_us(const struct scene *s)
{
    return s->said_us + (uint64_t)s->pool->plan->idle_s * 1000000;
}

static void scene_time_out(struct scene *s)
{
    char text[96];

    s->service->n_timed_out++;
    (void)snprintf(text, sizeof(text), "Nobody has said anything for %u seconds: this is over.",
                   s->pool->plan->idle_s);
    scene_stop(s, text);
}

static uint64_t service_earlier_us(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The times of the earliest in each list; UINT64_MAX: it is empty. */

static uint64_t service_away_us(const struct chat_service *s)
{
    struct link *l = list_first(&s->away);

    return l == NULL ? UINT64_MAX : container_of(l, struct service_user, away)->gone_us;
}

static uint64_t service_pool_timeout_us(const struct service_pool *pool)
{
    struct link *l = list_first(&pool->waiting);

    return l == NULL ? UINT64_MAX : service_user_timeout_us(service_user_waiting(l));
}

static uint64_t service_pool_notice_us(const struct service_pool *pool)
{
    struct link *l = list_first(&pool->unnoticed);

    return l == NULL ? UINT64_MAX
                     : service_user_notice_us(container_of(l, struct service_user, unnoticed));
}

static uint64_t service_pool_idle_us(const struct service_pool *pool)
{
    struct link *l = pool->plan->idle_s == 0 ? NULL : list_first(&pool->scenes);

    return l == NULL ? UINT64_MAX : scene_idle_us(container_of(l, struct scene, link));
}

/* Numbers the waiting users, and tells each whose position or whose pool's size has changed. */
static void service_pool_number(struct service_pool *pool, uint64_t now)
{
    uint32_t n = 0;

    pool->numbered_us = now;
    pool->number_us = 0;
    for (struct link *l = list_first(&pool->waiting); l != NULL; l = list_next(&pool->waiting, l)) {
        struct service_user *u = service_user_waiting(l);

        n++;
        if (u->position == n && u->n_waiting == pool->n_waiting)
            continue;
        u->position = n;
        u->n_waiting = pool->n_waiting;
        service_place_tell(u);
    }
}

static void service_pool_tick(struct service_pool *pool, uint64_t now)
{
    while (service_pool_notice_us(pool) <= now) { /* first, also where both are due */
        struct service_user *u =
            container_of(list_pop(&pool->unnoticed), struct service_user, unnoticed);

        service_user_tell(u, notice_text, NULL, NULL, 0);
        service_user_changed(u);
    }
    while (service_pool_timeout_us(pool) <= now)
        service_user_time_out(service_user_waiting(list_first(&pool->waiting)));
    while (service_pool_idle_us(pool) <= now)
        scene_time_out(container_of(list_first(&pool->scenes), struct scene, link));
    if (pool->number_us != 0 && pool->number_us <= now)
        service_pool_number(pool, now);
}

/* When something is due next; 0: never. */
static uint64_t service_next_us(const struct chat_service *s)
{
    uint64_t next = service_earlier_us(service_away_us(s), service_keeping_next_us(s));

    if (s->wake_us != 0)
        next = service_earlier_us(next, s->wake_us);
    for (size_t i = 0; i < service_n_pools(s); i++) {
        next = service_earlier_us(next, service_pool_timeout_us(&s->pools[i]));
        next = service_earlier_us(next, service_pool_notice_us(&s->pools[i]));
        next = service_earlier_us(next, service_pool_idle_us(&s->pools[i]));
        if (s->pools[i].number_us != 0)
            next = service_earlier_us(next, s->pools[i].number_us);
    }
    return next == UINT64_MAX ? 0 : next;
}

/* Acts on all deadlines that have passed, and removes users who are marked as doomed. The
 * functions of service.h end with it. An act in one pool may move users to any other pool, so the
 * next deadline is computed when all pools have acted. Then what has changed is written. */
void service_settle(struct chat_service *s)
{
    const uint64_t now = env_now_us(s->config.env);

    if (s->keeping != NULL && s->keeping->restore != NULL)
        return;
    service_reap(s);
    while (service_away_us(s) <= now)
        service_user_close(container_of(list_first(&s->away), struct service_user, away));
    for (size_t i = 0; i < service_n_pools(s); i++)
        service_pool_tick(&s->pools[i], now);
    service_reap(s);
    service_keeping_settle(s);
    alarm_set(s->config.alarm, s->is_woken ? now : service_next_us(s));
}

void service_tick(void *service)
{
    struct chat_service *s = service;

    if (s->keeping != NULL)
        service_restore_again(s->keeping);
    if (s->wake_us != 0 && s->wake_us <= env_now_us(s->config.env))
        s->is_woken = true;
    if (s->is_woken && s->config.work != NULL) {
        s->is_woken = false;
        s->wake_us = 0;
        s->config.work(s->config.agents_self);
    }
    service_settle(s);
}

void service_wake(struct chat_service *s)
{
    s->is_woken = true;
    alarm_by(s->config.alarm, env_now_us(s->config.env));
}

void service_wake_at(struct chat_service *s, uint64_t at_us)
{
    s->wake_us = s->wake_us == 0 ? at_us : service_earlier_us(s->wake_us, at_us);
    alarm_by(s->config.alarm, at_us);
}

void service_drain(void *service)
{
    struct chat_service *s = service;

    if (s->is_draining)
        return;
    s->is_draining = true;
    for (struct link *l = list_first(&s->users); l != NULL; l = list_next(&s->users, l)) {
        struct service_user *u = container_of(l, struct service_user, link);

        if (u->peer != NULL || s->keeping == NULL) /* who is away comes back to a later process */
            service_user_tell_first(u, draining_text); /* never kept: a later process stays */
    }
    service_settle(s);
}

/* The person stays where it is, for a later process. */
static void service_user_leave_kept(struct service_user *u)
{
    struct scene *scene = u->scene;

    if (u->peer != NULL)
        u->peer->user = NULL;
    u->peer = NULL;
    service_user_come_back(u);
    service_user_stop_waiting(u);
    if (link_is_on(&u->doomed))
        list_remove(&u->doomed);
    if (scene != NULL) {
        scene_remove(scene, u);
        if (scene->n_people == 0)
            scene_close(scene);
    }
    service_user_free(u);
}

/* Who has no id cannot come back: others are told, and tasks that end by it are logged. */
static void service_close_unknown(struct chat_service *s)
{
    struct link *l = list_first(&s->users), *next;

    for (; l != NULL; l = next) {
        struct service_user *u = container_of(l, struct service_user, link);

        next = list_next(&s->users, l);
        if (!u->has_id)
            service_user_close(u);
    }
}

void service_end(void *service)
{
    struct chat_service *s = service;
    struct link *l;

    s->is_draining = true;
    if (s->keeping != NULL && !s->has_ended)
        service_close_unknown(s);
    s->has_ended = true;
    service_keeping_end(s);
    while ((l = list_first(&s->users)) != NULL) {
        struct service_user *u = container_of(l, struct service_user, link);

        if (s->keeping != NULL)
            service_user_leave_kept(u);
        else
            service_user_close(u);
    }
    if (s->keeping != NULL)
        s->config.agents->end(s->config.agents_self);
    s->is_woken = false;
    alarm_set(s->config.alarm, 0);
}

void service_leave(struct chat_service *s, const struct error *why)
{
    struct link *l;

    if (s->keeping == NULL || s->has_ended)
        return;
    s->has_ended = true; /* agents are left as they are */
    service_keeping_leave(s);
    while ((l = list_first(&s->users)) != NULL) {
        struct service_user *u = container_of(l, struct service_user, link);
        struct service_peer *peer = u->peer;

        service_user_leave_kept(u);
        if (peer != NULL)
            peer->end(peer, SERVICE_END_MOVED, why->text);
    }
    s->config.agents->end(s->config.agents_self);
    s->has_ended = false;
    service_keeping_return(s);
}

void service_deinit(void *service)
{
    struct chat_service *s = service;

    service_end(s);
    service_keeping_close(s);
    sha256_close(s->sha256);
    hash_deinit(&s->by_id);
    shared_limit_deinit(&s->n_users);
    shared_limit_deinit(&s->bytes);
    shared_limit_deinit(&s->log_bytes);
    shared_limit_deinit(&s->heard_bytes);
}

/* --- peers --- */

void service_peer_init(struct service_peer *p, struct chat_service *s,
                       void (*notify)(struct service_peer *p),
                       void (*end)(struct service_peer *p, enum service_end why, const char *text))
{
    *p = (struct service_peer){.service = s, .notify = notify, .end = end};
}

const struct service_message *service_peer_next(const struct service_peer *p)
{
    return p->user == NULL ? NULL : service_user_first_message(p->user);
}

void service_peer_took(struct service_peer *p)
{
    service_user_drop_message(p->user);
}

/* --- where people are --- */

void service_peer_watch(struct service_peer *p)
{
    p->is_watching = true;
    p->service->n_watching++;
}

static void service_peer_stop_watching(struct service_peer *p)
{
    if (p->is_watching)
        p->service->n_watching--;
    p->is_watching = false;
}

bool service_peer_place(struct service_peer *p, struct service_place *ret_from,
                        struct service_place *ret_to)
{
    const struct service_user *u = p->user;
    struct service_place at;

    if (!p->is_watching || u == NULL || !list_is_empty(&u->untaken) || !service_place_is_due(u))
        return false;
    at = (struct service_place){.state = u->state};
    if (u->state != SERVICE_NEW && u->state != SERVICE_MENU)
        at.pool = u->pool;
    if (u->state == SERVICE_WAITING) {
        at.position = u->position;
        at.n_waiting = u->n_waiting;
    }
    *ret_from = p->told;
    *ret_to = p->told = at;
    return at.state != ret_from->state || at.pool != ret_from->pool ||
           at.position != ret_from->position || at.n_waiting != ret_from->n_waiting;
}

uint64_t service_peer_waits_ms(const struct service_peer *p)
{
    const uint64_t now = env_now_us(p->service->config.env);
    const uint64_t until = service_user_timeout_us(p->user);

    return until > now ? (until - now) / 1000 : 0;
}

/* --- what people say --- */

/* The person comes back by p; a connection that it has yet is ended. */
static void service_user_return(struct service_user *u, struct service_peer *p)
{
    if (u->peer != NULL) {
        u->peer->user = NULL;
        u->peer->end(u->peer, SERVICE_END_REPLACED, "the person has another connection now");
    }
    service_user_come_back(u);
    u->peer = p;
    p->user = u;
    if (!list_is_empty(&u->untaken))
        p->notify(p);
    service_place_tell(u);
    if (u->state == SERVICE_WAITING) {
        service_pool_changed(u->service, u->pool);
        service_user_make_ready(u);
        service_pool_match(u->service, u->pool);
    }
}

static enum status service_id_hash(uint8_t out[SHA256_BYTES], struct chat_service *s,
                                   const char *id, struct error *err)
{
    if (s->sha256 == NULL && sha256_open(&s->sha256, err) != STATUS_OK)
        return err->status;
    sha256_add(s->sha256, id, strlen(id));
    sha256_take(s->sha256, out);
    return STATUS_OK;
}

static enum status service_peer_enter(struct service_peer *p, const char *id, struct error *err)
{
    struct service_user *u = NULL;
    const size_t len = id == NULL ? 0 : strlen(id);
    const bool has_id = len >= SERVICE_ID_MIN_CHARS && len <= SERVICE_ID_MAX_CHARS;
    uint8_t proof[SHA256_BYTES];

    if (has_id && service_id_hash(proof, p->service, id, err) != STATUS_OK)
        return err->status;
    if (has_id && (u = service_find_proof(p->service, proof)) != NULL) {
        service_user_return(u, p);
        return STATUS_OK;
    }
    if (service_user_open(&u, p->service, has_id ? proof : NULL, err) != STATUS_OK)
        return err->status;
    u->peer = p;
    p->user = u;
    return STATUS_OK;
}

enum status service_peer_said(struct service_peer *p, const char *id, const char *text,
                              const char *payload, struct error *err)
{
    if (p->service->has_ended)
        return error_draining(err);
    if (p->service->keeping != NULL && p->service->keeping->restore != NULL) {
        (void)error_set(err, STATUS_UNAVAILABLE, "the stored people are being read: come again");
        err->retry_after_ms = 100;
        return STATUS_UNAVAILABLE;
    }
    if (p->user == NULL && service_peer_enter(p, id, err) != STATUS_OK)
        return err->status;
    service_user_said(p->user, text, payload);
    service_settle(p->service);
    return STATUS_OK;
}

void service_peer_close(struct service_peer *p)
{
    struct service_user *u = p->user;

    service_peer_stop_watching(p);
    if (u == NULL)
        return;
    p->user = NULL;
    u->peer = NULL;
    service_user_unready(u);
    if (!u->has_id || u->state == SERVICE_NEW) {
        service_user_close(u);
    } else {
        service_user_go_away(u);
        if (!list_is_empty(&u->untaken))
            service_user_changed(u);
    }
    service_settle(p->service);
}

/* --- agents --- */

void service_answered(struct scene *s, const char *text)
{
    struct chat_service *service = s->service;

    s->is_playing = true;
    scene_answered(s, text);
    s->is_playing = false;
    scene_settle(s);
    service_settle(service);
}

void service_unanswered(struct scene *s, const struct error *err)
{
    struct chat_service *service = s->service;

    s->is_playing = true;
    scene_unanswered(s, err);
    s->is_playing = false;
    scene_settle(s);
    service_settle(service);
}

void service_answering(struct scene *s)
{
    s->is_due = s->is_due || s->is_asked;
    s->is_asked = true;
    s->asked = s->restored;
    s->asked_bytes = s->restored_bytes;
    scene_changed(s);
}

void service_agent_failed(struct scene *s, const struct error *err)
{
    struct chat_service *service = s->service;

    scene_fail(s, err);
    service_settle(service);
}

/* --- metrics --- */

void service_metrics(const struct chat_service *s, struct buf *out)
{
    static const struct metric_row rows[] = {
        METRIC("gauge", "parley_service_people", "People of the chat service, those away too.",
               chat_service, n_users.held),
        METRIC("gauge", "parley_service_away", "Of those, without a connection.", chat_service,
               n_away),
        METRIC("gauge", "parley_service_waiting", "Of those, in pools.", chat_service, n_waiting),
        METRIC("gauge", "parley_service_tasks", "Tasks that people do.", chat_service, n_tasks),
        METRIC("gauge", "parley_service_bytes",
               "Bytes of what people have not taken yet, and of "
               "their answers.",
               chat_service, bytes.held),
        METRIC("counter", "parley_service_said_total", "Texts of people.", chat_service, n_said),
        METRIC("counter", "parley_service_tasks_total", "Tasks that have begun.", chat_service,
               n_tasks_begun),
        METRIC("counter", "parley_service_tasks_failed_total",
               "Tasks that an agent's failure has "
               "ended.",
               chat_service, n_tasks_failed),
        METRIC("counter", "parley_service_timeouts_total", "Waits and tasks that ran out of time.",
               chat_service, n_timed_out),
    };

    METRIC_ROWS(out, rows, s);
}
