/* parley.v1.Cluster, but for what daemons ask each other. */
#include "parley/v1/cluster.pb-c.h"

#include "server/api/parley/methods.h"
#include "server/conversation/conversations.h"
#include "server/journal/journal.h"
#include "server/server.h"

struct cluster_list {
    struct journal_wait wait;
    struct call *call;
};

static const Parley__V1__ClusterPlace cluster_places[JOURNAL_N_PLACES] = {
    [JOURNAL_PLACE_PARAMS] = PARLEY__V1__CLUSTER_PLACE__CLUSTER_PLACE_PARAMS,
    [JOURNAL_PLACE_KEYS] = PARLEY__V1__CLUSTER_PLACE__CLUSTER_PLACE_STORE,
    [JOURNAL_PLACE_TABLES] = PARLEY__V1__CLUSTER_PLACE__CLUSTER_PLACE_REPLAY,
    [JOURNAL_PLACE_GROUPS] = PARLEY__V1__CLUSTER_PLACE__CLUSTER_PLACE_REGISTRY,
    [JOURNAL_PLACE_WORK] = PARLEY__V1__CLUSTER_PLACE__CLUSTER_PLACE_WORK,
    [JOURNAL_PLACE_ROOMS] = PARLEY__V1__CLUSTER_PLACE__CLUSTER_PLACE_ROOMS,
};

static enum status cluster_list_fill(Parley__V1__ClusterListResponse *out,
                                     const struct journal_members *from, struct arena *arena,
                                     struct error *err)
{
    Parley__V1__ClusterDaemon *rows = arena_alloc(arena, from->n + 1, sizeof(*rows));

    out->daemons = arena_alloc(arena, from->n + 1, sizeof(*out->daemons));
    if (rows == NULL || out->daemons == NULL)
        return error_no_memory(err, from->n * sizeof(*rows), "a list");
    for (size_t i = 0; i < from->n; i++) {
        const struct journal_member *m = &from->rows[i];

        parley__v1__cluster_daemon__init(&rows[i]);
        rows[i].id = (char *)m->peer.id;
        rows[i].name = (char *)m->name;
        rows[i].address = (char *)m->peer.address;
        rows[i].lease_ms = m->lease_ms;
        rows[i].up_ms = m->up_ms;
        rows[i].conversations = m->n_conversations;
        rows[i].is_self = m->is_self;
        rows[i].lag_ms = m->lag_ms;
        rows[i].places = arena_alloc(arena, JOURNAL_N_PLACES, sizeof(rows[i].places[0]));
        if (rows[i].places == NULL)
            return error_no_memory(err, JOURNAL_N_PLACES, "a list");
        for (unsigned k = 0; k < JOURNAL_N_PLACES; k++)
            if ((m->places >> k & 1) != 0)
                rows[i].places[rows[i].n_places++] = cluster_places[k];
        out->daemons[i] = &rows[i];
    }
    out->n_daemons = from->n;
    out->free_conversations = from->n_free;
    return STATUS_OK;
}

static void on_members(void *arg, const struct journal_members *members, const struct error *err)
{
    Parley__V1__ClusterListResponse response = PARLEY__V1__CLUSTER_LIST_RESPONSE__INIT;
    struct cluster_list *l = arg;
    struct error why = *err;
    enum status rc = why.status;

    if (rc == STATUS_OK)
        rc = cluster_list_fill(&response, members, call_arena(l->call), &why);
    call_answer(l->call, rc, &why, &response.base);
}

static void cluster_list_on_close(struct call *call, void *state, enum status why)
{
    struct cluster_list *l = state;

    journal_leave(&l->wait);
}

static void cluster_service_list(struct call *call, const Parley__V1__ClusterListRequest *request)
{
    static const struct call_handler handler = {.on_close = cluster_list_on_close};
    struct journal *journal = call_server(call)->conversations->keeping.journal;
    struct cluster_list *l = arena_alloc(call_arena(call), 1, sizeof(*l));
    struct error err;

    if (l == NULL)
        (void)error_no_memory(&err, sizeof(*l), "a call");
    else if (!journal_is_shared(journal))
        (void)error_set(&err, STATUS_PRECONDITION,
                        "this parleyd shares its data with no other: that needs --data "
                        "postgresql://…");
    if (l == NULL || !journal_is_shared(journal)) {
        call_finish(call, &err);
        return;
    }
    l->call = call;
    call_set_handler(call, &handler, l);
    journal_list_members(journal, &l->wait, on_members, l);
}

#define CLUSTER_SERVICE_METHODS(METHOD)                                               \
    METHOD(UNARY, ADMIN, "Cluster/List", cluster_list_request, cluster_list_response, \
           cluster_service_list)

PARLEY_TABLE(cluster_service_methods, CLUSTER_SERVICE_METHODS)
