/* What clients put into the daemon, and its journal keeps: versioned values, and tables of items.
 */
#include "server/store/stores.h"

#include "server/cluster/places.h"
#include "server/config/config.h"
#include "server/part.h"
#include "server/replay/replays.h"
#include "server/server.h"

void part_start_keeper(struct keeper *keeper, struct part_host *host, struct alarm *alarm)
{
    const struct keeping keeping = {
        .journal = host->journal,
        .is_placed = journal_is_shared(host->journal),
        .on_ready = places_ready,
        .ready_self = &host->server->places->rows[keeper->type->kind],
        .interval_us = host->config->checkpoint_ms * 1000,
        .find_owner = part_find_principal,
        .find_self = host,
        .alarm = alarm,
        .on_idle = host->go_on,
        .idle_self = host,
    };

    keeper_start(keeper, &keeping);
}

static void stores_part_init(void *self, struct part_host *host, struct alarm *alarm)
{
    const struct place_holder holder = {
        .keeper = &((struct stores *)self)->keeper, .leave = stores_leave, .self = self};

    stores_init(self, &stores_keeper, host->env, part_bytes(host->config->store_bytes, 4));
    places_hold(host->server->places, JOURNAL_PLACE_KEYS, &holder);
}

static void stores_part_keep(void *self, struct part_host *host, struct alarm *alarm)
{
    part_start_keeper(&((struct stores *)self)->keeper, host, alarm);
}

static bool stores_part_is_kept(void *self)
{
    return keeper_is_idle(&((struct stores *)self)->keeper);
}

const struct part stores_part = {
    .size_bytes = sizeof(struct stores),
    .init = stores_part_init,
    .keep = stores_part_keep,
    .tick = stores_tick,
    .is_kept = stores_part_is_kept,
    .deinit = stores_deinit,
};

static void replays_part_init(void *self, struct part_host *host, struct alarm *alarm)
{
    const struct replays_config config = {
        .env = host->env,
        .max_bytes = part_bytes(host->config->replay_bytes, 2),
        .keeping = &replays_keeper,
        .alarm = alarm,
    };
    const struct place_holder holder = {
        .keeper = &((struct replays *)self)->keeper, .leave = replays_leave, .self = self};

    replays_init(self, &config);
    places_hold(host->server->places, JOURNAL_PLACE_TABLES, &holder);
}

static void replays_part_keep(void *self, struct part_host *host, struct alarm *alarm)
{
    part_start_keeper(&((struct replays *)self)->keeper, host, alarm);
}

static bool replays_part_is_kept(void *self)
{
    return keeper_is_idle(&((struct replays *)self)->keeper);
}

const struct part replays_part = {
    .size_bytes = sizeof(struct replays),
    .init = replays_part_init,
    .keep = replays_part_keep,
    .tick = replays_tick,
    .is_kept = replays_part_is_kept,
    .deinit = replays_deinit,
};
