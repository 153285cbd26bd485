/* The part of the daemon that handlers use: its registries, and whether it serves. The transports
 * carry a pointer to it and never dereference it. Loop. */
#ifndef SERVER_SERVER_H
#define SERVER_SERVER_H

#include <stdint.h>

struct access;
struct attached;
struct conversations;
struct env;
struct conversation_names;
struct keyed_replies;
struct models;
struct params_sets;
struct port;
struct rollouts;
struct replays;
struct sequences;
struct sessions;
struct groups;
struct loop_watch;
struct stores;
struct trainers;
struct vectors;
struct work_table;

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
    const struct access *access; /* NULL: everybody may call */
    struct models *models;
    struct attached *attached; /* workers of agents */
    struct conversations *conversations;
    struct conversation_names *names; /* conversations by the names of HTTP clients */
    struct keyed_replies *keyed;      /* replies to HTTP requests with keys */
    struct sessions *sessions;
    struct sequences *sequences;
    struct trainers *trainers;
    struct params_sets *params;
    struct vectors *vectors;                   /* environments that clients opened */
    struct rollouts *rollouts;                 /* of policies in them */
    struct groups *groups;                     /* of processes */
    struct stores *stores;                     /* versioned values */
    struct replays *replays;                   /* tables of items to learn from */
    struct work_table *work;                   /* tasks, and the workers that compute them */
    const struct loop_watch *watch;            /* NULL: none, in tests */
    uint64_t n_reloads_done, n_reloads_failed; /* of the configuration */
    uint64_t n_connections_refused, n_connections_dropped; /* for the limit of open files; silent */
    const struct port *port, *admin_port;                  /* for their statistics; NULL: none */
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
