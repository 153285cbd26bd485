/* parley.v1.Replay, what waits for no limiter: CreateTable, UpdatePriorities, ListTables, Clear,
 * DeleteTable, Checkpoint. */
#include <stdlib.h>

#include "server/api/parley/checkpoint_call.h"
#include "server/api/parley/conversation_call.h"
#include "server/api/parley/methods.h"
#include "server/api/parley/placed_call.h"
#include "server/api/parley/replay_wire.h"
#include "server/api/parley/wire_sharing.h"
#include "server/replay/replays.h"
#include "server/server.h"

static enum status replay_create(struct call *call,
                                 const Parley__V1__ReplayCreateTableRequest *request,
                                 Parley__V1__ReplayCreateTableResponse *response, struct error *err)
{
    struct server *server = call_server(call);
    const Parley__V1__ReplayConfig *m = request->config;
    struct access_sharing sharing;
    struct table_config config;
    struct table *t;
    enum status rc;

    if (m == NULL)
        rc = error_field(err, "config", "is missing");
    else
        rc = replay_wire_config(&config, m, call_arena(call), err);
    if (rc == STATUS_OK) {
        wire_sharing(&sharing, m->access);
        rc = replays_make(&t, server->replays, call_principal(call), m->table, &config, &sharing,
                          err);
    }
    if (rc != STATUS_OK)
        return rc;
    response->epoch = t->epoch;
    return STATUS_OK;
}

static enum status replay_update_priorities(struct call *call,
                                            const Parley__V1__ReplayUpdatePrioritiesRequest *m,
                                            Parley__V1__ReplayUpdatePrioritiesResponse *response,
                                            struct error *err)
{
    struct server *server = call_server(call);
    struct table *t;
    size_t n_applied = 0;
    enum status rc =
        replays_find(&t, server->replays, call_principal(call), ACCESS_WRITE, m->table, err);

    if (rc == STATUS_OK && m->n_priorities != m->n_keys)
        rc = error_field(err, "priorities", "has %zu, there are %zu keys", m->n_priorities,
                         m->n_keys);
    if (rc == STATUS_OK)
        rc = table_update(t, m->epoch, m->keys, m->priorities, m->n_keys, &n_applied, err);
    if (rc != STATUS_OK)
        return rc;
    response->applied = n_applied;
    response->ignored = m->n_keys - n_applied;
    return STATUS_OK;
}

static enum status replay_list(struct call *call,
                               const Parley__V1__ReplayListTablesRequest *request,
                               Parley__V1__ReplayListTablesResponse *response, struct error *err)
{
    struct server *server = call_server(call);
    const struct shared_names *all = &server->replays->tables;
    struct arena *arena = call_arena(call);
    const size_t n = all->by_name.n;
    Parley__V1__ReplayTableInfo *infos = arena_alloc(arena, n + 1, sizeof(infos[0]));
    Parley__V1__ReplayTableInfo **list = arena_alloc(arena, n + 1, sizeof(list[0]));
    char(*names)[SHARED_NAME_PATH_SIZE] = arena_alloc(arena, n + 1, sizeof(names[0]));
    enum status rc = replays_ready(server->replays, err);

    if (rc == STATUS_OK && (infos == NULL || list == NULL || names == NULL))
        rc = error_no_memory(err, n * sizeof(infos[0]), "a list of tables");
    for (struct link *l = list_first(&all->all); l != NULL && rc == STATUS_OK;
         l = list_next(&all->all, l)) {
        const struct table *t = replays_at(l);
        size_t i = response->n_tables;

        if (!shared_name_is_listed(&t->name, call_principal(call)))
            continue;
        rc = replay_wire_info(&infos[i], t, arena, err);
        if (rc != STATUS_OK)
            break;
        shared_name_path(names[i], &t->name, call_principal(call));
        infos[i].config->table = names[i];
        list[i] = &infos[i];
        response->n_tables++;
    }
    if (rc != STATUS_OK)
        return rc;
    response->tables = list;
    return STATUS_OK;
}

static enum status replay_clear(struct call *call, const Parley__V1__ReplayClearRequest *request,
                                Parley__V1__ReplayClearResponse *response, struct error *err)
{
    struct server *server = call_server(call);
    const char *name = request->table;
    struct table *t;

    if (replays_find(&t, server->replays, call_principal(call), ACCESS_WRITE, name, err) !=
        STATUS_OK)
        return err->status;
    replays_clear(server->replays, t);
    response->epoch = t->epoch;
    return STATUS_OK;
}

static enum status replay_delete(struct call *call,
                                 const Parley__V1__ReplayDeleteTableRequest *request,
                                 Parley__V1__ReplayDeleteTableResponse *response, struct error *err)
{
    struct server *server = call_server(call);
    const char *name = request->table;
    struct table *t;

    if (replays_find(&t, server->replays, call_principal(call), ACCESS_OWN, name, err) != STATUS_OK)
        return err->status;
    if (replays_forget(server->replays, t, err) != STATUS_OK)
        return err->status;
    (void)error_because(err, STATUS_NOT_FOUND, REASON_NONE, "table",
                        "the table '%.64s' was deleted", name);
    replays_delete(server->replays, t, err);
    return STATUS_OK;
}

/* --- Checkpoint --- */

static void replay_start_checkpoint(struct call *call,
                                    const Parley__V1__ReplayCheckpointRequest *request)
{
    static const Parley__V1__ReplayCheckpointResponse response =
        PARLEY__V1__REPLAY_CHECKPOINT_RESPONSE__INIT;
    struct replays *r = call_server(call)->replays;
    struct checkpoint_call *c;
    struct table *t;
    struct error err;

    if (replays_find(&t, r, call_principal(call), ACCESS_WRITE, request->table, &err) !=
        STATUS_OK) {
        call_finish(call, &err);
        return;
    }
    c = checkpoint_call_make(call, &response.base);
    if (c != NULL && kept_settle(&r->keeper, &t->kept, &c->wait, &err) != STATUS_OK)
        checkpoint_call_end(c, &err);
}

#define REPLAY_SERVICE_METHODS(METHOD)                                                             \
    METHOD(ANSWER, KEY, "Replay/CreateTable", replay_create_table_request,                         \
           replay_create_table_response, replay_create)                                            \
    METHOD(ANSWER, KEY, "Replay/UpdatePriorities", replay_update_priorities_request,               \
           replay_update_priorities_response, replay_update_priorities)                            \
    METHOD(ANSWER, KEY, "Replay/ListTables", replay_list_tables_request,                           \
           replay_list_tables_response, replay_list)                                               \
    METHOD(ANSWER, KEY, "Replay/Clear", replay_clear_request, replay_clear_response, replay_clear) \
    METHOD(KEPT, KEY, "Replay/DeleteTable", replay_delete_table_request,                           \
           replay_delete_table_response, replay_delete)                                            \
    METHOD(UNARY, KEY, "Replay/Checkpoint", replay_checkpoint_request, replay_checkpoint_response, \
           replay_start_checkpoint)

#define PARLEY_PLACE JOURNAL_PLACE_TABLES
PLACED_TABLE(replay_service_methods, REPLAY_SERVICE_METHODS)
