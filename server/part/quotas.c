/* What all daemons together have used of quotas. */
#include "server/cluster/shared_quotas.h"

#include "server/part.h"
#include "server/server.h"

static void quotas_part_init(void *self, struct part_host *host, struct alarm *alarm)
{
    struct shared_quotas *q = self;

    q->env = host->env;
    q->alarm = alarm;
}

static void quotas_part_keep(void *self, struct part_host *host, struct alarm *alarm)
{
    if (journal_is_shared(host->journal))
        shared_quotas_start(self, host->journal, host->server->access);
}

/* The journal stops behind the parts. */
static bool quotas_part_stop(void *self)
{
    struct shared_quotas *q = self;

    q->journal = NULL;
    journal_leave(&q->wait);
    return true;
}

const struct part quotas_part = {
    .size_bytes = sizeof(struct shared_quotas),
    .init = quotas_part_init,
    .keep = quotas_part_keep,
    .tick = shared_quotas_tick,
    .stop = quotas_part_stop,
    .deinit = shared_quotas_deinit,
};
