/* A teacher: the participant that has the data (worlds/participant.h). It acts one turn of an
 * episode after the other and scores the reply that it then observes.
 *
 * The original holds what is shared: examples, the index of the next episode (one atomic number, so
 * any number of clones on any number of threads see each episode exactly once), metrics, of which a
 * clone's thread is the shard. A clone holds its place in the episode it owns.
 *
 * End of an epoch, all datatypes but plain train: a clone that asks and for which there is no
 * episode left gets padding. It says epoch_done when its last act was padding, or was the last of
 * its episode and no episode is left. Data to be trained on begin anew once every clone has ended
 * its last episode of the epoch; resetting what is shared begins anew at once.
 *
 * A reply is scored once, by the labels of the act it answers: a second reply, one to padding, and
 * one to an act without labels count nothing. */
#ifndef WORLDS_TEACHER_H
#define WORLDS_TEACHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"
#include "worlds/act.h"
#include "worlds/datatype.h"
#include "worlds/metrics.h"

struct participant;
struct teacher;

enum { TEACHER_MAX_LINE_BYTES = 16 << 20 }; /* of a data file */

/* How a stream is sorted by length: which of the lengths that fill a batch comes next. Each example
 * comes once an epoch either way. */
enum length_caching {
    LENGTH_CACHE_NONE,
    LENGTH_CACHE_POP,   /* by chance */
    LENGTH_CACHE_INDEX, /* in turn, the same in every run */
};

/* teacher_config_init fills what is said to be the default. */
struct teacher_config {
    struct datatype datatype; /* valid */
    size_t batch_size;        /* 1: rows of a batch of batch_sort; else when a clone says that the
                                 epoch is done, as ParlAI does. Fewer clones than this lose nothing */
    bool hide_labels;         /* the model sees none; scores are as ever */
    bool skip_bad;            /* lines that are wrong are counted and left out */
    uint64_t seed;            /* 0: of plain train's draws, of shuffled batches */
    size_t rank, n_ranks;     /* 0, 1: this process has episodes i with i % n_ranks == rank */
    unsigned metrics;         /* METRICS_DEFAULT: families */
    size_t n_shards;          /* 1: threads that will count */

    /* Squashing: each turn becomes an example of its own whose text is the turns up to it, lines
     * of their own. Implied by batch_sort. */
    bool squash;
    bool include_labels;    /* true: the context has one label of each turn that went before */
    int64_t context_length; /* -1: all; else the newest so many utterances, texts and labels both,
                               the current text among them; 0 is 1 */
    bool batch_sort; /* batches of like length, dealt out by batch_act, shuffled in plain train */

    /* Of a stream of examples that are episodes of their own, instead of batch_sort: dealt out by
     * batch_act as well, from what has been read ahead. */
    enum length_caching length_cache;
    size_t length_range; /* 5: rows of a batch differ by at most 2 (length_range - 1) words, but at
                            the end of the data */

    const char *data_file; /* NULL: beside the source. Of a :stream, which is built when it is not
                              there or its source is another than it was built from */
    size_t n_loaders;      /* 2: threads of a stream that read ahead */
    size_t max_line_bytes; /* TEACHER_MAX_LINE_BYTES */
};

void teacher_config_init(struct teacher_config *c);

/* task: PREFIX:FILE with a prefix of those that teacher_task_at names: parlai, jsonl, fbdialog,
 * conversations; data for a built file. Reads (or maps) all of it. NOT_FOUND: no such prefix (names
 * those there are) or file. INVALID: "FILE:LINE: what is wrong", also for a file without a single
 * example. Any one thread; participant_unref it. */
enum status teacher_open(struct teacher **out, const char *task,
                         const struct teacher_config *config, struct error *err) MUST_CHECK;
/* The teacher as a participant, and back; of another participant: NULL. */
struct participant *teacher_participant(struct teacher *t);
struct teacher *teacher_of(struct participant *p);

/* "parlai", …; NULL after the last. */
const char *teacher_task_at(size_t i);

/* A list of tasks with commas; what stands before the first comma is texts[0]. Each text is the
 * arena's. A name in the list twice is INVALID: two tasks of one name cannot be told apart in a
 * report. */
enum status tasks_split(struct text **out, size_t *ret_n, const char *tasks, struct arena *arena,
                        struct error *err) MUST_CHECK;

size_t teacher_n_episodes(const struct teacher *t); /* of this rank */
size_t teacher_n_examples(const struct teacher *t);
/* The id that acts carry: the file's name without folder and extension. */
const char *teacher_id(const struct teacher *t);
size_t teacher_n_skipped(const struct teacher *t); /* bad lines, with skip_bad */
/* One line on what in the data other readers take otherwise (episode_done:False …), or NULL. */
const char *teacher_warning(const struct teacher *t);
struct metrics *teacher_metrics(struct teacher *t);

#endif
