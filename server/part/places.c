/* Which daemon has what one of them has as a whole. */
#include "server/cluster/places.h"

#include "server/part.h"

static void places_part_init(void *self, struct part_host *host, struct alarm *alarm)
{
    places_init(self, host->env, alarm);
}

const struct part places_part = {
    .size_bytes = sizeof(struct places),
    .init = places_part_init,
    .tick = places_tick,
    .drain = places_drain,
};
