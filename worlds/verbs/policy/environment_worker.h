/* An environment worker: an environment for which a server chooses every action. It plays an
 * episode only in callbacks, each on the channel's thread; a program may have many at once. */
#ifndef WORLDS_VERBS_POLICY_ENVIRONMENT_WORKER_H
#define WORLDS_VERBS_POLICY_ENVIRONMENT_WORKER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "client/lib/parley.h"

/* How long steps took, from sending to the action, in buckets a sixteenth of an octave wide. */
enum { LATENCY_BUCKETS = 16 * 28 };
struct latency {
    uint64_t n;
    uint32_t buckets[LATENCY_BUCKETS];
};

void latency_add(struct latency *l, uint64_t us);
void latency_merge(struct latency *into, const struct latency *from);
/* Within 5 %; 0 where there are none. */
double latency_percentile(const struct latency *l, double percent);

struct environment_worker_config {
    const char *model;       /* NULL: the server's default */
    const char *env_id;      /* kept by the caller */
    const char *environment; /* "cartpole", "plugin:FILE.so" */
    uint64_t run_id;
    uint32_t row;   /* lock-step: its index */
    bool is_stream; /* steps over one stream instead of a call each */
};

struct environment_worker;

/* The result of an episode that the server requested. */
struct played {
    const float *returns; /* [n_returns] rewards-to-go within each sub-episode */
    size_t n_returns;
    float reward; /* of the first sub-episode */
};

/* err->status says whether it was played to its end. The callback may start the next episode. */
typedef void (*environment_worker_fn)(void *arg, const struct played *played,
                                      const struct parley_error *err);

/* Borrows the channel. */
enum status environment_worker_open(struct environment_worker **out, struct parley_channel *channel,
                                    const struct environment_worker_config *config,
                                    struct error *err) MUST_CHECK;
/* Only when no episode is running, or the channel is closed. Not from a callback. */
void environment_worker_close(struct environment_worker *w);

void environment_worker_set_row(struct environment_worker *w, uint32_t row);

/* n_steps steps, with a reset wherever the environment's own episode ends; is_single: stops at the
 * first such end. Each reset takes the next start of the series that the seed names. An ABORTED
 * step (its batch lost a participant) is sent again; any other failure ends the episode. played is
 * called once; inside this call when nothing can be sent. */
void environment_worker_play(struct environment_worker *w, const struct parley_run_episode *episode,
                             bool is_single, environment_worker_fn played, void *arg);

/* The environment's name: "CartPole-v1". */
const char *environment_worker_environment(const struct environment_worker *w);
uint32_t
environment_worker_max_steps(const struct environment_worker *w); /* of one of its episodes */

const struct latency *environment_worker_latency(const struct environment_worker *w);

#endif
