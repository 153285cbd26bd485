/* Vectors of environments: a client opens several instances of one kind under a handle, and resets
 * and steps any of them together. Kinds that are built in (worlds/environment/) or plugged in
 * (parley_environment.h) are computed at once, others by hosts: attached workers (host.h), each of
 * which gets its share of a request as one order. If a host is lost, its instances fail, and
 * can be reset on another host. Loop. */
#ifndef SERVER_ENVIRONMENT_VECTORS_H
#define SERVER_ENVIRONMENT_VECTORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/env.h"
#include "base/hash.h"
#include "base/list.h"
#include "base/shared_limit.h"
#include "base/status.h"
#include "server/environment/host.h"
#include "worlds/environment/environment.h"

enum {
    VECTOR_MAX_INSTANCES = 4096,
    VECTOR_MAX_NUMBERS = 1 << 19, /* of the observations or actions of all instances together */
    VECTORS_MAX = 1024,
    VECTORS_MAX_INSTANCES = 65536, /* of all vectors */
    VECTOR_TTL_MS = 10 * 60 * 1000,
};

struct alarm;
struct plugin_environment;

struct vectors_config {
    const struct env *env;
    uint64_t silence_us; /* an order that is not answered within this ends its host */
    bool is_allowed;     /* else every host is refused */
    struct alarm *alarm; /* rings vectors_tick */
};

struct vectors {
    struct vectors_config config;
    struct hash by_id;
    struct shared_limit limit, instances;
    struct list idle;    /* of struct vector, the longest idle first */
    struct peers hosts;  /* of struct environment_host */
    struct list plugged; /* of struct plugin_environment */
};

enum vector_instance_state {
    VECTOR_FRESH, /* to be reset */
    VECTOR_RUNNING,
    VECTOR_OVER, /* its episode has ended: to be reset */
    VECTOR_LOST, /* its host has, or it has failed: to be reset */
};

struct vector_instance {
    struct environment *built_in;
    void *plugged;                 /* the object's */
    struct environment_host *host; /* NULL: not on a host, or none yet, or lost */
    struct link on_host;
    uint64_t number; /* there */
    uint64_t seed;
    uint32_t n_episodes; /* that have begun since the seed was given */
    uint32_t n_steps;    /* plugged: of the episode */
    enum vector_instance_state state;
    bool is_busy;  /* in an order */
    bool is_asked; /* while a request is checked */
};

struct vector {
    struct hash_node by_id; /* its hash is the handle; while it has not ended */
    struct link idle;       /* while no order of it is under way */
    struct vectors *all;
    uint32_t principal;
    const struct environment_type *type;      /* one that is built in */
    const struct plugin_environment *plugged; /* one that is not; both NULL: of hosts */
    char name[HOST_NAME_SIZE];
    struct environment_spaces spaces;
    size_t n_orders; /* under way */
    uint64_t idle_since_us;
    bool has_ended;
    bool is_in_rollout; /* only its requests are taken */
    uint64_t n_rollouts;
    float *seen; /* [n][n_observation] what each showed last; zeros before its first reset */
    size_t n;
    struct vector_instance instances[]; /* [n] */
};

/* A reset or a step; in the caller's memory until done, or vector_request_leave. */
struct vector_request {
    bool is_reset;
    bool resets_ended; /* a step: an instance that does not run is reset instead */
    bool is_of_rollout;
    size_t n;                    /* 0: all instances, in their order */
    const uint32_t *indices;     /* [n] each once */
    const uint64_t *seeds;       /* [n] a reset: new ones; NULL: none */
    const int64_t *choices;      /* [n] a step: by the vector's spaces, or */
    const float *action_numbers; /* [n][n_action_numbers] */
    /* The results, in the arena that was given. Rows that failed are zero. */
    float *observation; /* [n][n_observation] */
    float *reward;      /* [n] */
    bool *terminated, *truncated;
    const struct error **failed; /* [n] NULL: it has not failed */
    size_t n_failed;
    /* Called once, later, unless vectors_ask has set is_done. */
    void (*done)(struct vector_request *r);
    bool is_done;
    size_t n_pending;      /* orders */
    struct vector *vector; /* NULL: not under way */
    struct arena *arena;
};

void vectors_init(struct vectors *all, const struct vectors_config *config);
/* All hosts are closed. */
void vectors_deinit(struct vectors *all);
/* Takes the kind. EXISTS: one of its name is there. */
enum status vectors_add_plugged(struct vectors *all, struct plugin_environment *kind,
                                struct error *err) MUST_CHECK;
/* NULL: none of the name is plugged in. */
const struct plugin_environment *vectors_find_plugged(const struct vectors *all, const char *name);
/* Ends idle vectors and silent hosts. */
void vectors_tick(void *vectors);
/* Ends all hosts; requests under way fail. */
void vectors_end(struct vectors *all);

/* n instances of the kind name. seeds: [n_seeds] one each, or one: instance i has that and i more;
 * none: drawn. INVALID names the field; NOT_FOUND; UNAVAILABLE: no host of the name has room;
 * EXHAUSTED. */
enum status vectors_open(struct vector **out, struct vectors *all, uint32_t principal,
                         const char *name, size_t n, const uint64_t *seeds, size_t n_seeds,
                         struct error *err) MUST_CHECK;
/* NOT_FOUND: it is not there, or not the principal's. */
enum status vectors_get(struct vector **out, struct vectors *all, uint32_t principal, uint64_t id,
                        struct error *err) MUST_CHECK;
void vectors_close(struct vector *v);

/* On failure nothing has changed: INVALID names the field, RANGE an index that is not there,
 * PRECONDITION an instance that is not running, or is in another request. */
enum status vectors_ask(struct vector *v, struct vector_request *r, struct arena *arena,
                        struct error *err) MUST_CHECK;
/* done is not called any more. What is under way goes on. */
void vector_request_leave(struct vector_request *r);

/* host.c and vectors.c share these. */
/* An order of the vector has been answered, or is lost. */
void vector_order_over(struct vector *v, struct vector_request *r);
/* The instance has been reset or stepped. */
void vector_note_seen(struct vector *v, const struct vector_instance *i, const float *observation);

#endif
