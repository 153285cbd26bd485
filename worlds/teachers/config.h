/* The options of a teacher (worlds/teachers/teacher.h). Defaults are those of teacher_config_init;
 * a member's comment names its default where that is not 0. */
#ifndef WORLDS_TEACHERS_CONFIG_H
#define WORLDS_TEACHERS_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "worlds/message/datatype.h"

enum { TEACHER_MAX_LINE_BYTES = 16 << 20 }; /* of a data file */

/* How a stream is sorted by length: the rule by which the next full bucket is dealt. Under both
 * rules each example comes once in an epoch. */
enum length_caching {
    LENGTH_CACHE_NONE,  /* the stream is not sorted */
    LENGTH_CACHE_POP,   /* a random bucket, by seed */
    LENGTH_CACHE_INDEX, /* each full bucket in turn */
};

/* How the data of the task attached:NAME:ARGUMENT are fetched from another process. The program
 * that opens the teacher implements these functions. */
struct attached_data {
    /* Begins one pass over the data of a fold ("train", "valid", "test"). */
    enum status (*open)(void **out, void *arg, const char *name, const char *fold,
                        const char *argument, struct error *err);
    /* Returns the next JSON lines, which are valid until the next call; *ret_len 0: there are no
     * more. n_episodes: how many whole episodes the caller has so far. is_between: the caller has
     * no part of a further episode. */
    enum status (*next)(void *opened, uint64_t n_episodes, bool is_between, const char **out,
                        size_t *ret_len, struct error *err);
    /* Begins the judging of replies, as open does; *out NULL: this task judges none. */
    enum status (*judge_open)(void **out, void *arg, const char *name, const char *fold,
                              const char *argument, struct error *err);
    /* Returns the task's own metrics of replies. lines: JSON lines, each with "act", "labels" and
     * "reply". The result has one JSON object of metrics (worlds/metrics/metrics.h) for each line,
     * on a line each, and is valid until the next call. */
    enum status (*judge)(void *opened, const char *lines, const char **out, size_t *ret_len,
                         struct error *err);
    void (*close)(void *opened); /* what open or judge_open opened */
    void *arg;                   /* for open and judge_open */
};

struct teacher_config {
    struct datatype datatype; /* default: valid */
    size_t batch_size;    /* default 1. With batch_sort or length_cache the rows of a batch; else it
                             decides when a clone reports the end of the epoch, as in ParlAI, and
                             a world of fewer clones still gets all episodes */
    bool hide_labels;     /* acts have no labels; replies are scored all the same */
    bool skip_bad;        /* bad lines are counted and skipped; else they are errors */
    uint64_t seed;        /* of plain train's draws, of shuffled batches, of squashed labels */
    size_t rank, n_ranks; /* default 0, 1: this process has the episodes i with i % n_ranks == rank,
                             rank < n_ranks */
    uint64_t n_first;     /* only the first so many examples, in their order, where an epoch ends;
                             0: all */
    unsigned metrics;     /* default METRICS_DEFAULT: families of metrics that are counted */
    size_t n_shards;      /* default 1: threads that count metrics */

    /* Squashing makes each turn an episode of its own, whose text is the turns up to it, one on
     * each line. batch_sort implies it. */
    bool squash;
    bool include_labels;    /* default true: the text has one label of each earlier turn, too */
    int64_t context_length; /* the newest so many utterances make the text: texts and labels both,
                               the turn's own text among them. 0 counts as 1; below 0, the default:
                               all utterances */
    bool batch_sort; /* batch_act deals batches of similar length, shuffled in plain train; for data
                        in memory */

    /* Has batch_act deal batches of similar length from the examples read ahead. For a stream whose
     * turns are episodes of their own; it takes the place of batch_sort there. */
    enum length_caching length_cache;
    size_t
        length_range; /* default 5: rows of a batch differ by at most 2 (length_range - 1) words */

    const char *data_file; /* path of a stream's data file; NULL: a file beside the source. The file
                              is built if it is missing or was built from another source */
    size_t n_loaders;      /* default 2: threads of a stream that read ahead */
    size_t max_line_bytes; /* default TEACHER_MAX_LINE_BYTES; a longer line is bad */

    const struct attached_data *attached; /* NULL: tasks attached:NAME are UNIMPLEMENTED */
};

#endif
