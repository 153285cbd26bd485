/* Calls by Connect. */
#include "server/api/connect/connect_calls.h"
#include "server/part.h"

static void connected_part_init(void *self, struct part_host *host, struct alarm *alarm)
{
    connect_calls_init(self, host->env, alarm, host->health);
}

const struct part connected_part = {
    .size_bytes = sizeof(struct connect_calls),
    .init = connected_part_init,
    .tick = connect_calls_tick,
    .deinit = connect_calls_deinit,
};
