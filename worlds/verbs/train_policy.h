/* Training of a policy that survives its processes. Each episode is one call of Train, whose random
 * numbers depend only on the seed and the episode's number. After each, FILE.checkpoint has the
 * policy, Adam's moments and the position of the training, written by rename. The same options
 * continue from there to the same bits. */
#ifndef WORLDS_VERBS_TRAIN_POLICY_H
#define WORLDS_VERBS_TRAIN_POLICY_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "client/lib/parley.h"

struct policy_spec;

struct policy_training_config {
    const char *path; /* FILE, where the policy goes */
    const struct policy_spec *spec;
    const json_t *options; /* train_checkpoint_options */
    uint64_t seed;
    uint32_t n_episodes; /* at most */
    float until;         /* running reward that ends it; 0: none */
    bool loads_checkpoint;
};

struct policy_training {
    struct policy_training_config config;
    char *checkpoint, *served; /* FILE.checkpoint; what parleyd has, FILE.episode.gguf */
    bool is_saved;             /* as the checkpoint says */
    uint32_t n_episodes;
    float running_reward;
    uint64_t n_actions;
};

/* Makes the served file: a fresh policy's, or the checkpoint's, which is said. Borrows what config
 * points to. PRECONDITION: the checkpoint is of another training; DATA_LOSS: it is damaged; both
 * say what to do. */
enum status policy_training_open(struct policy_training *t,
                                 const struct policy_training_config *config,
                                 struct error *err) MUST_CHECK;
/* Zeroed memory is allowed. */
void policy_training_close(struct policy_training *t);

bool policy_training_is_over(const struct policy_training *t);
/* A rollout_next_fn: writes the checkpoint of the episode before, and names the next one. One that
 * cannot be written is said, and the one before stays. */
enum status policy_training_next(struct policy_training *t, struct parley_train *what,
                                 bool *ret_is_over, struct error *err);
/* The event of that call, as of the whole training. */
void policy_training_count(struct policy_training *t, struct parley_trained *event);
/* It is over: the policy gets its name, and the other files go. */
enum status policy_training_finish(struct policy_training *t, struct error *err) MUST_CHECK;

#endif
