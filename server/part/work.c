/* Tasks, and the workers that compute them. */
#include "server/work/work.h"

#include "server/cluster/places.h"
#include "server/config/config.h"
#include "server/part.h"
#include "server/server.h"

static void work_part_init(void *self, struct part_host *host, struct alarm *alarm)
{
    const struct work_config config = {
        .env = host->env,
        .silence_us = host->config->attach_timeout_ms * 1000,
        .may_attach = part_may_attach(host),
        .max_bytes = host->config->work_bytes,
        .weight = part_weight,
        .weight_self = host,
        .alarm = alarm,
    };
    const struct place_holder holder = {.leave = work_leave, .self = self};

    work_init(self, &config);
    places_hold(host->server->places, JOURNAL_PLACE_WORK, &holder);
}

const struct part work_part = {
    .size_bytes = sizeof(struct work_table),
    .init = work_part_init,
    .tick = work_tick,
    .end = work_end,
    .deinit = work_deinit,
};
