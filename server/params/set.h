/* A set of parameters and the registry of sets, for the files of this folder. params.h tells the
 * life of a set. All functions are called on the loop. */
#ifndef SERVER_PARAMS_SET_H
#define SERVER_PARAMS_SET_H

#include <uv.h>

#include "agents/params/params.h"
#include "base/list.h"
#include "server/access/shared_names.h"
#include "server/journal/keeper.h"
#include "server/model/model.h"
#include "server/params/bounds.h"
#include "server/params/counters.h"

struct access_quota;
struct checkpoint;
struct params_restored;

struct params_sets {
    /* Returns the quota of a principal, valid as long as the sets; NULL: the principal has none.
     * quota_of may be NULL. */
    struct access_quota *(*quota_of)(void *arg, uint32_t principal);
    void *quota_arg;
    uv_loop_t *loop;
    const struct env *env;
    struct params_budget budget; /* the bytes of all sets */
    struct list shares;          /* of struct params_share: the budgets of principals */
    struct shared_names names;   /* of the sets; its limit also counts sets that are closing */
    bool is_stopping;
    void (*on_idle)(void *arg); /* called when a set was freed */
    void *idle_arg;
    struct keeper keeper; /* keeps the sets that are described, once keeper_start was called */
    uint64_t checkpoint_rounds; /* how many rounds lie between two checkpoints */
    /* Reads what params_describe was given. What *out and *sharing point to lies in the arena or in
     * config. */
    enum status (*read_config)(struct params_spec *out, struct access_sharing *sharing,
                               const void *config, size_t size_bytes, struct arena *arena,
                               struct error *err);
};

enum params_state {
    PARAMS_LOADING, /* the set's thread starts */
    PARAMS_FILLING, /* the set waits for its first values */
    PARAMS_KEEPING, /* the set has its first values, which are being written to the journal */
    PARAMS_SERVING,
    PARAMS_CLOSING,
};

struct params_set {
    struct shared_name name; /* valid until the set closes; its owner stays valid afterwards */
    struct kept_thing kept;
    struct params_sets *sets;
    enum params_state state;
    struct arena arena; /* what spec points to lies here */
    struct params_spec spec;
    struct params_open open; /* what the set's agent is opened with */
    struct params_memory *memory;
    struct model *model;
    struct list contributors; /* of struct contributor, the most recently seen first */
    size_t n_contributors;
    uint64_t attempt;        /* the attempt at a round; it grows when a round is done, and when all
                                updates of the round have failed */
    struct list subscribers; /* of struct params_subscriber */
    struct list updates;     /* of struct round_update: those that are not settled, in the order of
                                arrival */
    struct list queue;       /* of struct pushed: pushed gradients that are in no update yet */
    size_t n_queued;
    uint64_t told_version; /* the newest version that subscribers were told of */
    struct params_counters counters;
    /* During creation. */
    void (*made)(void *arg, const struct error *err); /* NULL once it was called */
    void *made_arg;
    struct job begin;
    float *first;                        /* the first values, until the first snapshot has them */
    struct params_moments first_moments; /* the moments beside them, if the set goes on */
    bool goes_on;                        /* the set was made again from a checkpoint */
    struct error begin_err;
    /* In the journal. */
    const void *config; /* [config_size] the set's description, in arena; NULL: it is not kept */
    size_t config_size;
    struct checkpoint *checkpoint; /* the checkpoint that is being written; NULL: none is */
    struct kept_wait checkpoint_wait;
    struct list asked, keeping;  /* of struct kept_wait: those that wait for the next checkpoint;
                                    those that wait for the one that is being written */
    uint64_t checkpoint_version; /* the version that is being written or read */
    uint64_t kept_version;       /* the version of the newest checkpoint */
    bool has_failed_to_keep;     /* the last attempt at a checkpoint has failed */
    struct params_restored *restored; /* while the set is being made again; else NULL */
};

/* A call that subscribes to a set. It is told when a version is published and when the set closes,
 * which ends the subscription. Either callback may be NULL. */
struct params_subscriber {
    struct link link;
    void (*published)(struct params_subscriber *u);
    void (*closing)(struct params_subscriber *u, const struct error *why);
};

#endif
