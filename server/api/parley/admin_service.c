/* parley.v1.Admin. */
#include <unistd.h>

#include "parley/v1/admin.pb-c.h"

#include "base/env.h"
#include "server/api/parley/wire.h"
#include "server/api/services.h"
#include "server/conversation/conversations.h"
#include "server/model/models.h"
#include "server/rpc/port.h"
#include "server/server.h"

static Parley__V1__ServerState admin_state(enum server_state state)
{
    if (state == SERVER_LOADING)
        return PARLEY__V1__SERVER_STATE__SERVER_STATE_LOADING;
    return state == SERVER_SERVING ? PARLEY__V1__SERVER_STATE__SERVER_STATE_SERVING
                                   : PARLEY__V1__SERVER_STATE__SERVER_STATE_DRAINING;
}

static void admin_service_status(struct call *call, const ProtobufCMessage *message,
                                 struct server *server)
{
    Parley__V1__AdminStatusResponse response = PARLEY__V1__ADMIN_STATUS_RESPONSE__INIT;
    Parley__V1__Model *models[MODELS_MAX_LOADED];
    struct port_stats stats = {0};
    struct error err;
    size_t rss_bytes;

    (void)message;
    for (size_t i = 0; i < server->models->n_loaded; i++) {
        if (wire_model(&models[i], server->models->loaded[i], i == 0, call_arena(call), &err) !=
            STATUS_OK) {
            call_finish(call, &err);
            return;
        }
    }
    port_add_stats(server->port, &stats);
    port_add_stats(server->admin_port, &stats);
    if (uv_resident_set_memory(&rss_bytes) == 0)
        response.rss_bytes = rss_bytes;
    response.version = (char *)PARLEY_VERSION;
    response.uptime_ms = (env_now_us(server->env) - server->start_us) / 1000;
    response.state = admin_state(server->state);
    response.conversations = (uint32_t)server->conversations->n;
    response.calls = (uint32_t)stats.n_calls;
    response.turns = server->conversations->n_turns;
    response.pid = (uint32_t)getpid();
    response.models = models;
    response.n_models = server->models->n_loaded;
    call_reply(call, &response.base);
}

static const struct rpc rows[] = {
    {"/parley.v1.Admin/Status", RPC_UNARY, &parley__v1__admin_status_request__descriptor,
     &parley__v1__admin_status_response__descriptor, admin_service_status, ACCESS_ADMIN},
};

const struct rpc_table admin_rpcs = {rows, sizeof(rows) / sizeof(rows[0])};
