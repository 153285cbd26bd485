/* A vector, its instances and a request, for the files of this folder and for the callers of
 * vectors.h, which says what a vector is. All functions are called on the loop. */
#ifndef SERVER_ENVIRONMENT_VECTOR_H
#define SERVER_ENVIRONMENT_VECTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/env.h"
#include "base/hash.h"
#include "base/list.h"
#include "base/peer.h"
#include "base/shared_limit.h"
#include "base/status.h"
#include "server/environment/spaces.h"
#include "worlds/environment/environment.h"

enum {
    VECTOR_MAX_INSTANCES = 4096,  /* instances of one vector */
    VECTOR_MAX_NUMBERS = 1 << 19, /* numbers of one vector's observations, and of its actions */
    VECTORS_MAX = 1024,
    VECTORS_MAX_INSTANCES = 65536,  /* instances of all vectors */
    VECTOR_TTL_MS = 10 * 60 * 1000, /* a vector that is idle for so long is closed */
};

struct alarm;
struct environment_host;
struct plugin_environment;

struct vectors_config {
    const struct env *env;
    uint64_t silence_us; /* an order that is not answered within this ends its host */
    bool is_allowed;     /* else every host is refused */
    struct alarm *alarm; /* rings vectors_tick */
};

struct vectors {
    struct vectors_config config;
    struct hash by_id;                    /* of struct vector: those that have not ended */
    struct shared_limit limit, instances; /* of vectors; of instances */
    struct list idle;                     /* of struct vector, the longest idle first */
    struct peers hosts;                   /* of struct environment_host */
    struct list plugged;                  /* of struct plugin_environment */
};

enum vector_instance_state {
    VECTOR_FRESH, /* was not reset yet */
    VECTOR_RUNNING,
    VECTOR_OVER, /* its episode has ended, or its host could not step it: it must be reset */
    VECTOR_LOST, /* its host was lost, or its plug-in failed: it must be reset */
};

/* One environment of a vector. */
struct vector_instance {
    struct environment *built_in;  /* NULL: the kind is not built in */
    void *plugged;                 /* the plug-in's instance; NULL: the kind is not plugged in */
    struct environment_host *host; /* the host that computes it; NULL: no host does, or not now */
    struct link on_host;           /* in the host's instances */
    uint64_t number;               /* the instance's number at its host */
    uint64_t seed;                 /* the seed of the first episode; later ones follow from it */
    uint32_t n_episodes;           /* episodes that have begun since the seed was given */
    uint32_t n_steps;              /* of the episode, if the kind is plugged in */
    enum vector_instance_state state;
    bool is_busy;  /* an order about it is under way */
    bool is_asked; /* while a request is checked: an earlier row has it */
};

struct vector {
    struct hash_node by_id; /* its hash is the handle */
    struct link idle;       /* in the vectors' idle, while no order of the vector is under way */
    struct vectors *all;
    uint32_t principal;                       /* the principal that opened the vector */
    const struct environment_type *type;      /* the kind, if it is built in */
    const struct plugin_environment *plugged; /* the kind, if it is plugged in; both NULL: hosts */
    char name[HOST_NAME_SIZE];
    struct environment_spaces spaces; /* described is the vector's */
    size_t n_orders;                  /* orders under way */
    uint64_t idle_since_us;
    bool has_ended;      /* closed, but an order is still under way: the last order frees it */
    bool is_in_rollout;  /* only the requests of the rollout are taken */
    uint64_t n_rollouts; /* rollouts so far */
    float *seen;         /* [n][n_observation] each instance's last observation; zeros before its
                            first reset */
    size_t n;
    struct vector_instance instances[]; /* [n] */
};

/* A request resets or steps instances of a vector: one row for each instance. It lies in the
 * caller's memory, where it stays until done is called or vector_request_leave is. */
struct vector_request {
    bool is_reset;               /* else the request is a step */
    bool resets_ended;           /* a step resets an instance that does not run, instead */
    bool is_of_rollout;          /* the vector's rollout has made the request */
    size_t n;                    /* rows; 0 without indices: all instances, in their order */
    const uint32_t *indices;     /* [n] the rows' instances, each once */
    const uint64_t *seeds;       /* [n] new seeds for a reset; NULL: the seeds stay */
    const int64_t *choices;      /* [n] a step's actions, if they are choices */
    const float *action_numbers; /* [n][n_action_numbers] a step's actions, if they are numbers */
    /* The results, which lie in arena. The results of a row that failed are zeros. */
    float *observation; /* [n][n_observation] */
    float *reward;      /* [n] */
    bool *terminated, *truncated;
    const struct error **failed; /* [n] why the row failed; NULL: it has not */
    const char **infos;          /* [n] what its environment says, JSON; NULL: nothing */
    size_t n_infos;
    size_t n_failed;
    /* Called once, later, unless vectors_ask has set is_done. */
    void (*done)(struct vector_request *r);
    bool is_done;
    size_t n_pending;      /* orders that are not answered */
    struct vector *vector; /* NULL: the request is not under way */
    struct arena *arena;
};

/* Puts a vector, of which no order is under way, behind the vectors that are idle. */
void vector_begin_idle(struct vector *v);
/* Counts an order of the vector that has been answered, or is lost. r may be NULL. Both may be
 * freed inside. */
void vector_order_over(struct vector *v, struct vector_request *r);
/* Notes the observation of an instance that has been reset or stepped. */
void vector_note_seen(struct vector *v, const struct vector_instance *i, const float *observation);
/* Frees a vector that is closed, or was never opened, and of which no order is under way. */
void vector_free(struct vector *v);

/* Returns the place in the vector of a row's instance. */
uint32_t vector_request_index(const struct vector_request *r, size_t row);
/* Returns whether a request resets an instance of its rows, instead of stepping it. */
bool vector_request_resets(const struct vector_request *r, const struct vector_instance *i);
/* Makes a row of a request fail; why is copied. */
void vector_request_fail(struct vector_request *r, size_t row, const struct error *why);
/* Keeps what the row's environment says; a row for which there is no memory fails. */
void vector_request_note(struct vector_request *r, size_t row, const char *info);

#endif
