/* A teacher: the participant that has the data. It acts one turn of an episode after the other and
 * scores the reply that it then observes.
 *
 * The original holds what is shared: examples, the index of the next episode (one atomic number, so
 * any number of clones on any number of threads see each episode exactly once), metrics. A clone
 * holds its place in the episode it owns, and is small: a world keeps its clones in an array and
 * passes each to teacher_clone_init. A clone is one thread's at a time.
 *
 * End of an epoch, all datatypes but plain train: a clone that asks and for which there is no
 * episode left gets padding. It says epoch_done when its last act was padding, or was the last of
 * its episode and no episode is left. Data to be trained on begin anew once every clone has ended
 * its last episode of the epoch; teacher_reset begins anew at once. */
#ifndef WORLDS_TEACHER_H
#define WORLDS_TEACHER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"
#include "worlds/act.h"
#include "worlds/datatype.h"
#include "worlds/metrics.h"

struct teacher;
struct teacher_clone;

enum { TEACHER_MAX_LINE_BYTES = 16 << 20 }; /* of a data file */

/* teacher_config_init fills what is said to be the default. */
struct teacher_config {
    struct datatype datatype; /* valid */
    size_t batch_size;        /* 1: clones that a batch has; a lone clone may well ask a teacher of
                                 64, nothing is lost */
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

    const char *data_file; /* NULL: beside the source. Of a :stream, which is built when it is not
                              there or its source is another than it was built from */
    size_t max_line_bytes; /* TEACHER_MAX_LINE_BYTES */
};

void teacher_config_init(struct teacher_config *c);

/* task: PREFIX:FILE with a prefix of those that teacher_task_at names: parlai, jsonl, fbdialog,
 * conversations; data for a built file. Reads (or maps) all of it. NOT_FOUND: no such prefix (names
 * those there are) or file. INVALID: "FILE:LINE: what is wrong", also for a file without a single
 * example. Any one thread. */
enum status teacher_open(struct teacher **out, const char *task,
                         const struct teacher_config *config, struct error *err) MUST_CHECK;
void teacher_close(struct teacher *t); /* no clone lives */

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
/* Whether acts come by teacher_batch_act. */
bool teacher_has_batch_act(const struct teacher *t);

struct metrics *teacher_metrics(struct teacher *t);
/* metrics_report of it. */
enum status teacher_report(struct report *out, struct teacher *t, struct error *err) MUST_CHECK;
/* Index to the start and metrics cleared, for all clones: none may hold an act, each is to be
 * given to teacher_clone_reset. */
void teacher_reset(struct teacher *t);

/* What a world keeps one of for each of its clones. Members are the teacher's own. */
struct teacher_clone {
    struct teacher *teacher;
    struct act act;            /* the last one */
    struct value labels;       /* of it, which a reply is scored by; VALUE_NULL: none */
    size_t episode;            /* index that the clone owns */
    uint32_t next, n_examples; /* of the episode; next == n_examples: it has ended */
    uint32_t shard;            /* of the metrics */
    bool is_padding;           /* the last act was */
    void *reading;             /* a stream's own: what the episode lies in */
};

/* shard < n_shards: a number for each thread. O(1), takes no memory, cannot fail. */
void teacher_clone_init(struct teacher_clone *c, struct teacher *t, uint32_t shard);
void teacher_clone_deinit(struct teacher_clone *c);
void teacher_clone_reset(struct teacher_clone *c); /* drops its episode, as freshly initialised */

/* The next act, valid until the next call for the clone. It may be shared and changed like any act
 * that borrows (act_share). Failures are a stream's: a file that was cut or changed under way. */
enum status teacher_act(struct teacher_clone *c, const struct act **out,
                        struct error *err) MUST_CHECK;
/* Scores the reply to the last act, once: a second reply, one to padding, and one to an act without
 * labels count nothing. */
enum status teacher_observe(struct teacher_clone *c, const struct act *reply,
                            struct error *err) MUST_CHECK;

/* One batch, an act for each of n clones (n at least the batch_size, else INVALID); padding behind
 * a short batch's last row. */
enum status teacher_batch_act(struct teacher *t, struct teacher_clone *const *clones, size_t n,
                              struct error *err) MUST_CHECK;

bool teacher_episode_done(const struct teacher_clone *c); /* of its last act */
bool teacher_epoch_done(const struct teacher_clone *c);

#endif
