/* parley.v1.Registry. A member is its Join call: the call's end, by whichever side, is the
 * member's; a lease that is not renewed ends both. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "parley/v1/registry.pb-c.h"
#include "server/api/parley/methods.h"
#include "server/api/parley/placed_call.h"
#include "server/call/subscription.h"
#include "server/registry/groups.h"
#include "server/server.h"

/* Of Join and Watch. */
struct registry_call {
    struct subscription base;
    struct group_member member;     /* of Join */
    struct group_listener listener; /* of Watch */
};

struct barrier_call {
    struct subscription base;
    struct group_wait wait;
    uint64_t epoch;
};

static const Parley__V1__RegistryEventKind registry_event_kinds[] = {
    [GROUP_JOINED] = PARLEY__V1__REGISTRY_EVENT_KIND__REGISTRY_EVENT_KIND_JOINED,
    [GROUP_LEFT] = PARLEY__V1__REGISTRY_EVENT_KIND__REGISTRY_EVENT_KIND_LEFT,
    [GROUP_LOST] = PARLEY__V1__REGISTRY_EVENT_KIND__REGISTRY_EVENT_KIND_LOST,
    [GROUP_PUT] = PARLEY__V1__REGISTRY_EVENT_KIND__REGISTRY_EVENT_KIND_PUT,
    [GROUP_DELETED] = PARLEY__V1__REGISTRY_EVENT_KIND__REGISTRY_EVENT_KIND_DELETED,
    [GROUP_SYNCED] = PARLEY__V1__REGISTRY_EVENT_KIND__REGISTRY_EVENT_KIND_SYNCED,
};

static Parley__V1__RegistryKind entry_kind_to_wire(enum group_entry_kind kind)
{
    return kind == GROUP_SERVICE ? PARLEY__V1__REGISTRY_KIND__REGISTRY_KIND_SERVICE
                                 : PARLEY__V1__REGISTRY_KIND__REGISTRY_KIND_VALUE;
}

static enum status entry_kind_from_wire(enum group_entry_kind *out, Parley__V1__RegistryKind kind,
                                        struct error *err)
{
    if (kind != PARLEY__V1__REGISTRY_KIND__REGISTRY_KIND_UNSPECIFIED &&
        kind != PARLEY__V1__REGISTRY_KIND__REGISTRY_KIND_VALUE &&
        kind != PARLEY__V1__REGISTRY_KIND__REGISTRY_KIND_SERVICE)
        return error_field(err, "kind", "is %d, which is not a kind of entry", (int)kind);
    *out = kind == PARLEY__V1__REGISTRY_KIND__REGISTRY_KIND_SERVICE ? GROUP_SERVICE : GROUP_VALUE;
    return STATUS_OK;
}

static void fill_entry(Parley__V1__RegistryEntry *out, const struct group_event *e)
{
    parley__v1__registry_entry__init(out);
    out->kind = entry_kind_to_wire(e->entry_kind);
    out->key = (char *)e->key;
    out->member = (char *)e->member;
    out->value.len = e->value_bytes;
    out->value.data = (uint8_t *)e->value;
}

/* --- Join, Watch --- */

static void registry_write(struct registry_call *c, const struct group_event *e, bool more)
{
    Parley__V1__RegistryEvent message = PARLEY__V1__REGISTRY_EVENT__INIT;
    Parley__V1__RegistryEntry entry;

    message.kind = registry_event_kinds[e->what];
    if (e->what == GROUP_PUT || e->what == GROUP_DELETED) {
        fill_entry(&entry, e);
        message.entry = &entry;
    } else {
        message.member = (char *)e->member;
    }
    if (e->what == GROUP_SYNCED && c->member.group != NULL)
        message.lease = group_member_lease(&c->member);
    call_write(c->base.call, &message.base, more);
}

static void registry_write_next(struct registry_call *c, struct group_listener *l)
{
    struct group_event *e;
    struct error err;

    if (c->base.is_over)
        return;
    if (l->is_moved) {
        (void)error_because(&err, STATUS_UNAVAILABLE, REASON_SERVER_DRAINING, NULL,
                            "the groups are at another parleyd now: join again");
        subscription_end(&c->base, &err);
        return;
    }
    if (l->is_over) {
        (void)error_because(&err, STATUS_EXHAUSTED, REASON_LIMIT_REACHED, NULL,
                            "the events are not taken: %d wait", GROUP_MAX_EVENTS);
        subscription_end(&c->base, &err);
        return;
    }
    e = group_next_event(l);
    if (e == NULL)
        return;
    registry_write(c, e, l->n_events > 0);
    group_event_unref(e);
}

static void join_write_ready(struct call *call, void *state)
{
    struct registry_call *c = state;
    struct error err;

    if (c->member.is_expired) {
        (void)error_set(&err, STATUS_DEADLINE, "the lease was not renewed for %" PRIu32 " ms",
                        c->member.lease_ms);
        subscription_end(&c->base, &err);
    } else if (c->member.group == NULL && !c->member.listener.is_moved)
        subscription_end(&c->base, NULL); /* it left */
    else
        registry_write_next(c, &c->member.listener);
}

static void registry_watch_write_ready(struct call *call, void *state)
{
    struct registry_call *c = state;

    registry_write_next(c, &c->listener);
}

static void join_notify(struct group_listener *l)
{
    call_notify(container_of(l, struct registry_call, member.listener)->base.call);
}

static void registry_watch_notify(struct group_listener *l)
{
    call_notify(container_of(l, struct registry_call, listener)->base.call);
}

static void registry_on_close(struct call *call, void *state, enum status why)
{
    struct registry_call *c = state;

    if (c->member.group != NULL)
        group_member_end(&c->member, true);
    group_unlisten(&c->listener);
    free(c);
}

static void registry_join(struct call *call, const Parley__V1__RegistryJoinRequest *m)
{
    static const struct call_handler handler = {.on_write_ready = join_write_ready,
                                                .drain = subscription_drain,
                                                .on_close = registry_on_close};
    struct server *server = call_server(call);
    struct registry_call *c = call_state(call, sizeof(*c));
    struct error err;

    if (c == NULL)
        return;
    subscription_start(&c->base, call, &handler);
    if (group_join(&c->member, server->groups, call_principal(call)->id, m->group, m->member,
                   m->lease_ms, join_notify, &err) != STATUS_OK) {
        c->member.group = NULL;
        subscription_end(&c->base, &err);
    }
}

static void registry_watch(struct call *call, const Parley__V1__RegistryWatchRequest *request)
{
    static const struct call_handler handler = {.on_write_ready = registry_watch_write_ready,
                                                .drain = subscription_drain,
                                                .on_close = registry_on_close};
    struct server *server = call_server(call);
    const char *name = request->group;
    struct registry_call *c = call_state(call, sizeof(*c));
    struct group *group;
    struct error err;

    if (c == NULL)
        return;
    subscription_start(&c->base, call, &handler);
    if (groups_find(&group, server->groups, call_principal(call)->id, name, &err) != STATUS_OK ||
        group_listen(&c->listener, group, registry_watch_notify, &err) != STATUS_OK)
        subscription_end(&c->base, &err);
}

/* --- what members do --- */

static enum status registry_member(struct group_member **out, struct call *call, uint64_t lease,
                                   struct error *err)
{
    return groups_member(out, call_server(call)->groups, call_principal(call)->id, lease, err);
}

static enum status registry_leave(struct call *call, const Parley__V1__RegistryLeaveRequest *m,
                                  Parley__V1__RegistryLeaveResponse *response, struct error *err)
{
    struct group_member *member;
    enum status rc = registry_member(&member, call, m->lease, err);

    if (rc == STATUS_OK) {
        struct call *join = container_of(member, struct registry_call, member)->base.call;

        group_member_end(member, false);
        call_notify(join);
    }
    return rc;
}

static enum status registry_renew(struct call *call, const Parley__V1__RegistryRenewRequest *m,
                                  Parley__V1__RegistryRenewResponse *response, struct error *err)
{
    struct group_member *member;
    enum status rc = registry_member(&member, call, m->lease, err);

    if (rc == STATUS_OK)
        group_member_renew(member);
    return rc;
}

static enum status registry_put(struct call *call, const Parley__V1__RegistryPutRequest *m,
                                Parley__V1__RegistryPutResponse *response, struct error *err)
{
    struct group_member *member;
    enum group_entry_kind kind = GROUP_VALUE;
    enum status rc = registry_member(&member, call, m->lease, err);

    if (rc == STATUS_OK)
        rc = entry_kind_from_wire(&kind, m->kind, err);
    if (rc == STATUS_OK)
        rc = group_put(member, kind, m->key, m->value.data, m->value.len, err);
    return rc;
}

static enum status registry_delete(struct call *call, const Parley__V1__RegistryDeleteRequest *m,
                                   Parley__V1__RegistryDeleteResponse *response, struct error *err)
{
    struct group_member *member;
    enum group_entry_kind kind = GROUP_VALUE;
    enum status rc = registry_member(&member, call, m->lease, err);

    if (rc == STATUS_OK)
        rc = entry_kind_from_wire(&kind, m->kind, err);
    if (rc == STATUS_OK)
        rc = group_delete(member, kind, m->key, err);
    return rc;
}

static enum status registry_get(struct call *call, const Parley__V1__RegistryGetRequest *m,
                                Parley__V1__RegistryGetResponse *response, struct error *err)
{
    struct server *server = call_server(call);
    Parley__V1__RegistryEntry *entry = arena_alloc(call_arena(call), 1, sizeof(*entry));
    const struct group_entry *found;
    enum group_entry_kind kind = GROUP_VALUE;
    struct group *group;
    enum status rc = groups_find(&group, server->groups, call_principal(call)->id, m->group, err);

    if (rc == STATUS_OK && entry == NULL)
        rc = error_no_memory(err, sizeof(*entry), "an entry");
    if (rc == STATUS_OK)
        rc = entry_kind_from_wire(&kind, m->kind, err);
    if (rc == STATUS_OK)
        rc = group_get(&found, group, kind, m->key, err);
    if (rc == STATUS_OK) {
        fill_entry(entry, found->put);
        response->entry = entry;
    }
    return rc;
}

static int member_names_compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static enum status registry_fill_list(Parley__V1__RegistryListResponse *out, const struct group *g,
                                      struct arena *arena, struct error *err)
{
    char **members = arena_alloc(arena, g->n_members + 1, sizeof(members[0]));
    Parley__V1__RegistryEntry *entries = arena_alloc(arena, g->n_entries + 1, sizeof(entries[0]));
    Parley__V1__RegistryEntry **list = arena_alloc(arena, g->n_entries + 1, sizeof(list[0]));

    if (members == NULL || entries == NULL || list == NULL)
        return error_no_memory(err, g->n_entries * sizeof(entries[0]), "a list of a group");
    for (struct link *l = list_first(&g->members); l != NULL; l = list_next(&g->members, l))
        members[out->n_members++] = container_of(l, struct group_member, link)->name;
    qsort(members, out->n_members, sizeof(members[0]), member_names_compare);
    for (struct link *l = list_first(&g->entries); l != NULL; l = list_next(&g->entries, l)) {
        Parley__V1__RegistryEntry *entry = &entries[out->n_entries];

        fill_entry(entry, container_of(l, struct group_entry, of_group)->put);
        entry->value.len = 0;
        list[out->n_entries++] = entry;
    }
    out->members = members;
    out->entries = list;
    return STATUS_OK;
}

static enum status registry_list(struct call *call, const Parley__V1__RegistryListRequest *request,
                                 Parley__V1__RegistryListResponse *response, struct error *err)
{
    struct server *server = call_server(call);
    const char *name = request->group;
    struct group *group;
    enum status rc = groups_find(&group, server->groups, call_principal(call)->id, name, err);

    if (rc == STATUS_OK)
        rc = registry_fill_list(response, group, call_arena(call), err);
    return rc;
}

/* --- Barrier --- */

static void barrier_then(struct future *f, const struct error *err, void *arg)
{
    struct barrier_call *b = arg;
    Parley__V1__RegistryBarrierResponse response = PARLEY__V1__REGISTRY_BARRIER_RESPONSE__INIT;

    if (b->base.is_over)
        return;
    b->base.is_over = true;
    response.epoch = b->epoch;
    call_answer(b->base.call, err->status, err, &response.base);
}

static void barrier_on_close(struct call *call, void *state, enum status why)
{
    struct barrier_call *b = state;

    group_wait_cancel(&b->wait);
    free(b);
}

static void registry_barrier(struct call *call, const Parley__V1__RegistryBarrierRequest *m)
{
    static const struct call_handler handler = {.drain = subscription_drain,
                                                .on_close = barrier_on_close};
    struct barrier_call *b = call_state(call, sizeof(*b));
    struct group_member *member;
    struct error err;

    if (b == NULL)
        return;
    b->base.call = call;
    b->epoch = m->epoch;
    call_set_handler(call, &handler, b);
    if (registry_member(&member, call, m->lease, &err) != STATUS_OK ||
        group_wait(&b->wait, member, m->name, m->epoch, m->n, barrier_then, b, &err) != STATUS_OK)
        subscription_end(&b->base, &err);
}

#define REGISTRY_SERVICE_METHODS(METHOD)                                                           \
    METHOD(SERVER_STREAM, KEY, "Registry/Join", registry_join_request, registry_event,             \
           registry_join)                                                                          \
    METHOD(ANSWER, KEY, "Registry/Renew", registry_renew_request, registry_renew_response,         \
           registry_renew)                                                                         \
    METHOD(ANSWER, KEY, "Registry/Leave", registry_leave_request, registry_leave_response,         \
           registry_leave)                                                                         \
    METHOD(SERVER_STREAM, KEY, "Registry/Watch", registry_watch_request, registry_event,           \
           registry_watch)                                                                         \
    METHOD(ANSWER, KEY, "Registry/Put", registry_put_request, registry_put_response, registry_put) \
    METHOD(ANSWER, KEY, "Registry/Delete", registry_delete_request, registry_delete_response,      \
           registry_delete)                                                                        \
    METHOD(ANSWER, KEY, "Registry/Get", registry_get_request, registry_get_response, registry_get) \
    METHOD(ANSWER, KEY, "Registry/List", registry_list_request, registry_list_response,            \
           registry_list)                                                                          \
    METHOD(UNARY, KEY, "Registry/Barrier", registry_barrier_request, registry_barrier_response,    \
           registry_barrier)

#define PARLEY_PLACE JOURNAL_PLACE_GROUPS
PLACED_TABLE(registry_service_methods, REGISTRY_SERVICE_METHODS)
