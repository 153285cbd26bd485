/* Rooms of people and agents. */
#include "server/room/rooms.h"

#include "server/cluster/places.h"
#include "server/part.h"
#include "server/server.h"
#include "server/service/service.h"

/* The people of the chat service are where the rooms are. */
static void rooms_part_leave(void *self, const struct error *why)
{
    const struct part_host *host = self;

    rooms_leave(host->server->rooms, why);
    service_leave(host->server->service, why);
}

bool part_rooms_arrived(void *self, uint64_t epoch)
{
    const struct part_host *host = self;

    return places_arrived(host->server->places, JOURNAL_PLACE_ROOMS, epoch);
}

static void rooms_part_init(void *self, struct part_host *host, struct alarm *alarm)
{
    const struct place_holder holder = {.leave = rooms_part_leave, .self = host};

    rooms_init(self, host->env, part_unix_ms, alarm);
    rooms_set_agents(self, host->server->conversations, host->server->models);
    places_hold(host->server->places, JOURNAL_PLACE_ROOMS, &holder);
}

static void rooms_part_keep(void *self, struct part_host *host, struct alarm *alarm)
{
    const struct rooms_keeping keeping = {
        .journal = host->journal,
        .principal_name = part_principal_name,
        .find_principal = part_find_principal,
        .arrived = part_rooms_arrived,
        .self = host,
    };

    rooms_keep(self, &keeping);
}

/* Nothing is read any more, since the conversations close. */
static bool rooms_part_stop(void *self)
{
    rooms_restore_leave(self);
    return true;
}

const struct part rooms_part = {
    .size_bytes = sizeof(struct rooms),
    .init = rooms_part_init,
    .keep = rooms_part_keep,
    .tick = rooms_tick,
    .drain = rooms_drain,
    .end = rooms_end,
    .stop = rooms_part_stop,
    .deinit = rooms_deinit,
};
