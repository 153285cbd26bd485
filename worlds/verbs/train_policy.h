/* Trains a policy so that the training survives its processes. Each episode is one call of Train,
 * whose random numbers depend on the seed and the episode's number alone. After each episode the
 * file FILE.checkpoint, written by rename, has the policy, Adam's moments and the position of the
 * training. Another process with the same options continues from the file to the same bits. */
#ifndef WORLDS_VERBS_TRAIN_POLICY_H
#define WORLDS_VERBS_TRAIN_POLICY_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "client/lib/parley.h"

struct policy_spec;

struct policy_training_config {
    const char *path; /* FILE, which the policy is saved to */
    const struct policy_spec *spec;
    const json_t *options; /* train_checkpoint_options */
    uint64_t seed;
    uint32_t n_episodes; /* at most */
    float until;         /* the running reward that ends the training; 0: none */
    bool loads_checkpoint;
};

struct policy_training {
    struct policy_training_config config;
    char *checkpoint, *served; /* FILE.checkpoint; what parleyd has, FILE.episode.gguf */
    bool is_saved;             /* the members below are in the checkpoint */
    uint32_t n_episodes;
    float running_reward;
    uint64_t n_actions;
};

/* Makes the file for parleyd, of a fresh policy or of the checkpoint; a line then says which
 * checkpoint. The training borrows what config points to. PRECONDITION: the checkpoint is of
 * another training. DATA_LOSS: the checkpoint is damaged. Both errors say what to do. */
enum status policy_training_open(struct policy_training *t,
                                 const struct policy_training_config *config,
                                 struct error *err) MUST_CHECK;
/* Zeroed memory is allowed. */
void policy_training_close(struct policy_training *t);

bool policy_training_is_over(const struct policy_training *t);
/* Is a rollout_next_fn: writes the checkpoint of the last episode, and fills in the next episode.
 * If the checkpoint cannot be written, a line says so, and the checkpoint before stays. */
enum status policy_training_next(struct policy_training *t, struct parley_train *what,
                                 bool *ret_is_over, struct error *err);
/* Changes an event of that call into an event of the whole training. */
void policy_training_count(struct policy_training *t, struct parley_trained *event);
/* Ends the training: the policy's file gets its name, and the other files are removed. */
enum status policy_training_finish(struct policy_training *t, struct error *err) MUST_CHECK;

#endif
