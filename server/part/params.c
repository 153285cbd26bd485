/* Sets of parameters, and what the journal keeps of them. */
#include "server/params/params.h"

#include "server/api/services.h"
#include "server/cluster/places.h"
#include "server/config/config.h"
#include "server/params/checkpoint.h"
#include "server/part.h"
#include "server/server.h"
#include "server/stop_signal.h"

static void params_part_init(void *self, struct part_host *host, struct alarm *alarm)
{
    const struct place_holder holder = {
        .keeper = &((struct params_sets *)self)->keeper, .leave = params_sets_leave, .self = self};
    struct params_sets *all = self;

    params_sets_init(all, &params_keeper, host->loop, host->env,
                     part_bytes(host->config->params_bytes, 2));
    all->quota_of = part_quota;
    all->quota_arg = host;
    all->on_idle = host->go_on;
    all->idle_arg = host;
    places_hold(host->server->places, JOURNAL_PLACE_PARAMS, &holder);
}

static void params_part_keep(void *self, struct part_host *host, struct alarm *alarm)
{
    struct params_sets *all = self;

    all->checkpoint_rounds = host->config->checkpoint_rounds;
    all->read_config = services_read_params;
    part_start_keeper(&all->keeper, host, alarm);
}

static void params_part_configure(void *self, const struct config *to)
{
    ((struct params_sets *)self)->checkpoint_rounds = to->checkpoint_rounds;
}

/* What is kept is written whole, as long as that takes. */
static bool params_part_stop(void *self)
{
    struct params_sets *all = self;

    stop_signal_allow(0);
    if (!params_sets_are_kept(all))
        return false;
    params_sets_stop(all);
    return all->names.limit.held == 0;
}

static void params_part_deinit(void *self)
{
    params_sets_deinit(self);
}

const struct part params_part = {
    .size_bytes = sizeof(struct params_sets),
    .init = params_part_init,
    .keep = params_part_keep,
    .configure = params_part_configure,
    .stop = params_part_stop,
    .deinit = params_part_deinit,
};
