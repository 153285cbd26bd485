/* Who acts: a session is one run of one environment, (model, env_id, run_id): a clone of the
 * model's agent, and its steps by number. A number makes a retry safe: the last one again joins the
 * step that runs or has the stored reply, and never acts twice. One step of a session is in flight
 * at a time; one that fails never was, and its number may come again. Another run_id for an env_id
 * begins afresh and ends the run before. Knows nothing of gRPC. Loop. */
#ifndef SERVER_SESSION_H
#define SERVER_SESSION_H

#include "agents/agent.h"
#include "base/env.h"
#include "base/list.h"
#include "server/session_reply.h"

struct model;
struct session;

enum { ENV_ID_MAX_BYTES = 256 };

struct step_request {
    struct model *model;
    const char *env_id;
    uint64_t run_id, seq;
    bool is_next; /* of a run that there is: the next step, whichever; seq does not matter */
    const struct tensor_view *observation; /* [n_observation] */
    size_t n_observation;
    float reward;
    bool done;
    uint32_t row;
    uint64_t deadline_us; /* 0: none */
    int priority;         /* as an ask's */
};

/* One who waits for a step: the caller's memory until done, or step_wait_leave. */
struct step_wait {
    struct link link;
    struct session *session; /* NULL: it waits for nothing */
    /* Once, never inside a function of this header. reply is NULL unless err's status is OK; to be
     * kept it is shared. */
    void (*done)(struct step_wait *w, struct step_reply *reply, const struct error *err);
};

/* A session that must not expire, and whose end somebody wants to know. */
struct session_hold {
    struct session *session; /* NULL: none, or it was let go */
    bool is_frozen;          /* the holder's to set: it takes no step */
    /* Nobody finds it any more; it is there until it is let go, which may be now. */
    void (*lost)(struct session_hold *h);
};

/* Zero takes the default. */
struct sessions_config {
    size_t max_sessions; /* 65,536 */
    uint64_t ttl_ms;     /* idle for so long, a session ends; ten minutes */
    const struct env *env;
    /* The one timer: please call sessions_tick at at_us. */
    void (*arm)(void *self, uint64_t at_us);
    void *arm_self;
    void (*quiet)(void *arg); /* the last step in flight has gone; may be NULL */
    void *quiet_arg;
};

struct sessions {
    struct sessions_config config;
    struct session **table; /* [n_buckets], chained */
    size_t n_buckets;       /* a power of two */
    uint64_t salt;          /* of the table's hash */
    size_t n;
    size_t n_asking;  /* steps in flight, also of runs that have ended */
    struct list idle; /* the longest first */
    bool is_draining;
};

enum status sessions_init(struct sessions *all, const struct sessions_config *config,
                          struct error *err) MUST_CHECK;
/* None lives any more; all may be zeroed memory. */
void sessions_deinit(struct sessions *all);

/* Takes the step, and *arena with what the request points to: w is told. Or, with *ret_stored set,
 * the step is done already: that is its reply, borrowed, nothing is taken and w is not used. A
 * refusal takes nothing: INVALID naming the field, RANGE (a number that is not the next), EXHAUSTED
 * (sessions, the queue), PRECONDITION (a model that does not act; lock-step: the row has another's
 * observation), UNAVAILABLE, what the agent says. */
enum status sessions_step(struct sessions *all, const struct step_request *r, struct arena *arena,
                          struct step_wait *w, struct step_reply **ret_stored,
                          struct error *err) MUST_CHECK;

/* w is not told. When nobody else waits the step leaves its batch. */
void step_wait_leave(struct step_wait *w);

/* The session, opened if need be (a run before it ends), is h's until session_let_go. seed:
 * of its draws from now on. PRECONDITION while a step of it is in flight, or when it is held. */
enum status sessions_hold(struct sessions *all, struct model *model, const char *env_id,
                          uint64_t run_id, uint64_t seed, struct session_hold *h,
                          struct error *err) MUST_CHECK;
/* Does nothing when it holds none. */
void session_let_go(struct session_hold *h);
/* Borrowed. */
struct clone *session_clone(struct session *s);
bool session_is_asking(const struct session *s);

/* Ends the run that env_id has with the model, if there is one. */
void sessions_end(struct sessions *all, const struct model *model, const char *env_id);
/* Ends those that have been idle for too long. */
void sessions_tick(struct sessions *all);
/* From now on no step is taken: STATUS_UNAVAILABLE. */
void sessions_drain(struct sessions *all);
/* Ends all of a model (NULL: of any); those whose step is under way are gone when it is back. */
void sessions_close_all(struct sessions *all, const struct model *model);

#endif
