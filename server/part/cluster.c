/* The other daemons that share the journal. */
#include "server/cluster/cluster.h"

#include "server/config/config.h"
#include "server/part.h"
#include "server/server.h"

static void cluster_part_init(void *self, struct part_host *host, struct alarm *alarm)
{
    struct cluster *c = self;

    list_init(&c->calls);
    list_init(&c->watchers);
    c->env = host->env;
    c->alarm = alarm;
    c->stopped_arg = host;
}

static void cluster_part_keep(void *self, struct part_host *host, struct alarm *alarm)
{
    const struct config *c = host->config;
    const struct outgoing_config config = {.certificate = c->tls_cert,
                                           .private_key = c->tls_key,
                                           .ca = c->cluster_ca != NULL ? c->cluster_ca
                                                                       : c->tls_client_ca};
    struct cluster *cluster = self;
    struct error err;

    cluster->access = host->server->access;
    if (journal_is_shared(host->journal) &&
        cluster_open(cluster, host->loop, host->journal, &config, &err) != STATUS_OK)
        host->fail(host, &err);
}

static void cluster_part_stopped(void *host)
{
    ((struct part_host *)host)->go_on(host);
}

static bool cluster_part_stop(void *self)
{
    return cluster_stop(self, cluster_part_stopped, ((struct cluster *)self)->stopped_arg);
}

const struct part cluster_part = {
    .size_bytes = sizeof(struct cluster),
    .init = cluster_part_init,
    .keep = cluster_part_keep,
    .tick = cluster_tick,
    .drain = cluster_drain,
    .stop = cluster_part_stop,
};
