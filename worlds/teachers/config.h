/* The options of a teacher (worlds/teachers/teacher.h); numbers before a colon are the defaults. */
#ifndef WORLDS_TEACHERS_CONFIG_H
#define WORLDS_TEACHERS_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "worlds/message/datatype.h"

enum { TEACHER_MAX_LINE_BYTES = 16 << 20 }; /* of a data file */

/* How a stream is sorted by length: which of the full buckets is dealt next. Either way each
 * example comes once an epoch. */
enum length_caching {
    LENGTH_CACHE_NONE,
    LENGTH_CACHE_POP,   /* at random */
    LENGTH_CACHE_INDEX, /* in turn, the same in every run */
};

/* How the data of the task attached:NAME:ARGUMENT are fetched from another process. */
struct attached_data {
    /* One pass over the data of a fold ("train", "valid", "test"). */
    enum status (*open)(void **out, void *arg, const char *name, const char *fold,
                        const char *argument, struct error *err);
    /* The next JSON lines, the callee's until the next call; *ret_len 0: there are no more.
     * n_episodes have come whole; is_between: and nothing of another. */
    enum status (*next)(void *opened, uint64_t n_episodes, bool is_between, const char **out,
                        size_t *ret_len, struct error *err);
    void (*close)(void *opened);
    void *arg;
};

/* teacher_config_init fills in the defaults. */
struct teacher_config {
    struct datatype datatype; /* valid */
    size_t batch_size;    /* 1: rows of a batch of batch_sort; without batch_sort it decides when a
                             clone reports the end of the epoch, as in ParlAI. Fewer clones than this
                             lose nothing */
    bool hide_labels;     /* the model sees no labels; scores do not change */
    bool skip_bad;        /* bad lines are counted and skipped */
    uint64_t seed;        /* 0: of plain train's draws, of shuffled batches */
    size_t rank, n_ranks; /* 0, 1: this process has episodes i with i % n_ranks == rank */
    unsigned metrics;     /* METRICS_DEFAULT: families */
    size_t n_shards;      /* 1: threads that count metrics */

    /* Squashing: each turn becomes an example of its own, whose text is the turns up to it, one a
     * line. Implied by batch_sort. */
    bool squash;
    bool include_labels;    /* true: the context has one label of each earlier turn */
    int64_t context_length; /* -1: all; else the newest so many utterances, texts and labels both,
                               the current text among them; 0 is 1 */
    bool batch_sort; /* batches of similar length, dealt by batch_act, shuffled in plain train */

    /* For a stream whose examples are episodes of their own, in place of batch_sort: batch_act
     * deals batches from the examples read ahead. */
    enum length_caching length_cache;
    size_t length_range; /* 5: rows of a batch differ by at most 2 (length_range - 1) words, except
                            at the end of the data */

    const char *data_file; /* of a :stream; NULL: beside the source. It is built when it is missing
                              or was built from another source */
    size_t n_loaders;      /* 2: threads of a stream that read ahead */
    size_t max_line_bytes; /* TEACHER_MAX_LINE_BYTES */

    const struct attached_data *attached; /* NULL: such tasks are refused */
};

#endif
