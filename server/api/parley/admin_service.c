/* parley.v1.Admin. */
#include <signal.h>
#include <unistd.h>

#include "parley/v1/admin.pb-c.h"

#include "base/env.h"
#include "server/api/parley/methods.h"
#include "server/api/parley/wire.h"
#include "server/conversation/conversations.h"
#include "server/model/models.h"
#include "server/server.h"

static Parley__V1__ServerState admin_state(enum server_state state)
{
    if (state == SERVER_LOADING)
        return PARLEY__V1__SERVER_STATE__SERVER_STATE_LOADING;
    return state == SERVER_SERVING ? PARLEY__V1__SERVER_STATE__SERVER_STATE_SERVING
                                   : PARLEY__V1__SERVER_STATE__SERVER_STATE_DRAINING;
}

static enum status admin_service_status(struct call *call,
                                        const Parley__V1__AdminStatusRequest *request,
                                        Parley__V1__AdminStatusResponse *response,
                                        struct error *err)
{
    struct server *server = call_server(call);
    size_t rss_bytes;

    if (uv_resident_set_memory(&rss_bytes) == 0)
        response->rss_bytes = rss_bytes;
    response->version = (char *)PARLEY_VERSION;
    response->uptime_ms = (env_now_us(server->env) - server->start_us) / 1000;
    response->state = admin_state(server->state);
    response->conversations = (uint32_t)server->conversations->n;
    response->calls = (uint32_t)server->calls.n_calls;
    response->turns = server->conversations->n_turns;
    response->pid = (uint32_t)getpid();
    return wire_models(&response->models, &response->n_models, server->models, false,
                       call_arena(call), err);
}

/* The signal comes behind the answer: the loop takes both. */
static enum status admin_service_drain(struct call *call,
                                       const Parley__V1__AdminDrainRequest *request,
                                       Parley__V1__AdminDrainResponse *response, struct error *err)
{
    response->turns = (uint32_t)call_server(call)->conversations->n_live;
    if (kill(getpid(), SIGTERM) != 0)
        return error_set(err, STATUS_INTERNAL, "the process cannot signal itself");
    return STATUS_OK;
}

#define ADMIN_SERVICE_METHODS(METHOD)                                                  \
    METHOD(ANSWER, ADMIN, "Admin/Status", admin_status_request, admin_status_response, \
           admin_service_status)                                                       \
    METHOD(ANSWER, ADMIN, "Admin/Drain", admin_drain_request, admin_drain_response,    \
           admin_service_drain)

PARLEY_TABLE(admin_service_methods, ADMIN_SERVICE_METHODS)
