/* An environment worker: an environment for which a server chooses every action. The worker plays
 * an episode in callbacks on the channel's thread; a program may have many workers at once. */
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
/* Returns the percentile to within 5 %; 0: nothing was added. */
double latency_percentile(const struct latency *l, double percent);

struct environment_worker_config {
    const char *model;       /* NULL: the server's default */
    const char *env_id;      /* kept by the caller */
    const char *environment; /* "cartpole", "plugin:FILE.so" */
    uint64_t run_id;
    uint32_t row;   /* the worker's index, for lock-step */
    bool is_stream; /* all steps are sent over one stream; else each is a call */
};

struct environment_worker;

/* The result of an episode that the server requested. */
struct played {
    const float *returns; /* [n_returns] rewards-to-go within each sub-episode */
    size_t n_returns;
    float reward; /* of the first sub-episode */
};

/* err->status says whether the episode was played to its end. The callback may start the next
 * episode. */
typedef void (*environment_worker_fn)(void *arg, const struct played *played,
                                      const struct parley_error *err);

/* Opens the environment. The worker borrows the channel. */
enum status environment_worker_open(struct environment_worker **out, struct parley_channel *channel,
                                    const struct environment_worker_config *config,
                                    struct error *err) MUST_CHECK;
/* Must be called when no episode is running or the channel is closed, and never in a callback. */
void environment_worker_close(struct environment_worker *w);

void environment_worker_set_row(struct environment_worker *w, uint32_t row);

/* Plays n_steps steps, with a reset whenever the environment's own episode ends; with is_single the
 * first such end is the end. Each reset takes the next start of the series that the seed names. A
 * step that is ABORTED, since its batch lost a participant, is sent again; any other failure ends
 * the episode. `played` is called once, and inside this call if nothing can be sent. */
void environment_worker_play(struct environment_worker *w, const struct parley_run_episode *episode,
                             bool is_single, environment_worker_fn played, void *arg);

/* Returns the environment's name, such as "CartPole-v1". */
const char *environment_worker_environment(const struct environment_worker *w);
uint32_t
environment_worker_max_steps(const struct environment_worker *w); /* of one of its episodes */

const struct latency *environment_worker_latency(const struct environment_worker *w);

#endif
