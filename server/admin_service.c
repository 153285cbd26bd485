/* parley.v1.Admin. */
#include <unistd.h>

#include "parley/v1/admin.pb-c.h"

#include "server/daemon.h"
#include "server/services.h"
#include "server/wire.h"

static void status(struct call *call, const ProtobufCMessage *message, struct daemon *d)
{
    Parley__V1__StatusResponse response = PARLEY__V1__STATUS_RESPONSE__INIT;
    Parley__V1__Model *models[DAEMON_MAX_MODELS];
    struct port_stats stats;
    struct error err;
    size_t rss_bytes;

    (void)message;
    for (size_t i = 0; i < d->n_models; i++) {
        if (wire_model(&models[i], d->models[i], i == 0, call_arena(call), &err) != STATUS_OK) {
            call_finish(call, &err);
            return;
        }
    }
    port_stats(d->port, &stats);
    if (uv_resident_set_memory(&rss_bytes) == 0)
        response.rss_bytes = rss_bytes;
    response.version = (char *)PARLEY_VERSION;
    response.uptime_ms = (env_now_us(&d->env) - d->start_us) / 1000;
    response.state = (char *)daemon_state_name(d);
    response.conversations = (uint32_t)d->conversations.n;
    response.calls = (uint32_t)stats.n_calls;
    response.turns = d->conversations.n_turns;
    response.pid = (uint32_t)getpid();
    response.models = models;
    response.n_models = d->n_models;
    call_reply(call, &response.base);
}

const struct rpc admin_rpcs[N_ADMIN_RPCS] = {
    {"/parley.v1.Admin/Status", RPC_UNARY, &parley__v1__status_request__descriptor,
     &parley__v1__status_response__descriptor, status},
};
