/* Sessions without a server: a manual clock, and a model whose steps run when the test says so. The
 * agent "actor" adds the two numbers of its observation and the number of steps that its clone has
 * done. A NaN sum fails the row; observe refuses a negative first number. */
#ifndef TESTS_SUPPORT_FAKE_ACTOR_H
#define TESTS_SUPPORT_FAKE_ACTOR_H

#include "base/alarm.h"
#include "server/act/session.h"
#include "server/model/model.h"

enum { ACTOR_MAX_ROWS = 4 };

struct fake_actor {
    uint64_t now_us;
    struct env env;
    struct model model;
    struct sessions all;
    struct batch_step *step; /* begun, not computed */
    uint64_t tick_at_us;     /* the batcher's timer, 0: not armed */
    struct alarm expiry;     /* the sessions' */
    unsigned n_idle;
    bool is_closed;
};

/* Uses config's bounds. On EXHAUSTED nothing is open. */
enum status fake_actor_open(struct fake_actor *f, const struct sessions_config *config,
                            struct error *err);
/* Ends all sessions, runs until all has ended, and checks that nothing is left. */
void fake_actor_close(struct fake_actor *f);
/* Runs until nothing is left to do at this time. */
void fake_actor_run(struct fake_actor *f);

/* A step and its result. */
struct fake_step {
    struct step_wait wait;
    unsigned n_done;
    struct error err;
    uint64_t seq;
    float action;
    uint32_t batch_rows;
};

struct fake_request {
    const char *env_id;
    uint64_t run_id, seq;
    float a, b;
    float reward;
    bool done;
    uint32_t row;
    uint64_t deadline_us;
};

/* A stored reply arrives at once. */
enum status fake_step(struct fake_actor *f, struct fake_step *s, const struct fake_request *r,
                      struct error *err);

#endif
