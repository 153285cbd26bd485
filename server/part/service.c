/* The chat service: its people, and the agents of their tasks. */
#include "server/service/service.h"

#include "server/access/access.h"
#include "server/part.h"
#include "server/server.h"
#include "server/service/agents.h"
#include "server/service/log.h"

struct service_part {
    struct chat_service service; /* first: the registry */
    struct service_agents_host agents;
    struct part_host *host;
};

static bool service_part_principal(void *arg, uint32_t *out)
{
    struct service_part *p = arg;
    const char *name = p->service.config.plan->principal;
    const struct principal *found = part_find_principal(p->host, name == NULL ? "" : name);

    if (found == NULL)
        return false;
    *out = found->id;
    return true;
}

static void service_part_init(void *self, struct part_host *host, struct alarm *alarm)
{
    struct service_part *p = self;
    struct service_config config = {
        .plan = host->service_plan,
        .env = host->env,
        .alarm = alarm,
        .agents = &service_conversations,
        .agents_self = &p->agents,
        .work = service_agents_work,
    };

    p->host = host;
    p->agents = (struct service_agents_host){
        .conversations = host->server->conversations,
        .models = host->server->models,
        .service = &p->service,
        .principal = service_part_principal,
        .principal_arg = p,
    };
    service_agents_host_init(&p->agents);
    if (host->service_log != NULL) {
        service_log_begin(host->service_log, host->loop, host->go_on, host);
        config.log = service_log_line;
        config.log_arg = host->service_log;
        config.metadata_path = service_log_metadata_path(host->service_log);
    }
    service_init(&p->service, &config);
}

static void service_part_keep(void *self, struct part_host *host, struct alarm *alarm)
{
    const struct service_storage storage = {
        .journal = host->journal,
        .unix_ms = part_unix_ms,
        .arrived = part_rooms_arrived,
        .self = host,
    };

    service_keep(&((struct service_part *)self)->service, &storage);
}

static bool service_part_is_idle(const void *self)
{
    return service_log_is_idle(((const struct service_part *)self)->host->service_log);
}

const struct part service_part = {
    .size_bytes = sizeof(struct service_part),
    .init = service_part_init,
    .keep = service_part_keep,
    .tick = service_tick,
    .drain = service_drain,
    .end = service_end,
    .is_idle = service_part_is_idle,
    .deinit = service_deinit,
};
