/* Served parameter sets, each an agent with its own compute thread and batcher, created and deleted
 * by calls. An update is a row of a round; its waiters are notified when it settles. Loop. */
#ifndef SERVER_PARAMS_PARAMS_H
#define SERVER_PARAMS_PARAMS_H

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
    /* Of a principal, valid as long as all; NULL, and NULL from it: none. */
    struct access_quota *(*quota_of)(void *arg, uint32_t principal);
    void *quota_arg;
    uv_loop_t *loop;
    const struct env *env;
    struct params_budget budget;
    struct list shares;        /* of struct params_share: the budgets of principals */
    struct shared_names names; /* its limit also counts sets that are closing */
    bool is_stopping;
    void (*on_idle)(void *arg); /* a set was freed */
    void *idle_arg;
    struct keeper keeper; /* keeper_start: sets are kept, if they are described; see checkpoint.h */
    uint64_t checkpoint_rounds; /* from one checkpoint to the next */
    /* Of what params_describe was given; what it needs is in the arena or the bytes. */
    enum status (*read_config)(struct params_spec *out, struct access_sharing *sharing,
                               const void *config, size_t size_bytes, struct arena *arena,
                               struct error *err);
};

enum params_state {
    PARAMS_LOADING, /* its thread starts */
    PARAMS_FILLING, /* waits for its first values */
    PARAMS_KEEPING, /* has them, and they are being written to the journal */
    PARAMS_SERVING,
    PARAMS_CLOSING,
};

struct params_set {
    struct shared_name name; /* until it closes; its owner also afterwards */
    struct kept_thing kept;
    struct params_sets *sets;
    enum params_state state;
    struct arena arena; /* of spec */
    struct params_spec spec;
    struct params_open open;
    struct params_memory *memory;
    struct model *model;
    struct list contributors; /* most recently seen first */
    size_t n_contributors;
    uint64_t
        attempt; /* at a round: raised when one is done, and when all its updates have failed */
    struct list subscribers;
    struct list updates; /* unsettled, in order of arrival */
    struct list queue;   /* pushed gradients outside an update */
    size_t n_queued;
    uint64_t told_version; /* the last version that subscribers were notified of */
    struct params_counters counters;
    /* During creation. */
    void (*made)(void *arg, const struct error *err); /* NULL once it was called */
    void *made_arg;
    struct job begin;
    float *first;                        /* its first values, while begin is under way */
    struct params_moments first_moments; /* with them, of a set that goes on */
    bool goes_on;                        /* it was made again from a checkpoint */
    struct error begin_err;
    /* In the journal. */
    const void *config; /* [config_size] what describes it, in arena; NULL: it is not kept */
    size_t config_size;
    struct checkpoint *checkpoint; /* being written; NULL: none */
    struct kept_wait checkpoint_wait;
    struct list asked, keeping;  /* of struct kept_wait: for the next checkpoint, for this one */
    uint64_t checkpoint_version; /* of the one that is being written or read */
    uint64_t kept_version;       /* of the last one */
    bool has_failed_to_keep;     /* the last attempt did */
    struct params_restored *restored; /* while it is being made again; else NULL */
};

/* A call that subscribes to a set. It is notified when a version is published and when the set
 * closes, which ends the subscription. Either callback may be NULL. */
struct params_subscriber {
    struct link link;
    void (*published)(struct params_subscriber *u);
    void (*closing)(struct params_subscriber *u, const struct error *why);
};

/* The outcome of an update. */
struct update_outcome {
    struct error err;
    uint64_t counted_in; /* the version it went into */
    uint64_t wait_us;
};

struct update_waiter {
    struct link link;
    void (*settled)(struct update_waiter *w, const struct update_outcome *end);
};

void params_sets_init(struct params_sets *s, uv_loop_t *loop, const struct env *env,
                      size_t max_bytes);
/* All sets and their memory are gone. */
void params_sets_deinit(struct params_sets *s);
/* Closes all sets; on_idle is called for each. No further set can be made. */
void params_sets_stop(struct params_sets *s);

/* The set of this name that is who's own, or "OWNER/NAME" of another that shares it. NOT_FOUND
 * names the sets that there are for who; DENIED for one that is shared without the right;
 * UNAVAILABLE, with a hint, while the set waits for its first values. */
enum status params_find(struct params_set **out, const struct params_sets *s,
                        const struct principal *who, enum access_right right, const char *name,
                        struct error *err) MUST_CHECK;

struct params_set *params_at(const struct link *l); /* of a list of names */
/* Serving, and who may read it. */
bool params_is_listed(const struct params_set *set, const struct principal *who);

/* EXISTS for a name that the owner has in use; INVALID or other errors of spec and of sharing;
 * EXHAUSTED. The set is FILLING soon; its first values may be uploaded at once. owner is kept.
 * is_new: it was not there before a restart. */
enum status params_make(struct params_set **out, struct params_sets *s,
                        const struct principal *owner, const struct params_spec *spec,
                        const struct access_sharing *sharing, bool is_new,
                        struct error *err) MUST_CHECK;
/* The set is kept, if sets are: what makes it again. Copied. Before its first values. */
enum status params_describe(struct params_set *set, const void *config, size_t size_bytes,
                            struct error *err) MUST_CHECK;
/* Sets the first values, from params_memory_take; the set serves them once made is called with OK.
 * With a failure the set closes. */
void params_fill(struct params_set *set, float *values,
                 void (*made)(void *arg, const struct error *err), void *arg);
/* Notifies subscribers of why, settles waiting updates, and frees the set later. The name is free
 * at once. */
void params_close(struct params_set *set, const struct error *why);

void params_subscribe(struct params_set *set, struct params_subscriber *subscriber);
void params_unsubscribe(struct params_subscriber *subscriber); /* also after closing */

/* Bytes of memory: blocks, moments. */
size_t params_held(const struct params_set *set);
size_t params_n_waiting(const struct params_set *set); /* updates */

/* --- rounds (round.c) --- */

/* The state of a client's step. */
enum params_step {
    PARAMS_STEP_NEW,
    PARAMS_STEP_JOINS,  /* its update is waiting */
    PARAMS_STEP_STORED, /* counted, and the client's last */
};

/* Counts who's gradient as a request of its quota, before its values have come. EXHAUSTED. */
enum status params_count_request(const struct params_sets *s, const struct principal *who,
                                 struct error *err) MUST_CHECK;

/* EXISTS for a step before the client's last; PRECONDITION for a new step whose base is too old.
 * With STORED *ret_version is the version that counted it. */
enum status params_look_up(enum params_step *out, uint64_t *ret_version, struct params_set *set,
                           const char *client, uint64_t step_id, uint64_t base_version,
                           struct error *err) MUST_CHECK;

/* A gradient for a round; takes values. It skips no tensor and asks for no rate: a caller that
 * wants this sets skips, which is then freed with it, or rate. EXHAUSTED: values stay the caller's.
 */
enum status gradient_make(struct params_gradient **out, const char *client, uint64_t step_id,
                          uint64_t base_version, float *values, struct error *err) MUST_CHECK;

/* Submits the gradient as an update, which waits at most timeout_ms for its round (0: as long as it
 * takes; then DEADLINE, or ABORTED by the quorum, with the names of those who are missing); takes
 * it in any case. On success w is notified once, not inside. */
enum status params_submit(struct params_set *set, struct params_gradient *gradient,
                          uint64_t timeout_ms, struct update_waiter *w,
                          struct error *err) MUST_CHECK;
/* The last step of a client that counted; 0: none is known. */
uint64_t params_last_step(struct params_set *set, const char *client);
/* Another waiter for a step that JOINS. */
void params_join(struct params_set *set, const char *client, uint64_t step_id,
                 struct update_waiter *w);
/* w stops waiting; an update without waiters leaves its round. */
void params_leave(struct params_set *set, struct update_waiter *w);

/* Queues a gradient, and drops the oldest when the queue is full. Takes it. */
void params_push(struct params_set *set, struct params_gradient *gradient);
size_t params_depth(const struct params_set *set); /* queued gradients */

/* For params.c: frees the queue and the contributors. */
void params_forget(struct params_set *set);

#endif
