/* A teacher is the participant that has the data (worlds/participant/participant.h). It acts the
 * turns of an episode one after another, and scores the reply that it observes after each turn.
 *
 * The original holds what is shared: the examples, the index of the next episode, and the metrics,
 * with one shard for each thread. The index is one atomic number, so any number of clones on any
 * number of threads deal each episode exactly once. A clone holds the episode that it deals and the
 * place in it.
 *
 * An epoch of plain train never ends. Under all other datatypes, a clone that acts when no episode
 * is left returns padding. It reports epoch_done if its last act was padding, or if that act was
 * the last of its episode and no episode is left for the clone. Training data begin anew once every
 * clone has ended its last episode of the epoch; reset_shared begins anew at once.
 *
 * A reply is scored once, by the labels of the act that it answers. A second reply, a reply to
 * padding, and a reply to an act without labels are not counted. */
#ifndef WORLDS_TEACHERS_TEACHER_H
#define WORLDS_TEACHERS_TEACHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"
#include "worlds/message/act.h"
#include "worlds/metrics/metrics.h"
#include "worlds/teachers/config.h"

struct participant;
struct teacher;

/* Sets the defaults that config.h names. */
void teacher_config_init(struct teacher_config *c);

/* Opens the teacher of a task, PREFIX:SOURCE, and reads all of its data, or maps the index of a
 * stream. Prefixes are parlai, jsonl, fbdialog and conversations with a
 * file, plugin with FILE.so[:ARGUMENT], attached with NAME[:ARGUMENT], and data with a built data
 * file, which is always a stream. config is copied; its texts are borrowed as long as the teacher
 * lives.
 *
 * NOT_FOUND if there is no such file or prefix (the error lists the known ones). INVALID for bad
 * data ("FILE:LINE: what is wrong"), for data without a single example, and for options that do not
 * go together. Other errors are those of the data's source. Any one thread; the caller releases the
 * teacher by participant_unref. */
enum status teacher_open(struct teacher **out, const char *task,
                         const struct teacher_config *config, struct error *err) MUST_CHECK;
/* teacher_participant returns the teacher as a participant. teacher_of is its inverse, and returns
 * NULL for a participant that is no teacher. */
struct participant *teacher_participant(struct teacher *t);
struct teacher *teacher_of(struct participant *p);

/* Splits a list of tasks at its commas: texts[0] is the text before the first one. The texts are
 * copied into arena. INVALID for an empty text, and for one that is there twice, since a report
 * could not tell its two tasks apart. */
enum status tasks_split(struct text **out, size_t *ret_n, const char *tasks, struct arena *arena,
                        struct error *err) MUST_CHECK;

size_t teacher_n_episodes(const struct teacher *t); /* of this rank */
size_t teacher_n_examples(const struct teacher *t); /* of this rank */
/* True if it draws episodes at random, without end. A data: task does not: it is a stream. */
bool teacher_shuffles(const struct teacher *t);
/* Returns the id of the teacher's acts: the file's name without its folder and extension. */
const char *teacher_id(const struct teacher *t);
size_t teacher_n_skipped(const struct teacher *t); /* bad lines, with skip_bad */
/* Returns one line about data that ParlAI reads differently, e.g. episode_done:False; NULL if there
 * are none. Borrowed, as teacher_id is. */
const char *teacher_warning(const struct teacher *t);
struct metrics *teacher_metrics(struct teacher *t); /* borrowed */

#endif
