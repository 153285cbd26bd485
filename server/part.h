/* A part of the daemon is a registry, with what starts and stops it. A registry becomes a part by a
 * row in SERVER_PARTS (server/server.h) and by a const struct part NAME_part, in a file of
 * server/part/. The daemon allocates the registry, opens its alarm, and walks the rows
 * (server/part_list.h). All functions are called on the loop.
 *
 * The functions of a registry's life (tick, drain, end, deinit) take the registry as void *, so
 * that they stand in the table as they are. */
#ifndef SERVER_PART_H
#define SERVER_PART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct access_quota;
struct alarm;
struct config;
struct env;
struct health;
struct journal;
struct keeper;
struct principal;
struct server;
struct service_log;
struct service_plan;
struct uv_loop_s;

/* What the daemon gives to its parts. The host outlives the parts. */
struct part_host {
    struct uv_loop_s *loop;
    const struct env *env;
    const struct config *config; /* the configuration of the start */
    struct server *server;       /* has the other registries, and the principals */
    struct health *health;
    struct journal *journal;                 /* is set before keep; NULL: nothing is kept */
    const struct service_plan *service_plan; /* of the chat service; NULL: there is none */
    struct service_log *service_log;         /* NULL: it is not logged */
    /* Has the daemon look soon whether its stop can go on: it serves as on_idle of a registry. */
    void (*go_on)(void *host);
    /* Tells the daemon that all models of the start are loaded. */
    void (*loaded)(struct part_host *host);
    /* Stops the daemon, which reports why unless it stops for another reason already. */
    void (*fail)(struct part_host *host, const struct error *why);
};

/* Each entry but size_bytes and init may be NULL. self is the registry. */
struct part {
    size_t size_bytes; /* the registry's, which is zeroed before init */
    /* Makes the registry. The memory of all other registries is there, and those of the rows before
     * are made. alarm rings tick; it is NULL for a part without tick. */
    void (*init)(void *self, struct part_host *host, struct alarm *alarm);
    /* Begins to read what earlier processes kept in the host's journal. */
    void (*keep)(void *self, struct part_host *host, struct alarm *alarm);
    /* Takes the limits that a reload may change. They hold for what begins from now on. */
    void (*configure)(void *self, const struct config *to);
    /* Does all whose time has come, and sets the alarm for the earliest of the rest. */
    void (*tick)(void *self);
    /* Takes nothing new from now on; what is in flight goes on. drain may be called twice, and is
     * called before end. */
    void (*drain)(void *self);
    /* Cancels what is in flight. */
    void (*end)(void *self);
    /* Returns, after end, whether nothing is in flight any more. If not, the part calls go_on. */
    bool (*is_idle)(const void *self);
    /* Closes what the registry has, once all parts are idle. Returns whether all is closed; if not,
     * the part calls go_on, and stop is called again. */
    bool (*stop)(void *self);
    /* Writes what the journal lacks, once no call is left. Returns whether the journal has all; if
     * not, the part calls go_on, and is_kept is called again. */
    bool (*is_kept)(void *self);
    /* Frees what the registry has, once the loop has ended. */
    void (*deinit)(void *self);
};

/* Callbacks that many registries have. host is a struct part_host. */

/* Returns the principal's share of what many ask for. */
unsigned part_weight(void *host, uint32_t principal);
/* Returns the principal's quota, which lives as long as the daemon. NULL: the principal has none.
 */
struct access_quota *part_quota(void *host, uint32_t principal);
/* Returns the wall clock's time in milliseconds. */
uint64_t part_unix_ms(void);
/* Returns the principal's name, "" if the daemon has no keys. */
const char *part_principal_name(void *host, uint32_t principal);
/* Returns the principal of this name. NULL: there is none. */
const struct principal *part_find_principal(void *host, const char *name);

/* Returns whether programs may attach themselves. If no keys say who may, and the operator does not
 * say it, programs of this machine may. */
bool part_may_attach(const struct part_host *host);

/* Returns said_bytes if the operator has said how many, else the n-th part of the machine's
 * memory. */
size_t part_bytes(size_t said_bytes, size_t n);

/* Says that rooms, or the people of the chat service, were read under this epoch (part/rooms.c).
 * Returns whether that holds. */
bool part_rooms_arrived(void *host, uint64_t epoch);
/* Has the keeper keep its things in the host's journal (part/stores.c). alarm is the part's. */
void part_start_keeper(struct keeper *keeper, struct part_host *host, struct alarm *alarm);

/* Starts to load the models and the plug-ins of the configuration (part/models.c). */
enum status part_load_models(struct part_host *host, struct error *err) MUST_CHECK;

#endif
