/* Episodes of environments that only the server has, attached or plugged in there. The policy acts
 * in them inside the server (parley.v1.Env). */
#ifndef WORLDS_VERBS_POLICY_REMOTE_SCORE_H
#define WORLDS_VERBS_POLICY_REMOTE_SCORE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct parley_channel;

struct remote_score {
    const char *environment, *policy; /* names at the server; policy NULL: its default */
    size_t n_episodes, n_at_once;     /* at least 1 each */
    uint64_t seed;                    /* of episode 0; episode i has seed + i */
    float *rewards;                   /* [n_episodes], the sums; written */
    size_t n_cut;                     /* episodes that the environment cut off; written */
};

/* Called after each wave of episodes with the number that have ended. */
typedef void (*remote_score_fn)(size_t n_ended, void *arg);

/* Plays all episodes. Errors are those of the server; EXHAUSTED: an episode does not end. */
enum status remote_score_play(struct remote_score *s, struct parley_channel *channel,
                              remote_score_fn tell, void *arg, struct error *err) MUST_CHECK;

#endif
