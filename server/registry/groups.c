/* Groups of processes: their members and leases, the entries that members hold, the listeners'
 * queues of events, and barriers. Each change makes one event, to which the queues of all listeners
 * refer; a listener for which an event is missing is over, and must listen anew. */
#include "server/registry/groups.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alarm.h"
#include "base/alloc.h"
#include "base/env.h"
#include "server/telemetry/metric.h"

static const struct limit_kind kind_of_groups = {"groups of Registry", NULL, "group"};
static const struct limit_kind kind_of_group_bytes = {"bytes of values in groups of Registry", NULL,
                                                      "value"};

struct group_barrier {
    struct link link;
    struct list waits; /* of struct group_wait */
    uint64_t epoch;    /* the last that is over */
    size_t n_waiting, n_wanted;
    bool is_for_all; /* n_wanted are the members that there were */
    char name[GROUP_NAME_MAX_BYTES + 1];
};

void groups_init(struct groups *g, const struct env *env, struct alarm *alarm)
{
    *g = (struct groups){.env = env, .alarm = alarm};
    shared_limit_init(&g->limit, &kind_of_groups, GROUPS_MAX);
    shared_limit_init(&g->value_bytes, &kind_of_group_bytes, GROUP_MAX_BYTES);
    list_init(&g->leased);
    hash_init(&g->by_name, env);
    hash_init(&g->by_lease, NULL); /* leases are random */
}

void groups_deinit(void *groups)
{
    struct groups *g = groups;

    assert(g->by_name.n == 0 && g->by_lease.n == 0 && g->value_bytes.held == 0);
    shared_limit_deinit(&g->limit);
    shared_limit_deinit(&g->value_bytes);
    hash_deinit(&g->by_name);
    hash_deinit(&g->by_lease);
}

static enum status group_name_check(const char *field, const char *name, struct error *err)
{
    const size_t len = strlen(name);

    if (len == 0 || len > GROUP_NAME_MAX_BYTES)
        return error_field(err, field, "has %zu bytes, it must have 1 to %d", len,
                           GROUP_NAME_MAX_BYTES);
    return STATUS_OK;
}

/* --- groups --- */

static uint64_t group_hash(const struct groups *g, uint32_t principal, const char *name)
{
    return hash_text(&g->by_name, hash_bytes(&g->by_name, 0, &principal, sizeof(principal)), name);
}

static struct group *group_by_name(const struct groups *g, uint32_t principal, const char *name)
{
    struct hash_node *node = hash_first(&g->by_name, group_hash(g, principal, name));

    for (; node != NULL; node = hash_next(node)) {
        struct group *group = container_of(node, struct group, by_name);

        if (group->principal == principal && strcmp(group->name, name) == 0)
            return group;
    }
    return NULL;
}

enum status groups_find(struct group **out, const struct groups *g, uint32_t principal,
                        const char *name, struct error *err)
{
    *out = group_by_name(g, principal, name);
    if (*out == NULL)
        return error_because(err, STATUS_NOT_FOUND, REASON_NONE, "group",
                             "there is no group '%.64s': it has no member", name);
    return STATUS_OK;
}

static enum status group_open(struct group **out, struct groups *g, uint32_t principal,
                              const char *name, struct error *err)
{
    struct group *group;

    if (shared_limit_check(&g->limit, principal, 1, err) != STATUS_OK)
        return err->status;
    group = try_alloc(1, sizeof(*group));
    if (group == NULL)
        return error_no_memory(err, sizeof(*group), "a group");
    group->groups = g;
    group->principal = principal;
    memcpy(group->name, name, strlen(name) + 1);
    list_init(&group->members);
    list_init(&group->listeners);
    list_init(&group->entries);
    list_init(&group->barriers);
    shared_limit_hold(&g->limit, principal, 1);
    hash_add(&g->by_name, &group->by_name, group_hash(g, principal, name));
    *out = group;
    return STATUS_OK;
}

static void group_close_if_empty(struct group *g)
{
    struct link *l;

    if (g->n_members > 0 || !list_is_empty(&g->listeners))
        return;
    while ((l = list_pop(&g->barriers)) != NULL)
        free(container_of(l, struct group_barrier, link));
    hash_remove(&g->groups->by_name, &g->by_name);
    shared_limit_give(&g->groups->limit, g->principal, 1);
    free(g);
}

/* --- events --- */

void group_event_unref(struct group_event *e)
{
    if (--e->n_refs == 0)
        free(e);
}

/* With one reference; NULL: no memory. */
static struct group_event *group_event_make(enum group_event_kind what, enum group_entry_kind kind,
                                            const char *member, const char *key, const void *value,
                                            size_t value_bytes)
{
    const size_t member_len = strlen(member) + 1, key_len = strlen(key) + 1;
    struct group_event *e = try_alloc(1, sizeof(*e) + member_len + key_len + value_bytes);
    char *text;

    if (e == NULL)
        return NULL;
    text = (char *)(e + 1);
    *e = (struct group_event){.n_refs = 1, .what = what, .entry_kind = kind};
    e->member = memcpy(text, member, member_len);
    e->key = memcpy(text + member_len, key, key_len);
    e->value = (unsigned char *)text + member_len + key_len;
    e->value_bytes = value_bytes;
    if (value_bytes > 0)
        memcpy(text + member_len + key_len, value, value_bytes);
    return e;
}

/* False: it has no room for more. */
static bool listener_make_room(struct group_listener *l)
{
    struct group_event **events;
    size_t room;

    if (l->first > 0 && l->first + l->n_events == l->room) {
        memmove(l->events, l->events + l->first, l->n_events * sizeof(l->events[0]));
        l->first = 0;
    }
    if (l->first + l->n_events < l->room)
        return true;
    if (l->room >= GROUP_MAX_EVENTS)
        return false;
    room = l->room == 0 ? 16 : 2 * l->room;
    events = try_realloc(l->events, room, sizeof(events[0]));
    if (events == NULL)
        return false;
    l->events = events;
    l->room = room;
    return true;
}

/* e NULL: there was no memory for it. */
static void listener_tell(struct group_listener *l, struct group_event *e)
{
    if (l->is_over)
        return;
    l->is_over = e == NULL || !listener_make_room(l);
    if (!l->is_over) {
        e->n_refs++;
        l->events[l->first + l->n_events++] = e;
    }
    l->notify(l);
}

/* Takes the reference. */
static void group_tell(struct group *g, struct group_event *e)
{
    for (struct link *l = list_first(&g->listeners); l != NULL; l = list_next(&g->listeners, l))
        listener_tell(container_of(l, struct group_listener, link), e);
    if (e != NULL)
        group_event_unref(e);
}

struct group_event *group_next_event(struct group_listener *l)
{
    if (l->n_events == 0)
        return NULL;
    l->n_events--;
    return l->events[l->first++];
}

static void listener_begin(struct group_listener *l, struct group *g,
                           void (*notify)(struct group_listener *l))
{
    *l = (struct group_listener){.group = g, .notify = notify};
    list_push(&g->listeners, &l->link);
}

/* Tells what there is. */
static void listener_tell_all(struct group_listener *l)
{
    struct group *g = l->group;
    struct group_event *e;

    for (struct link *at = list_first(&g->members); at != NULL; at = list_next(&g->members, at)) {
        const struct group_member *m = container_of(at, struct group_member, link);

        e = group_event_make(GROUP_JOINED, GROUP_VALUE, m->name, "", NULL, 0);
        listener_tell(l, e);
        if (e != NULL)
            group_event_unref(e);
    }
    for (struct link *at = list_first(&g->entries); at != NULL; at = list_next(&g->entries, at))
        listener_tell(l, container_of(at, struct group_entry, of_group)->put);
    e = group_event_make(GROUP_SYNCED, GROUP_VALUE, "", "", NULL, 0);
    listener_tell(l, e);
    if (e != NULL)
        group_event_unref(e);
}

/* The group stays. */
static void listener_end(struct group_listener *l)
{
    struct group_event *e;

    while ((e = group_next_event(l)) != NULL)
        group_event_unref(e);
    free(l->events);
    list_remove(&l->link);
    l->events = NULL;
    l->group = NULL;
}

enum status group_listen(struct group_listener *out, struct group *g,
                         void (*notify)(struct group_listener *l), struct error *err)
{
    listener_begin(out, g, notify);
    listener_tell_all(out);
    if (!out->is_over)
        return STATUS_OK;
    listener_end(out);
    return error_no_memory(err, GROUP_MAX_EVENTS * sizeof(out->events[0]), "events");
}

void group_unlisten(struct group_listener *l)
{
    struct group *g = l->group;

    if (g == NULL)
        return;
    listener_end(l);
    group_close_if_empty(g);
}

/* --- entries --- */

static struct group_entry *entry_by_key(const struct group *g, enum group_entry_kind kind,
                                        const char *key)
{
    for (struct link *l = list_first(&g->entries); l != NULL; l = list_next(&g->entries, l)) {
        struct group_entry *e = container_of(l, struct group_entry, of_group);

        if (e->kind == kind && strcmp(e->put->key, key) == 0)
            return e;
    }
    return NULL;
}

static const char *entry_noun(enum group_entry_kind kind)
{
    return kind == GROUP_VALUE ? "value" : "service";
}

static enum status no_entry(const struct group *g, enum group_entry_kind kind, const char *key,
                            struct error *err)
{
    return error_because(err, STATUS_NOT_FOUND, REASON_NONE, "key",
                         "the group '%.48s' has no %s '%.64s'", g->name, entry_noun(kind), key);
}

enum status group_put(struct group_member *m, enum group_entry_kind kind, const char *key,
                      const void *value, size_t value_bytes, struct error *err)
{
    struct group *g = m->group;
    struct group_entry *e;

    if (group_name_check("key", key, err) != STATUS_OK)
        return err->status;
    if (value_bytes > GROUP_VALUE_MAX_BYTES)
        return error_field(err, "value", "has %zu bytes, at most %d may be", value_bytes,
                           GROUP_VALUE_MAX_BYTES);
    e = entry_by_key(g, kind, key);
    if (e != NULL)
        return error_because(err, STATUS_EXISTS, REASON_NONE, "key",
                             "the %s '%.64s' is held by the member '%.64s'", entry_noun(kind), key,
                             e->member->name);
    if (g->n_entries >= GROUP_MAX_ENTRIES)
        return error_because(err, STATUS_EXHAUSTED, REASON_LIMIT_REACHED, "key",
                             "the group '%.48s' has %d entries, which is the most", g->name,
                             GROUP_MAX_ENTRIES);
    if (shared_limit_check(&g->groups->value_bytes, g->principal, value_bytes, err) != STATUS_OK)
        return err->status;
    e = try_alloc(1, sizeof(*e));
    if (e != NULL)
        e->put = group_event_make(GROUP_PUT, kind, m->name, key, value, value_bytes);
    if (e == NULL || e->put == NULL) {
        free(e);
        return error_no_memory(err, value_bytes, "an entry");
    }
    e->kind = kind;
    e->member = m;
    list_push(&m->entries, &e->link);
    list_push(&g->entries, &e->of_group);
    g->n_entries++;
    shared_limit_hold(&g->groups->value_bytes, g->principal, value_bytes);
    e->put->n_refs++;
    group_tell(g, e->put);
    return STATUS_OK;
}

static void entry_end(struct group_entry *e)
{
    struct group *g = e->member->group;

    list_remove(&e->link);
    list_remove(&e->of_group);
    g->n_entries--;
    shared_limit_give(&g->groups->value_bytes, g->principal, e->put->value_bytes);
    group_tell(g, group_event_make(GROUP_DELETED, e->kind, e->member->name, e->put->key, NULL, 0));
    group_event_unref(e->put);
    free(e);
}

enum status group_delete(struct group_member *m, enum group_entry_kind kind, const char *key,
                         struct error *err)
{
    struct group_entry *e = entry_by_key(m->group, kind, key);

    if (e == NULL)
        return no_entry(m->group, kind, key, err);
    if (e->member != m)
        return error_because(err, STATUS_PRECONDITION, REASON_NONE, "key",
                             "the %s '%.64s' is held by the member '%.64s'", entry_noun(kind), key,
                             e->member->name);
    entry_end(e);
    return STATUS_OK;
}

enum status group_get(const struct group_entry **out, const struct group *g,
                      enum group_entry_kind kind, const char *key, struct error *err)
{
    *out = entry_by_key(g, kind, key);
    return *out == NULL ? no_entry(g, kind, key, err) : STATUS_OK;
}

/* --- barriers --- */

static void group_wait_leave(struct group_wait *w)
{
    w->barrier->n_waiting--;
    w->member->group->groups->n_waiting--;
    w->barrier = NULL;
    list_remove(&w->link);
    list_remove(&w->by_member);
}

static void wait_settle(struct group_wait *w, const struct error *err)
{
    group_wait_leave(w);
    future_settle(&w->future, err);
}

void group_wait_cancel(struct group_wait *w)
{
    if (w->barrier != NULL)
        group_wait_leave(w);
}

/* all: also those that wait for some, who may come without the member that is gone. */
static void barriers_abort(struct group *g, bool all, const struct error *why)
{
    for (struct link *l = list_first(&g->barriers); l != NULL; l = list_next(&g->barriers, l)) {
        struct group_barrier *b = container_of(l, struct group_barrier, link);
        struct link *wait;

        while ((all || b->is_for_all) && (wait = list_first(&b->waits)) != NULL)
            wait_settle(container_of(wait, struct group_wait, link), why);
    }
}

static struct group_barrier *barrier_by_name(const struct group *g, const char *name)
{
    for (struct link *l = list_first(&g->barriers); l != NULL; l = list_next(&g->barriers, l)) {
        struct group_barrier *b = container_of(l, struct group_barrier, link);

        if (strcmp(b->name, name) == 0)
            return b;
    }
    return NULL;
}

/* Of those where nobody waits, frees the one that was not named for the longest. */
static void barrier_forget(struct group *g)
{
    for (struct link *l = list_first(&g->barriers); l != NULL; l = list_next(&g->barriers, l)) {
        struct group_barrier *b = container_of(l, struct group_barrier, link);

        if (b->n_waiting == 0) {
            list_remove(&b->link);
            g->n_barriers--;
            free(b);
            return;
        }
    }
}

static enum status barrier_get(struct group_barrier **out, struct group *g, const char *name,
                               struct error *err)
{
    struct group_barrier *b = barrier_by_name(g, name);

    if (b != NULL) {
        list_remove(&b->link);
    } else {
        if (g->n_barriers >= GROUP_MAX_BARRIERS)
            barrier_forget(g);
        if (g->n_barriers >= GROUP_MAX_BARRIERS)
            return error_because(err, STATUS_EXHAUSTED, REASON_LIMIT_REACHED, "name",
                                 "the group '%.48s' has %d barriers where members wait, which is "
                                 "the most",
                                 g->name, GROUP_MAX_BARRIERS);
        b = try_alloc(1, sizeof(*b));
        if (b == NULL)
            return error_no_memory(err, sizeof(*b), "a barrier");
        list_init(&b->waits);
        memcpy(b->name, name, strlen(name) + 1);
        g->n_barriers++;
    }
    list_push(&g->barriers, &b->link);
    *out = b;
    return STATUS_OK;
}

static enum status barrier_check(const struct group_barrier *b, const struct group_member *m,
                                 uint64_t epoch, uint32_t n, struct error *err)
{
    if (epoch != b->epoch + 1)
        return error_field(err, "epoch", "is %" PRIu64 ", the barrier's next is %" PRIu64, epoch,
                           b->epoch + 1);
    if (n > GROUP_MAX_MEMBERS)
        return error_field(err, "n", "is %" PRIu32 ", a group has at most %d members", n,
                           GROUP_MAX_MEMBERS);
    if (n != 0 && b->n_waiting > 0 && n != b->n_wanted)
        return error_field(err, "n", "is %" PRIu32 ", those that wait here say %zu", n,
                           b->n_wanted);
    for (struct link *l = list_first(&m->waits); l != NULL; l = list_next(&m->waits, l))
        if (container_of(l, struct group_wait, by_member)->barrier == b)
            return error_because(err, STATUS_EXISTS, REASON_NONE, "lease",
                                 "the member '%.64s' waits here already", m->name);
    return STATUS_OK;
}

enum status group_wait(struct group_wait *w, struct group_member *m, const char *name,
                       uint64_t epoch, uint32_t n, future_then_fn then, void *arg,
                       struct error *err)
{
    const struct error ok = {.status = STATUS_OK};
    struct group_barrier *b = NULL;
    struct list waits;
    struct link *l;

    if (group_name_check("name", name, err) != STATUS_OK ||
        barrier_get(&b, m->group, name, err) != STATUS_OK)
        return err->status;
    future_init(&w->future, then, arg);
    w->member = m;
    w->barrier = NULL;
    if (epoch >= 1 && epoch <= b->epoch) {
        future_settle(&w->future, &ok);
        return STATUS_OK;
    }
    if (barrier_check(b, m, epoch, n, err) != STATUS_OK)
        return err->status;
    if (b->n_waiting++ == 0) {
        b->is_for_all = n == 0;
        b->n_wanted = n != 0 ? n : m->group->n_members;
    }
    w->barrier = b;
    m->group->groups->n_waiting++;
    list_push(&b->waits, &w->link);
    list_push(&m->waits, &w->by_member);
    if (b->n_waiting < b->n_wanted)
        return STATUS_OK;
    b->epoch = epoch;
    list_init(&waits); /* who is released may come again at once */
    list_move(&b->waits, &waits);
    while ((l = list_first(&waits)) != NULL)
        wait_settle(container_of(l, struct group_wait, link), &ok);
    return STATUS_OK;
}

/* --- members --- */

enum status groups_member(struct group_member **out, const struct groups *g, uint32_t principal,
                          uint64_t lease, struct error *err)
{
    struct hash_node *node = hash_first(&g->by_lease, lease);

    *out = node == NULL ? NULL : container_of(node, struct group_member, by_lease);
    if (*out == NULL || (*out)->group->principal != principal)
        return error_because(err, STATUS_NOT_FOUND, REASON_NONE, "lease",
                             "no member has this lease: it left, or was lost");
    return STATUS_OK;
}

static enum status member_check(const struct group *g, const char *name, struct error *err)
{
    for (struct link *l = list_first(&g->members); l != NULL; l = list_next(&g->members, l))
        if (strcmp(container_of(l, struct group_member, link)->name, name) == 0)
            return error_because(err, STATUS_EXISTS, REASON_NONE, "member",
                                 "the group '%.48s' has a member '%.64s'", g->name, name);
    if (g->n_members >= GROUP_MAX_MEMBERS)
        return error_because(err, STATUS_EXHAUSTED, REASON_LIMIT_REACHED, "group",
                             "the group '%.48s' has %d members, which is the most", g->name,
                             GROUP_MAX_MEMBERS);
    return STATUS_OK;
}

static enum status lease_check(uint32_t lease_ms, struct error *err)
{
    if (lease_ms != 0 && (lease_ms < GROUP_LEASE_MIN_MS || lease_ms > GROUP_LEASE_MAX_MS))
        return error_field(err, "lease_ms", "is %" PRIu32 ", it must be 0 or %d to %d", lease_ms,
                           GROUP_LEASE_MIN_MS, GROUP_LEASE_MAX_MS);
    return STATUS_OK;
}

static uint64_t lease_draw(const struct groups *g)
{
    uint64_t lease;

    do
        g->env->random(g->env->self, &lease, sizeof(lease));
    while (lease == 0 || hash_first(&g->by_lease, lease) != NULL);
    return lease;
}

enum status group_join(struct group_member *out, struct groups *g, uint32_t principal,
                       const char *group_name, const char *name, uint32_t lease_ms,
                       void (*notify)(struct group_listener *l), struct error *err)
{
    struct group *group;

    if (group_name_check("group", group_name, err) != STATUS_OK ||
        group_name_check("member", name, err) != STATUS_OK ||
        lease_check(lease_ms, err) != STATUS_OK)
        return err->status;
    group = group_by_name(g, principal, group_name);
    if (group == NULL && group_open(&group, g, principal, group_name, err) != STATUS_OK)
        return err->status;
    if (member_check(group, name, err) != STATUS_OK)
        return err->status; /* it has members */
    *out = (struct group_member){.group = group, .lease_ms = lease_ms};
    memcpy(out->name, name, strlen(name) + 1);
    list_init(&out->entries);
    list_init(&out->waits);
    group_tell(group, group_event_make(GROUP_JOINED, GROUP_VALUE, name, "", NULL, 0));
    list_push(&group->members, &out->link);
    group->n_members++;
    hash_add(&g->by_lease, &out->by_lease, lease_draw(g));
    if (lease_ms != 0)
        list_push(&g->leased, &out->leased);
    group_member_renew(out);
    listener_begin(&out->listener, group, notify);
    listener_tell_all(&out->listener);
    if (!out->listener.is_over)
        return STATUS_OK;
    group_member_end(out, false);
    return error_no_memory(err, sizeof(*out), "a member");
}

void group_member_end(struct group_member *m, bool is_lost)
{
    struct group *g = m->group;
    struct error why;
    struct link *l;

    listener_end(&m->listener);
    list_remove(&m->link);
    g->n_members--;
    g->groups->n_lost += is_lost;
    hash_remove(&g->groups->by_lease, &m->by_lease);
    if (m->lease_ms != 0)
        list_remove(&m->leased);
    while ((l = list_first(&m->entries)) != NULL)
        entry_end(container_of(l, struct group_entry, link));
    (void)error_because(&why, STATUS_CANCELLED, REASON_NONE, NULL, "the member '%.64s' %s", m->name,
                        is_lost ? "was lost" : "left");
    while ((l = list_first(&m->waits)) != NULL)
        wait_settle(container_of(l, struct group_wait, by_member), &why);
    group_tell(
        g, group_event_make(is_lost ? GROUP_LOST : GROUP_LEFT, GROUP_VALUE, m->name, "", NULL, 0));
    why.status = STATUS_ABORTED;
    barriers_abort(g, is_lost, &why);
    m->group = NULL;
    group_close_if_empty(g);
}

/* --- leases --- */

void group_member_renew(struct group_member *m)
{
    struct groups *g = m->group->groups;

    if (m->lease_ms == 0)
        return;
    m->due_us = env_now_us(g->env) + (uint64_t)m->lease_ms * 1000;
    alarm_by(g->alarm, m->due_us);
}

void groups_tick(void *groups)
{
    struct groups *g = groups;
    const uint64_t now_us = env_now_us(g->env);
    uint64_t next_us = 0;
    struct link *l = list_first(&g->leased);

    while (l != NULL) {
        struct group_member *m = container_of(l, struct group_member, leased);

        if (m->due_us > now_us) {
            next_us = next_us == 0 || m->due_us < next_us ? m->due_us : next_us;
            l = list_next(&g->leased, l);
            continue;
        }
        group_member_end(m, true);
        m->is_expired = true;
        m->listener.notify(&m->listener);
        l = list_first(&g->leased); /* whoever was told may have ended others */
    }
    alarm_by(g->alarm, next_us);
}

void groups_leave(void *groups, const struct error *why)
{
    struct groups *g = groups;
    struct hash_node *n;
    struct link *l;

    while ((n = hash_each(&g->by_name, NULL)) != NULL) {
        struct group *group = container_of(n, struct group, by_name);
        struct group_listener *listener;

        l = list_first(&group->members);
        if (l != NULL) {
            struct group_member *m = container_of(l, struct group_member, link);

            listener = &m->listener;
            group_member_end(m, true); /* the last one ends the group */
        } else {
            listener = container_of(list_first(&group->listeners), struct group_listener, link);
            group_unlisten(listener);
        }
        listener->is_moved = true;
        listener->notify(listener);
    }
}

void groups_metrics(const struct groups *g, struct buf *out)
{
    static const struct metric_row rows[] = {
        METRIC("gauge", "parley_registry_groups", "Groups of processes.", groups, by_name.n),
        METRIC("gauge", "parley_registry_members", "Members of all groups.", groups, by_lease.n),
        METRIC("gauge", "parley_registry_waiting", "Members that wait at barriers.", groups,
               n_waiting),
        METRIC("gauge", "parley_registry_bytes", "Values of all groups; 64 MiB is the ceiling.",
               groups, value_bytes.held),
        METRIC("counter", "parley_registry_lost_total",
               "Members whose connection broke before they left.", groups, n_lost),
    };

    METRIC_ROWS(out, rows, g);
}
