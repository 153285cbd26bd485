/* Rooms of people and agents. */
#include "server/room/rooms.h"

#include <time.h>

#include "server/part.h"
#include "server/server.h"

static uint64_t rooms_part_unix_ms(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_REALTIME, &t); /* cannot fail for this clock */
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void rooms_part_init(void *self, struct part_host *host, struct alarm *alarm)
{
    rooms_init(self, host->env, rooms_part_unix_ms, alarm);
    rooms_set_agents(self, host->server->conversations, host->server->models);
}

const struct part rooms_part = {
    .size_bytes = sizeof(struct rooms),
    .init = rooms_part_init,
    .tick = rooms_tick,
    .drain = rooms_drain,
    .end = rooms_end,
    .deinit = rooms_deinit,
};
