/* A task with invented episodes: a teacher in memory that counts how often each example was
 * answered. Any number of clones on any number of threads. */
#ifndef TESTS_SUPPORT_FAKE_TASK_H
#define TESTS_SUPPORT_FAKE_TASK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worlds/message/act.h"
#include "worlds/participant/participant.h"

struct fake_example {
    size_t episode, turn;
    uint32_t text_words, label_words; /* of its text and label */
};

struct fake_task {
    struct participant base;
    const struct fake_example *examples; /* [n_examples], in the order of episodes */
    size_t n_examples, n_episodes;
    size_t *first; /* [n_episodes + 1]: example of each episode's first turn */
    struct act *acts;
    struct arena arena;
    atomic_size_t next;                       /* episode */
    atomic_uint *n_answered;                  /* [n_examples] */
    atomic_size_t n_right;                    /* replies equal to the label */
    atomic_size_t n_resets, n_open, n_closed; /* of the index; clones */
    bool is_endless;                          /* starts again after the last episode */
};

/* Borrows examples. id is its id in acts. */
struct fake_task *fake_task_open(const char *id, const struct fake_example *examples, size_t n);
/* n_episodes of turns turns each, of one to nine words; the caller frees the array. */
struct fake_example *fake_examples(size_t n_episodes, size_t turns);

/* The example of an act; n_examples for padding. */
size_t fake_task_example(const struct fake_task *t, const struct act *act);
/* Whether each example was answered exactly n times. */
bool fake_task_is_even(const struct fake_task *t, unsigned n);
/* The total number of answers. */
size_t fake_task_n_answers(const struct fake_task *t);

#endif
