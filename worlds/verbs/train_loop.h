/* Lets an agent learn in a world, as ParlAI's TrainLoop does, until there were enough epochs,
 * seconds or examples. A validation that is the best so far saves the agent; learning ends early
 * after several validations in a row that are not.
 *
 * A checkpoint says where the loop is, so that another process can go on. The other process's world
 * first plays once more what the agent has learned from, and the agent learns nothing of it: so the
 * data, their order by chance and the conversations are where they were, whatever the kind of
 * world, and the same bits follow. */
#ifndef WORLDS_VERBS_TRAIN_LOOP_H
#define WORLDS_VERBS_TRAIN_LOOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/env.h"
#include "base/status.h"
#include "cli/options/options.h"
#include "worlds/world/world.h"

struct participant;

/* A number below 0 was not given. */
struct train_loop_options {
    double n_epochs, max_seconds;
    double valid_seconds, valid_epochs; /* between validations */
    uint64_t valid_examples;            /* of a validation, at most; 0: all */
    uint32_t patience;                  /* learning ends after so many that are not the best */
    const char *metric, *metric_mode;   /* mode: max or min; NULL: the metric decides */
    double cutoff;                      /* learning ends when the metric is that good */
    uint32_t log_seconds;
    double checkpoint_seconds; /* of learning, between checkpoints; below 0: none */
    bool checkpoint_after_valid;
    bool is_json;
    unsigned set;
};

enum { TRAIN_LOOP_CUTOFF = 1 };

extern const struct option_row train_loop_rows[];
void train_loop_options_init(struct train_loop_options *o);
/* STATUS_INVALID names the option. */
enum status train_loop_check(const struct train_loop_options *o, bool ends_otherwise,
                             struct error *err) MUST_CHECK;
bool train_loop_validates(const struct train_loop_options *o);

typedef enum status (*train_save_fn)(void *arg, const char *path, struct error *err);

/* How far a training has come. */
struct train_progress {
    uint64_t n_examples;
    double seconds; /* of learning alone */
    uint32_t n_validations;
    uint32_t n_worse;       /* validations in a row that were not the best */
    double best;            /* the metric; NAN without validations */
    uint64_t best_examples; /* n_examples at the best validation */
    double validated_s;     /* seconds at the last validation */
    uint64_t n_validated;   /* examples at the last validation */
};

struct train_checkpoints {
    enum status (*write)(void *arg, const struct train_progress *at, struct error *err);
    void (*remove)(void *arg);                /* called when the training is over */
    void (*pause)(void *arg, bool is_paused); /* paused, the agent observes and does not learn */
    void *arg;
    const struct train_progress *from; /* the last checkpoint; NULL: the training is new */
};

struct train_loop {
    const struct train_loop_options *options;
    struct world *train, *valid;      /* valid NULL: no validations */
    struct participant *const *tasks; /* [n_tasks] of train: their metrics begin anew at each line
                                         of progress */
    size_t n_tasks;
    size_t n_epoch;    /* examples of an epoch */
    uint64_t n_rounds; /* how often train runs to its end */
    const char *path;  /* the file that the agent is saved to */
    train_save_fn save;
    void *save_arg;
    struct train_checkpoints checkpoints;
    const struct env *env;
};

struct train_result {
    struct train_progress at;
    struct world_counters counters; /* its batches, of all rounds */
    const char *why;                /* "epochs", "time", "patience", "cutoff", "interrupted" */
};

enum status train_loop_run(struct train_result *out, const struct train_loop *t,
                           struct error *err) MUST_CHECK;

#endif
