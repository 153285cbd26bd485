/* parley.v1.Registry. A member is its Join call: the call's end, by whichever side, is the
 * member's; a lease that is not renewed ends both. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "parley/v1/registry.pb-c.h"
#include "server/api/services.h"
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

    (void)call;
    if (c->member.is_expired) {
        (void)error_set(&err, STATUS_DEADLINE, "the lease was not renewed for %" PRIu32 " ms",
                        c->member.lease_ms);
        subscription_end(&c->base, &err);
    } else if (c->member.group == NULL)
        subscription_end(&c->base, NULL); /* it left */
    else
        registry_write_next(c, &c->member.listener);
}

static void registry_watch_write_ready(struct call *call, void *state)
{
    struct registry_call *c = state;

    (void)call;
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

    (void)call;
    (void)why;
    if (c->member.group != NULL)
        group_member_end(&c->member, true);
    group_unlisten(&c->listener);
    free(c);
}

static void registry_join(struct call *call, const ProtobufCMessage *message, struct server *server)
{
    static const struct call_handler handler = {.on_write_ready = join_write_ready,
                                                .drain = subscription_drain,
                                                .on_close = registry_on_close};
    const Parley__V1__RegistryJoinRequest *m = (const Parley__V1__RegistryJoinRequest *)message;
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

static void registry_watch(struct call *call, const ProtobufCMessage *message,
                           struct server *server)
{
    static const struct call_handler handler = {.on_write_ready = registry_watch_write_ready,
                                                .drain = subscription_drain,
                                                .on_close = registry_on_close};
    const char *name = ((const Parley__V1__RegistryWatchRequest *)message)->group;
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

static void registry_answer(struct call *call, enum status rc, const ProtobufCMessage *response,
                            const struct error *err)
{
    if (rc == STATUS_OK)
        call_reply(call, response);
    else
        call_finish(call, err);
}

static void registry_leave(struct call *call, const ProtobufCMessage *message,
                           struct server *server)
{
    const Parley__V1__RegistryLeaveRequest *m = (const Parley__V1__RegistryLeaveRequest *)message;
    Parley__V1__RegistryLeaveResponse response = PARLEY__V1__REGISTRY_LEAVE_RESPONSE__INIT;
    struct group_member *member;
    struct error err;
    enum status rc = registry_member(&member, call, m->lease, &err);

    (void)server;
    if (rc == STATUS_OK) {
        struct call *join = container_of(member, struct registry_call, member)->base.call;

        group_member_end(member, false);
        call_notify(join);
    }
    registry_answer(call, rc, &response.base, &err);
}

static void registry_renew(struct call *call, const ProtobufCMessage *message,
                           struct server *server)
{
    const Parley__V1__RegistryRenewRequest *m = (const Parley__V1__RegistryRenewRequest *)message;
    Parley__V1__RegistryRenewResponse response = PARLEY__V1__REGISTRY_RENEW_RESPONSE__INIT;
    struct group_member *member;
    struct error err;
    enum status rc = registry_member(&member, call, m->lease, &err);

    (void)server;
    if (rc == STATUS_OK)
        group_member_renew(member);
    registry_answer(call, rc, &response.base, &err);
}

static void registry_put(struct call *call, const ProtobufCMessage *message, struct server *server)
{
    const Parley__V1__RegistryPutRequest *m = (const Parley__V1__RegistryPutRequest *)message;
    Parley__V1__RegistryPutResponse response = PARLEY__V1__REGISTRY_PUT_RESPONSE__INIT;
    struct group_member *member;
    enum group_entry_kind kind = GROUP_VALUE;
    struct error err;
    enum status rc = registry_member(&member, call, m->lease, &err);

    (void)server;
    if (rc == STATUS_OK)
        rc = entry_kind_from_wire(&kind, m->kind, &err);
    if (rc == STATUS_OK)
        rc = group_put(member, kind, m->key, m->value.data, m->value.len, &err);
    registry_answer(call, rc, &response.base, &err);
}

static void registry_delete(struct call *call, const ProtobufCMessage *message,
                            struct server *server)
{
    const Parley__V1__RegistryDeleteRequest *m = (const Parley__V1__RegistryDeleteRequest *)message;
    Parley__V1__RegistryDeleteResponse response = PARLEY__V1__REGISTRY_DELETE_RESPONSE__INIT;
    struct group_member *member;
    enum group_entry_kind kind = GROUP_VALUE;
    struct error err;
    enum status rc = registry_member(&member, call, m->lease, &err);

    (void)server;
    if (rc == STATUS_OK)
        rc = entry_kind_from_wire(&kind, m->kind, &err);
    if (rc == STATUS_OK)
        rc = group_delete(member, kind, m->key, &err);
    registry_answer(call, rc, &response.base, &err);
}

static void registry_get(struct call *call, const ProtobufCMessage *message, struct server *server)
{
    const Parley__V1__RegistryGetRequest *m = (const Parley__V1__RegistryGetRequest *)message;
    Parley__V1__RegistryGetResponse response = PARLEY__V1__REGISTRY_GET_RESPONSE__INIT;
    Parley__V1__RegistryEntry entry;
    const struct group_entry *found;
    enum group_entry_kind kind = GROUP_VALUE;
    struct group *group;
    struct error err;
    enum status rc = groups_find(&group, server->groups, call_principal(call)->id, m->group, &err);

    if (rc == STATUS_OK)
        rc = entry_kind_from_wire(&kind, m->kind, &err);
    if (rc == STATUS_OK)
        rc = group_get(&found, group, kind, m->key, &err);
    if (rc == STATUS_OK) {
        fill_entry(&entry, found->put);
        response.entry = &entry;
    }
    registry_answer(call, rc, &response.base, &err);
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

static void registry_list(struct call *call, const ProtobufCMessage *message, struct server *server)
{
    const char *name = ((const Parley__V1__RegistryListRequest *)message)->group;
    Parley__V1__RegistryListResponse response = PARLEY__V1__REGISTRY_LIST_RESPONSE__INIT;
    struct group *group;
    struct error err;
    enum status rc = groups_find(&group, server->groups, call_principal(call)->id, name, &err);

    if (rc == STATUS_OK)
        rc = registry_fill_list(&response, group, call_arena(call), &err);
    registry_answer(call, rc, &response.base, &err);
}

/* --- Barrier --- */

static void barrier_then(struct future *f, const struct error *err, void *arg)
{
    struct barrier_call *b = arg;
    Parley__V1__RegistryBarrierResponse response = PARLEY__V1__REGISTRY_BARRIER_RESPONSE__INIT;

    (void)f;
    if (b->base.is_over)
        return;
    b->base.is_over = true;
    response.epoch = b->epoch;
    registry_answer(b->base.call, err->status, &response.base, err);
}

static void barrier_on_close(struct call *call, void *state, enum status why)
{
    struct barrier_call *b = state;

    (void)call;
    (void)why;
    group_wait_cancel(&b->wait);
    free(b);
}

static void registry_barrier(struct call *call, const ProtobufCMessage *message,
                             struct server *server)
{
    static const struct call_handler handler = {.drain = subscription_drain,
                                                .on_close = barrier_on_close};
    const Parley__V1__RegistryBarrierRequest *m =
        (const Parley__V1__RegistryBarrierRequest *)message;
    struct barrier_call *b = call_state(call, sizeof(*b));
    struct group_member *member;
    struct error err;

    (void)server;
    if (b == NULL)
        return;
    b->base.call = call;
    b->epoch = m->epoch;
    call_set_handler(call, &handler, b);
    if (registry_member(&member, call, m->lease, &err) != STATUS_OK ||
        group_wait(&b->wait, member, m->name, m->epoch, m->n, barrier_then, b, &err) != STATUS_OK)
        subscription_end(&b->base, &err);
}

static const struct rpc rows[] = {
    {"/parley.v1.Registry/Join", RPC_SERVER_STREAM, &parley__v1__registry_join_request__descriptor,
     &parley__v1__registry_event__descriptor, registry_join, ACCESS_KEY},
    {"/parley.v1.Registry/Renew", RPC_UNARY, &parley__v1__registry_renew_request__descriptor,
     &parley__v1__registry_renew_response__descriptor, registry_renew, ACCESS_KEY},
    {"/parley.v1.Registry/Leave", RPC_UNARY, &parley__v1__registry_leave_request__descriptor,
     &parley__v1__registry_leave_response__descriptor, registry_leave, ACCESS_KEY},
    {"/parley.v1.Registry/Watch", RPC_SERVER_STREAM,
     &parley__v1__registry_watch_request__descriptor, &parley__v1__registry_event__descriptor,
     registry_watch, ACCESS_KEY},
    {"/parley.v1.Registry/Put", RPC_UNARY, &parley__v1__registry_put_request__descriptor,
     &parley__v1__registry_put_response__descriptor, registry_put, ACCESS_KEY},
    {"/parley.v1.Registry/Delete", RPC_UNARY, &parley__v1__registry_delete_request__descriptor,
     &parley__v1__registry_delete_response__descriptor, registry_delete, ACCESS_KEY},
    {"/parley.v1.Registry/Get", RPC_UNARY, &parley__v1__registry_get_request__descriptor,
     &parley__v1__registry_get_response__descriptor, registry_get, ACCESS_KEY},
    {"/parley.v1.Registry/List", RPC_UNARY, &parley__v1__registry_list_request__descriptor,
     &parley__v1__registry_list_response__descriptor, registry_list, ACCESS_KEY},
    {"/parley.v1.Registry/Barrier", RPC_UNARY, &parley__v1__registry_barrier_request__descriptor,
     &parley__v1__registry_barrier_response__descriptor, registry_barrier, ACCESS_KEY},
};

const struct rpc_table registry_rpcs = {rows, sizeof(rows) / sizeof(rows[0])};
