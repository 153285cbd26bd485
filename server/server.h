/* The part of the daemon that handlers use: its registries, and whether it serves. The transports
 * carry a pointer to struct server and never dereference it. All functions are called on the loop.
 */
#ifndef SERVER_SERVER_H
#define SERVER_SERVER_H

#include <stdbool.h>
#include <stdint.h>

#include "server/call/call_stats.h"

/* The registries: each is a part (server/part.h), and a member of struct server. Rows are started
 * from the first to the last, and stopped from the last to the first: one stands behind those that
 * it uses. */
/* clang-format off */
#define SERVER_PARTS(PART) \
    PART(models, models)                 /* agents by name */ \
    PART(params, params_sets)            /* sets of parameters, trained in rounds */ \
    PART(conversations, conversations) \
    PART(names, conversation_names)      /* conversations by the names of HTTP clients */ \
    PART(keyed, keyed_replies)           /* replies to HTTP requests with keys */ \
    PART(retention, retention)           /* what goes from the journal */ \
    PART(sequences, sequences)           /* KServe's */ \
    PART(sessions, sessions)             /* of policies */ \
    PART(trainers, trainers)             /* environment workers and training runs */ \
    PART(attached, attached)             /* workers of agents */ \
    PART(rollouts, rollouts)             /* of policies in vectors */ \
    PART(vectors, vectors)               /* environments that clients opened */ \
    PART(work, work_table)               /* tasks, and the workers that compute them */ \
    PART(groups, groups)                 /* of processes */ \
    PART(rooms, rooms)                   /* of people and agents */ \
    PART(service, chat_service)          /* menus, pools and tasks of people */ \
    PART(stores, stores)                 /* versioned values */ \
    PART(replays, replays)               /* tables of items to learn from */ \
    PART(connected, connect_calls)       /* calls by Connect */ \
    PART(places, places)                 /* which daemon has what one of them has as a whole */ \
    PART(quotas, shared_quotas)          /* what all daemons together have used of quotas */ \
    PART(cluster, cluster)               /* daemons that share the journal */
/* clang-format on */

#define SERVER_PART_TYPE(name, type) struct type;
SERVER_PARTS(SERVER_PART_TYPE)
struct access;
struct env;
struct http;
struct loop_watch;

enum server_state {
    SERVER_LOADING, /* the port is open, models load */
    SERVER_SERVING,
    SERVER_DRAINING, /* no new turns; those in flight go on */
    SERVER_ENDING,   /* turns are cancelled; the rest is stopped in order */
    SERVER_STOPPED,
};

struct server {
    enum server_state state;
    const struct env *env;
    uint64_t start_us;
    bool has_page;               /* browsers get the page at / */
    const struct access *access; /* NULL: everybody may call */
#define SERVER_PART_MEMBER(name, type) struct type *name;
    SERVER_PARTS(SERVER_PART_MEMBER)
    struct http *http;                                     /* NULL: no port */
    const struct loop_watch *watch;                        /* NULL: none, in tests */
    uint64_t n_reloads_done, n_reloads_failed;             /* of the configuration */
    uint64_t n_connections_refused, n_connections_dropped; /* for the limit of open files; silent */
    struct call_stats calls;                               /* of gRPC and Connect */
};

/* "loading", "serving", "draining". */
static inline const char *server_state_name(enum server_state s)
{
    static const char *const names[] = {
        [SERVER_LOADING] = "loading", [SERVER_SERVING] = "serving", [SERVER_DRAINING] = "draining",
        [SERVER_ENDING] = "ending",   [SERVER_STOPPED] = "stopped",
    };

    return names[s];
}

#endif
