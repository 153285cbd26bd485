/* A session is one run of one environment, named by (model, env_id, run_id). The session has a
 * clone of the model's agent, and numbers its steps. The number makes a retry safe: a request that
 * repeats the last number joins the running step or gets the stored reply, and the agent never acts
 * twice. A repeated number with another observation, reward or end of the episode is refused. One
 * step of a session is in flight at a time. A step that fails does not count, and its number may be
 * used again. Another run_id for an env_id ends the earlier run and starts a new one. This module
 * knows nothing of gRPC. All functions are called on the loop. */
#ifndef SERVER_ACT_SESSION_H
#define SERVER_ACT_SESSION_H

#include "agents/agent.h"
#include "agents/turn.h"
#include "base/digest.h"
#include "base/env.h"
#include "base/hash.h"
#include "base/list.h"
#include "base/shared_limit.h"
#include "server/act/mode.h"
#include "server/act/reply.h"
#include "server/model/models.h"

struct access_quota;
struct alarm;
struct model;
struct session;

enum { ENV_ID_MAX_BYTES = 256 };

struct step_request {
    uint32_t principal; /* the principal that owns the session */
    struct model *model;
    const char *env_id;
    uint64_t run_id, seq;
    bool is_next; /* take the next step number of an existing run, and ignore seq */
    const struct tensor_view *observation; /* [n_observation] */
    size_t n_observation;
    float reward;
    bool done;
    uint32_t row;
    uint64_t deadline_us; /* 0: the step has no deadline */
    int priority;         /* see struct batch_request */
};

/* A waiter for a step. The waiter lies in the caller's memory until done or step_wait_leave. */
struct step_wait {
    struct link link;
    struct session *session; /* NULL: the waiter does not wait */
    /* Called once, never inside a function of this header. reply is NULL unless err's status is OK.
     * The callee takes a reference to keep the reply. */
    void (*done)(struct step_wait *w, struct step_reply *reply, const struct error *err);
};

/* A lease keeps a session from expiring, and notifies the lease's owner when the session ends. */
struct session_lease {
    struct session *session; /* NULL: the lease holds no session */
    bool is_frozen;          /* set by the lease's owner: the session takes no step */
    /* Called when the session was removed from the tables. The session exists until the lease is
     * released, which the callback may do. */
    void (*lost)(struct session_lease *h);
};

/* A member that is zero stands for the default that its comment names. */
struct sessions_config {
    size_t max_sessions; /* 65,536 */
    uint64_t ttl_ms;     /* a session ends after this idle time; ten minutes */
    const struct env *env;
    struct alarm *alarm; /* rings sessions_tick */
    /* Returns the quota of a principal, valid as long as the sessions; NULL: the principal has
     * none. A step counts as a request. quota_of may be NULL. */
    struct access_quota *(*quota_of)(void *arg, uint32_t principal);
    void *quota_arg;
    void (*on_idle)(void *arg); /* called when the last step in flight has ended; may be NULL */
    void *idle_arg;
};

struct sessions {
    struct sessions_config config;
    struct hash by_env;    /* the sessions, by principal, model and env_id */
    struct digest_key key; /* the key of the steps' digests */
    struct shared_limit limit;
    size_t n_asking;  /* how many steps are in flight, also of runs that have ended */
    struct list idle; /* the idle sessions; the session that is idle longest comes first */
    struct act_modes modes;
    struct model_user user;
    bool is_draining;
};

void sessions_init(struct sessions *all, const struct sessions_config *config);
/* Sets the most sessions; 0 stands for 65,536. Sessions above the limit stay. */
void sessions_configure(struct sessions *all, size_t max_sessions);
/* Frees what the sessions share. Every session must be closed. sessions may be zeroed memory. */
void sessions_deinit(void *sessions);

/* Takes the step, and *arena with everything that the request points to; later w is notified. If
 * the step was done before, *ret_stored is its reply, borrowed; then nothing is taken, and w is not
 * used. A refusal takes nothing: INVALID names the field; RANGE if the number is not the next one;
 * EXISTS if the number was given with another observation; EXHAUSTED if there are too many
 * sessions, the queue is full, or the principal's quota is used up; PRECONDITION if the model does
 * not act, or, in lock-step, if another session's observation has the row; UNAVAILABLE; or the
 * agent's error. */
enum status sessions_step(struct sessions *all, const struct step_request *r, struct arena *arena,
                          struct step_wait *w, struct step_reply **ret_stored,
                          struct error *err) MUST_CHECK;

/* Ends the wait: w is not notified. When no waiter is left, the step leaves its batch. */
void step_wait_leave(struct step_wait *w);

/* Leases the session to h until session_release. A session that does not exist is opened, and an
 * earlier run ends. seed is the seed of the session's draws from now on: a new seed begins the
 * series of draws and the clone's state anew. PRECONDITION while a step of the session is in flight
 * or the session is leased. */
enum status sessions_lease(struct sessions *all, uint32_t principal, struct model *model,
                           const char *env_id, uint64_t run_id, uint64_t seed,
                           struct session_lease *h, struct error *err) MUST_CHECK;
/* Releases the lease. Does nothing when h holds no session. */
void session_release(struct session_lease *h);
/* Returns the session's clone, borrowed. */
struct clone *session_clone(struct session *s);
bool session_is_asking(const struct session *s);

/* Ends the principal's run of env_id with the model, if there is such a run. */
void sessions_end(struct sessions *all, uint32_t principal, const struct model *model,
                  const char *env_id);
/* Ends the sessions that have been idle for too long. */
void sessions_tick(void *sessions);
/* Makes every later step fail with STATUS_UNAVAILABLE. */
void sessions_drain(void *sessions);
/* Ends all sessions of a model; NULL stands for all models. A session with a step in flight is
 * freed when the step is done. */
void sessions_close_all(struct sessions *all, const struct model *model);

#endif
