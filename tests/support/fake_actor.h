/* Sessions without a server: a clock turned by hand, and a model whose steps run when the test says
 * so. The agent "actor" sums the two numbers of its observation and adds how many steps its clone
 * has done before; a sum that is no number fails the row, a negative first number is not observed.
 */
#ifndef TESTS_SUPPORT_FAKE_ACTOR_H
#define TESTS_SUPPORT_FAKE_ACTOR_H

#include "server/model.h"
#include "server/session.h"

enum { ACTOR_MAX_ROWS = 4 };

struct fake_actor {
    uint64_t now_us;
    struct env env;
    struct model model;
    struct sessions all;
    struct batch_step *step; /* submitted, not run */
    uint64_t tick_at_us;     /* of the batcher, 0: none wanted */
    uint64_t expiry_at_us;   /* of the sessions, 0: none wanted */
    unsigned n_quiet;
    bool is_closed;
};

/* config's bounds are taken. EXHAUSTED: nothing is open. */
enum status fake_actor_open(struct fake_actor *f, const struct sessions_config *config,
                            struct error *err);
/* Ends all sessions, lets it all end, checks that nothing is left. */
void fake_actor_close(struct fake_actor *f);
/* Until nothing is left to do at this time. */
void fake_actor_run(struct fake_actor *f);

/* A step and what came of it. */
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
    uint32_t row;
    uint64_t deadline_us;
};

/* A stored reply is told at once. */
enum status fake_step(struct fake_actor *f, struct fake_step *s, const struct fake_request *r,
                      struct error *err);

#endif
