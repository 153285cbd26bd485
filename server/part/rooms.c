/* Rooms of people. */
#include "server/room/rooms.h"

#include <time.h>

#include "server/part.h"

static uint64_t rooms_part_unix_ms(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_REALTIME, &t); /* cannot fail for this clock */
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void rooms_part_init(void *self, struct part_host *host, struct alarm *alarm)
{
    rooms_init(self, host->env, rooms_part_unix_ms, alarm);
}

const struct part rooms_part = {
    .size_bytes = sizeof(struct rooms),
    .init = rooms_part_init,
    .tick = rooms_tick,
    .deinit = rooms_deinit,
};
