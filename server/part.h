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
struct principal;
struct server;
struct uv_loop_s;

/* What the daemon gives to its parts. It outlives them. */
struct part_host {
    struct uv_loop_s *loop;
    const struct env *env;
    const struct config *config; /* of the start */
    struct server *server;       /* the other parts, and the principals */
    struct health *health;
    struct journal *journal; /* NULL: nothing is kept. Set before keep */
    /* A registry's on_idle: the daemon looks at its order of stop again, soon. */
    void (*go_on)(void *host);
    /* All models of the start are loaded. */
    void (*loaded)(struct part_host *host);
    /* The daemon stops, and reports why unless it has stopped for another reason. */
    void (*fail)(struct part_host *host, const struct error *why);
};

/* Each entry but size_bytes and init may be NULL. self is the registry. */
struct part {
    size_t size_bytes; /* of the registry, which is zeroed before init */
    /* Makes the registry. The memory of all other registries is there, and the rows before are
     * made. alarm rings tick; it is NULL for a part without tick. */
    void (*init)(void *self, struct part_host *host, struct alarm *alarm);
    /* The host has a journal: begins to read what earlier processes kept. */
    void (*keep)(void *self, struct part_host *host, struct alarm *alarm);
    /* Takes the limits that a reload may change, for what begins from now on. */
    void (*configure)(void *self, const struct config *to);
    void (*tick)(void *self);
    /* The server drains: takes nothing new; what is in flight goes on. Also
     * called before end. */
    void (*drain)(void *self);
    /* Cancels what is in flight. */
    void (*end)(void *self);
    /* After end: whether nothing is in flight any more. go_on follows a false. */
    bool (*is_idle)(const void *self);
    /* Once all parts are idle: closes what the registry has. Returns whether all is closed; else
     * go_on follows, and stop is called again. */
    bool (*stop)(void *self);
    /* Once no call is left: writes what the journal lacks. Returns whether it has all of it; else
     * go_on follows, and is_kept is called again. */
    bool (*is_kept)(void *self);
    /* The loop has ended. */
    void (*deinit)(void *self);
};

/* Callbacks that many registries have. host is a struct part_host. */

/* The principal's share of what many ask for. */
unsigned part_weight(void *host, uint32_t principal);
/* The principal's quota, valid as long as the daemon; NULL: none. */
struct access_quota *part_quota(void *host, uint32_t principal);
/* The principal's name; "" without keys. */
const char *part_principal_name(void *host, uint32_t principal);
/* The principal of this name; NULL: there is none. */
const struct principal *part_find_principal(void *host, const char *name);

/* Whether programs may attach themselves. Where no keys say who may, and the operator does not,
 * those may that are on this machine. */
bool part_may_attach(const struct part_host *host);

/* One part in n of the machine's memory, unless the operator has said how many bytes. */
size_t part_bytes(size_t said_bytes, size_t n);

/* Starts to load the models and the plug-ins of the configuration (part/models.c). */
enum status part_load_models(struct part_host *host, struct error *err) MUST_CHECK;

#endif
