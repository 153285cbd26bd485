/* parley.v1.Replay, what waits for no limiter: CreateTable, UpdatePriorities, ListTables, Clear,
 * DeleteTable, Checkpoint. */
#include <stdlib.h>

#include "server/api/parley/conversation_call.h"
#include "server/api/parley/replay_wire.h"
#include "server/api/parley/wire_sharing.h"
#include "server/api/services.h"
#include "server/replay/replays.h"
#include "server/server.h"

static void replay_create(struct call *call, const ProtobufCMessage *message, struct server *server)
{
    const Parley__V1__ReplayConfig *m =
        ((const Parley__V1__ReplayCreateTableRequest *)message)->config;
    Parley__V1__ReplayCreateTableResponse response = PARLEY__V1__REPLAY_CREATE_TABLE_RESPONSE__INIT;
    struct access_sharing sharing;
    struct table_config config;
    struct table *t;
    struct error err;
    enum status rc;

    if (m == NULL)
        rc = error_field(&err, "config", "is missing");
    else
        rc = replay_wire_config(&config, m, call_arena(call), &err);
    if (rc == STATUS_OK) {
        wire_sharing(&sharing, m->access);
        rc = replays_make(&t, server->replays, call_principal(call), m->table, &config, &sharing,
                          &err);
    }
    if (rc != STATUS_OK) {
        call_finish(call, &err);
        return;
    }
    response.epoch = t->epoch;
    call_reply(call, &response.base);
}

static void replay_update_priorities(struct call *call, const ProtobufCMessage *message,
                                     struct server *server)
{
    const Parley__V1__ReplayUpdatePrioritiesRequest *m =
        (const Parley__V1__ReplayUpdatePrioritiesRequest *)message;
    Parley__V1__ReplayUpdatePrioritiesResponse response =
        PARLEY__V1__REPLAY_UPDATE_PRIORITIES_RESPONSE__INIT;
    struct table *t;
    struct error err;
    size_t n_applied = 0;
    enum status rc =
        replays_find(&t, server->replays, call_principal(call), ACCESS_WRITE, m->table, &err);

    if (rc == STATUS_OK && m->n_priorities != m->n_keys)
        rc = error_field(&err, "priorities", "has %zu, there are %zu keys", m->n_priorities,
                         m->n_keys);
    if (rc == STATUS_OK)
        rc = table_update(t, m->epoch, m->keys, m->priorities, m->n_keys, &n_applied, &err);
    if (rc != STATUS_OK) {
        call_finish(call, &err);
        return;
    }
    response.applied = n_applied;
    response.ignored = m->n_keys - n_applied;
    call_reply(call, &response.base);
}

static void replay_list(struct call *call, const ProtobufCMessage *message, struct server *server)
{
    Parley__V1__ReplayListTablesResponse response = PARLEY__V1__REPLAY_LIST_TABLES_RESPONSE__INIT;
    const struct shared_names *all = &server->replays->tables;
    struct arena *arena = call_arena(call);
    const size_t n = all->by_name.n;
    Parley__V1__ReplayTableInfo *infos = arena_alloc(arena, n + 1, sizeof(infos[0]));
    Parley__V1__ReplayTableInfo **list = arena_alloc(arena, n + 1, sizeof(list[0]));
    char(*names)[SHARED_NAME_PATH_SIZE] = arena_alloc(arena, n + 1, sizeof(names[0]));
    struct error err;
    enum status rc = replays_ready(server->replays, &err);

    (void)message;
    if (rc == STATUS_OK && (infos == NULL || list == NULL || names == NULL))
        rc = error_no_memory(&err, n * sizeof(infos[0]), "a list of tables");
    for (struct link *l = list_first(&all->all); l != NULL && rc == STATUS_OK;
         l = list_next(&all->all, l)) {
        const struct table *t = replays_at(l);
        size_t i = response.n_tables;

        if (!shared_name_is_listed(&t->name, call_principal(call)))
            continue;
        rc = replay_wire_info(&infos[i], t, arena, &err);
        if (rc != STATUS_OK)
            break;
        shared_name_path(names[i], &t->name, call_principal(call));
        infos[i].config->table = names[i];
        list[i] = &infos[i];
        response.n_tables++;
    }
    if (rc != STATUS_OK) {
        call_finish(call, &err);
        return;
    }
    response.tables = list;
    call_reply(call, &response.base);
}

static void replay_clear(struct call *call, const ProtobufCMessage *message, struct server *server)
{
    const char *name = ((const Parley__V1__ReplayClearRequest *)message)->table;
    Parley__V1__ReplayClearResponse response = PARLEY__V1__REPLAY_CLEAR_RESPONSE__INIT;
    struct table *t;
    struct error err;

    if (replays_find(&t, server->replays, call_principal(call), ACCESS_WRITE, name, &err) !=
        STATUS_OK) {
        call_finish(call, &err);
        return;
    }
    replays_clear(server->replays, t);
    response.epoch = t->epoch;
    call_reply(call, &response.base);
}

static void replay_delete(struct call *call, const ProtobufCMessage *message, struct server *server)
{
    const char *name = ((const Parley__V1__ReplayDeleteTableRequest *)message)->table;
    Parley__V1__ReplayDeleteTableResponse response = PARLEY__V1__REPLAY_DELETE_TABLE_RESPONSE__INIT;
    struct table *t;
    struct error err;

    if (replays_find(&t, server->replays, call_principal(call), ACCESS_OWN, name, &err) !=
        STATUS_OK) {
        call_finish(call, &err);
        return;
    }
    if (replays_forget(server->replays, t, &err) != STATUS_OK) {
        call_finish(call, &err);
        return;
    }
    (void)error_because(&err, STATUS_NOT_FOUND, REASON_NONE, "table",
                        "the table '%.64s' was deleted", name);
    replays_delete(server->replays, t, &err);
    conversation_call_reply(call, server, &response.base);
}

/* --- Checkpoint --- */

struct replay_checkpoint {
    struct call *call;
    struct kept_wait wait;
};

static void replay_checkpointed(struct kept_wait *w, const struct error *err)
{
    Parley__V1__ReplayCheckpointResponse response = PARLEY__V1__REPLAY_CHECKPOINT_RESPONSE__INIT;
    struct replay_checkpoint *c = container_of(w, struct replay_checkpoint, wait);

    if (err->status != STATUS_OK)
        call_finish(c->call, err);
    else
        call_reply(c->call, &response.base);
}

static void replay_checkpoint_on_close(struct call *call, void *state, enum status why)
{
    struct replay_checkpoint *c = state;

    (void)call;
    (void)why;
    kept_leave(&c->wait);
    free(c);
}

static void replay_start_checkpoint(struct call *call, const ProtobufCMessage *message,
                                    struct server *server)
{
    static const struct call_handler handler = {.on_close = replay_checkpoint_on_close};
    const char *name = ((const Parley__V1__ReplayCheckpointRequest *)message)->table;
    struct replays *r = server->replays;
    struct replay_checkpoint *c;
    struct table *t;
    struct error err;

    if (replays_find(&t, r, call_principal(call), ACCESS_WRITE, name, &err) != STATUS_OK) {
        call_finish(call, &err);
        return;
    }
    c = call_state(call, sizeof(*c));
    if (c == NULL)
        return;
    *c = (struct replay_checkpoint){.call = call, .wait = {.done = replay_checkpointed}};
    call_set_handler(call, &handler, c);
    if (kept_settle(&r->keeper, &t->kept, &c->wait, &err) != STATUS_OK)
        call_finish(call, &err);
}

static const struct rpc rows[] = {
    {"/parley.v1.Replay/CreateTable", RPC_UNARY,
     &parley__v1__replay_create_table_request__descriptor,
     &parley__v1__replay_create_table_response__descriptor, replay_create, ACCESS_KEY},
    {"/parley.v1.Replay/UpdatePriorities", RPC_UNARY,
     &parley__v1__replay_update_priorities_request__descriptor,
     &parley__v1__replay_update_priorities_response__descriptor, replay_update_priorities,
     ACCESS_KEY},
    {"/parley.v1.Replay/ListTables", RPC_UNARY, &parley__v1__replay_list_tables_request__descriptor,
     &parley__v1__replay_list_tables_response__descriptor, replay_list, ACCESS_KEY},
    {"/parley.v1.Replay/Clear", RPC_UNARY, &parley__v1__replay_clear_request__descriptor,
     &parley__v1__replay_clear_response__descriptor, replay_clear, ACCESS_KEY},
    {"/parley.v1.Replay/DeleteTable", RPC_UNARY,
     &parley__v1__replay_delete_table_request__descriptor,
     &parley__v1__replay_delete_table_response__descriptor, replay_delete, ACCESS_KEY},
    {"/parley.v1.Replay/Checkpoint", RPC_UNARY, &parley__v1__replay_checkpoint_request__descriptor,
     &parley__v1__replay_checkpoint_response__descriptor, replay_start_checkpoint, ACCESS_KEY},
};

const struct rpc_table replay_rpcs = {rows, sizeof(rows) / sizeof(rows[0])};
