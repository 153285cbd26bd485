/* An observer: an environment, and a server that is asked for every action in it. It plays an
 * episode by callbacks alone, each on the channel's thread; a program may have many at once. */
#ifndef CLIENT_CLI_OBSERVER_H
#define CLIENT_CLI_OBSERVER_H

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

struct observer_config {
    const char *model;       /* NULL: the server's default */
    const char *env_id;      /* kept by the caller */
    const char *environment; /* "cartpole" */
    uint64_t run_id;
    uint32_t row;   /* lock-step: its index */
    bool is_stream; /* steps over one stream instead of a call each */
};

struct observer;

/* How an episode of the server's went. */
struct played {
    const float *returns; /* [n_returns] rewards-to-go within each sub-episode */
    size_t n_returns;
    float reward; /* of the first sub-episode */
};

/* err->status tells whether it was played to its end. May play again. */
typedef void (*observer_fn)(void *arg, const struct played *played, const struct parley_error *err);

/* Borrows the channel. */
enum status observer_open(struct observer **out, struct parley_channel *channel,
                          const struct observer_config *config, struct error *err) MUST_CHECK;
/* No episode is under way, or the channel is closed. Not from a callback. */
void observer_close(struct observer *o);

void observer_set_row(struct observer *o, uint32_t row);

/* n_steps steps, with a reset wherever the environment's own episode ends; is_single: stops at the
 * first such end. Each reset goes on in the series of starts that the seed names. An ABORTED step
 * (its batch lost somebody) is asked again; any other failure ends the episode. played is called
 * once, inside when nothing can be sent. */
void observer_play(struct observer *o, const struct parley_run_episode *episode, bool is_single,
                   observer_fn played, void *arg);

/* As the environment is called: "CartPole-v1". */
const char *observer_environment(const struct observer *o);
uint32_t observer_max_steps(const struct observer *o); /* of an episode of the environment */

const struct latency *observer_latency(const struct observer *o);

#endif
