/* Sets of parameters that are served, each an agent with its own compute thread and batcher, made
 * and deleted by calls. A contribution is a row of a round; whoever waits for it is told when it
 * settles. Loop. */
#ifndef SERVER_PARAMS_H
#define SERVER_PARAMS_H

#include <uv.h>

#include "agents/params/params.h"
#include "base/list.h"
#include "server/model.h"

enum {
    PARAMS_MAX_SETS = 64,
    PARAMS_MAX_TRAINERS =
        4096, /* remembered; of those that wait for nothing the longest unseen goes */
    PARAMS_MAX_CLIENT = 128, /* bytes of a client's id */
};

struct params_sets {
    uv_loop_t *loop;
    const struct env *env;
    struct params_budget budget;
    struct list all; /* in order of their making; those that close too */
    size_t n;
    bool is_stopping;
    void (*quiet)(void *arg); /* a set is gone */
    void *quiet_arg;
};

enum params_state {
    PARAMS_LOADING, /* its thread starts */
    PARAMS_FILLING, /* its first values are awaited */
    PARAMS_SERVING,
    PARAMS_CLOSING,
};

struct params_counters {
    uint64_t rounds, partial, aborted, duplicates, dropped;
};

struct params_set {
    struct link link;
    struct params_sets *sets;
    enum params_state state;
    struct arena arena; /* of spec */
    struct params_spec spec;
    struct params_open open;
    struct params_memory *memory;
    struct model *model;
    struct list trainers; /* the last one seen first */
    size_t n_trainers;
    struct list users;
    struct list contributions; /* that have not settled, in the order of their asking */
    struct list queue;         /* pushed gradients that are not in a contribution yet */
    size_t n_queued;
    uint64_t told_version; /* the last that users were told of */
    struct params_counters counters;
    /* The making of it. */
    void (*made)(void *arg, const struct error *err); /* NULL once it was called */
    void *made_arg;
    struct job begin;
    float *first; /* its first values, while begin is under way */
    struct error begin_err;
};

/* A call that has to do with a set: told when a version is published, and when the set closes,
 * after which it is no user any more. Either may be NULL. */
struct params_user {
    struct link link;
    void (*published)(struct params_user *u);
    void (*closing)(struct params_user *u, const struct error *why);
};

/* What became of a contribution. */
struct contribution_end {
    struct error err;
    uint64_t counted_in; /* the version it went into */
    uint64_t wait_us;
};

struct contribution_waiter {
    struct link link;
    void (*settled)(struct contribution_waiter *w, const struct contribution_end *end);
};

void params_sets_init(struct params_sets *s, uv_loop_t *loop, const struct env *env,
                      size_t max_bytes);
/* Closes all; quiet is called as they go. No set is made any more. */
void params_sets_stop(struct params_sets *s);

/* By name. NOT_FOUND names those there are; UNAVAILABLE, with a hint, while its first values are
 * awaited. */
enum status params_find(struct params_set **out, const struct params_sets *s, const char *name,
                        struct error *err) MUST_CHECK;

/* EXISTS for a name that is taken; what else is wrong with spec; EXHAUSTED. The set is FILLING
 * soon; its first values may be uploaded at once. */
enum status params_make(struct params_set **out, struct params_sets *s,
                        const struct params_spec *spec, struct error *err) MUST_CHECK;
/* Its first values, of params_memory_take: the set serves them when made is called with OK. With a
 * failure the set closes. */
void params_fill(struct params_set *set, float *values,
                 void (*made)(void *arg, const struct error *err), void *arg);
/* Tells users why, settles what waits, and frees it all in its time. The name is free at once. */
void params_close(struct params_set *set, const struct error *why);

void params_use(struct params_set *set, struct params_user *user);
void params_unuse(struct params_user *user); /* also after closing */

/* Bytes of memory: blocks, moments. */
size_t params_held(const struct params_set *set);
size_t params_n_waiting(const struct params_set *set); /* contributions */

/* --- rounds (params_round.c) --- */

/* What the set knows of a client's step. */
enum params_step {
    PARAMS_STEP_NEW,
    PARAMS_STEP_JOINS,  /* its contribution waits */
    PARAMS_STEP_STORED, /* counted, and the last of its client */
};

/* EXISTS for a step before the client's last; PRECONDITION for a base that is too old, of a new
 * step. With STORED *ret_version is the one it went into. */
enum status params_look_up(enum params_step *out, uint64_t *ret_version, struct params_set *set,
                           const char *client, uint64_t step_id, uint64_t base_version,
                           struct error *err) MUST_CHECK;

/* A gradient on its way into a round; values as given, taken. EXHAUSTED: values are the caller's.
 */
enum status gradient_make(struct params_gradient **out, const char *client, uint64_t step_id,
                          uint64_t base_version, float *values, struct error *err) MUST_CHECK;

/* Its contribution: takes gradient in any case. On success w is told once, not inside. */
enum status params_contribute(struct params_set *set, struct params_gradient *gradient,
                              struct contribution_waiter *w, struct error *err) MUST_CHECK;
/* One more that waits for a step that JOINS. */
void params_join(struct params_set *set, const char *client, uint64_t step_id,
                 struct contribution_waiter *w);
/* w waits no more; a contribution that nobody waits for leaves its round. */
void params_leave(struct params_set *set, struct contribution_waiter *w);

/* Queues a gradient, and lets the oldest go when too many wait. Takes it. */
void params_push(struct params_set *set, struct params_gradient *gradient);
size_t params_depth(const struct params_set *set); /* pushed gradients that wait */

/* For params.c: frees what is queued; forgets the trainers. */
void params_forget(struct params_set *set);

#endif
