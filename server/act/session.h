/* A session is one run of one environment, (model, env_id, run_id): a clone of the model's agent,
 * and its steps by number. The number makes a retry safe: repeating the last one joins the running
 * step or returns the stored reply, and never acts twice; with another observation, reward or end
 * of the episode it is refused. One step of a session is in flight at a time. A step that fails
 * does not count; its number may be used again. Another run_id for an env_id ends the run before
 * and starts a new one. Knows nothing of gRPC. Loop. */
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
    uint32_t principal; /* whose session it is */
    struct model *model;
    const char *env_id;
    uint64_t run_id, seq;
    bool is_next; /* for an existing run: take the next step number and ignore seq */
    const struct tensor_view *observation; /* [n_observation] */
    size_t n_observation;
    float reward;
    bool done;
    uint32_t row;
    uint64_t deadline_us; /* 0: none */
    int priority;         /* as a batch_request's */
};

/* A waiter for a step: the caller's memory until done, or step_wait_leave. */
struct step_wait {
    struct link link;
    struct session *session; /* NULL: not waiting */
    /* Called once, never inside a function of this header. reply is NULL unless err's status is OK;
     * take a reference to keep it. */
    void (*done)(struct step_wait *w, struct step_reply *reply, const struct error *err);
};

/* Keeps a session from expiring, and notifies its owner when the session ends. */
struct session_lease {
    struct session *session; /* NULL: none, or released */
    bool is_frozen;          /* set by the lease's owner: the session takes no step */
    /* The session was removed from the tables. It exists until the lease is released, which may be
     * done inside. */
    void (*lost)(struct session_lease *h);
};

/* Zero takes the default. */
struct sessions_config {
    size_t max_sessions; /* 65,536 */
    uint64_t ttl_ms;     /* a session ends after this idle time; ten minutes */
    const struct env *env;
    struct alarm *alarm; /* rings sessions_tick */
    /* Of a principal, valid as long as all; NULL, and NULL from it: none. A step is a request. */
    struct access_quota *(*quota_of)(void *arg, uint32_t principal);
    void *quota_arg;
    void (*on_idle)(void *arg); /* the last step in flight has ended; may be NULL */
    void *idle_arg;
};

struct sessions {
    struct sessions_config config;
    struct hash by_env;    /* by principal, model and env_id */
    struct digest_key key; /* of the steps' digests */
    struct shared_limit limit;
    size_t n_asking;  /* steps in flight, also of runs that have ended */
    struct list idle; /* the longest idle first */
    struct act_modes modes;
    struct model_user user;
    bool is_draining;
};

void sessions_init(struct sessions *all, const struct sessions_config *config);
/* 0: 65,536. Sessions above it stay. */
void sessions_configure(struct sessions *all, size_t max_sessions);
/* All sessions must be closed; all may be zeroed memory. */
void sessions_deinit(void *sessions);

/* Takes the step, and *arena with what the request points to; w is notified. If *ret_stored is set,
 * the step was done before: it is the reply, borrowed, nothing is taken and w is not used. A
 * refusal takes nothing: INVALID naming the field, RANGE (a number that is not the next), EXISTS
 * (one that was given with another observation), EXHAUSTED (sessions, the queue, the
 * principal's quota), PRECONDITION (a
 * model that does not act; lock-step: another session's observation has the row), UNAVAILABLE, or
 * the agent's error. */
enum status sessions_step(struct sessions *all, const struct step_request *r, struct arena *arena,
                          struct step_wait *w, struct step_reply **ret_stored,
                          struct error *err) MUST_CHECK;

/* w is not notified. When no waiter is left, the step leaves its batch. */
void step_wait_leave(struct step_wait *w);

/* Leases the session to h until session_release, and opens it if need be (an earlier run ends).
 * seed: of its draws from now on; one that it does not have yet begins their series anew, and the
 * clone's state. PRECONDITION while a step of it is in flight, or when it is
 * leased. */
enum status sessions_lease(struct sessions *all, uint32_t principal, struct model *model,
                           const char *env_id, uint64_t run_id, uint64_t seed,
                           struct session_lease *h, struct error *err) MUST_CHECK;
/* Does nothing when h holds no session. */
void session_release(struct session_lease *h);
/* Borrowed. */
struct clone *session_clone(struct session *s);
bool session_is_asking(const struct session *s);

/* Ends env_id's run of the principal with the model, if there is one. */
void sessions_end(struct sessions *all, uint32_t principal, const struct model *model,
                  const char *env_id);
/* Ends the sessions that have been idle for too long. */
void sessions_tick(void *sessions);
/* Every later step fails with STATUS_UNAVAILABLE. */
void sessions_drain(void *sessions);
/* Ends all sessions of a model (NULL: of any). One with a step in flight is freed when the step is
 * done. */
void sessions_close_all(struct sessions *all, const struct model *model);

#endif
