/* A teacher: the participant that has the data (worlds/participant/participant.h). It acts the
 * turns of an episode one after another, and scores the reply that it observes after each.
 *
 * The original holds what is shared: examples, the index of the next episode (one atomic number, so
 * any number of clones on any number of threads see each episode exactly once), metrics, of which a
 * clone's thread is the shard. A clone holds its place in the episode it owns.
 *
 * End of an epoch, all datatypes but plain train: a clone that acts when no episode is left returns
 * padding. It reports epoch_done when its last act was padding, or was the last of its episode and
 * no episode is left. Data to be trained on begin anew once every clone has ended its last episode
 * of the epoch; resetting what is shared begins anew at once.
 *
 * A reply is scored once, by the labels of the act it answers. A second reply, a reply to padding,
 * and a reply to an act without labels are not counted. */
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

/* Fills in the defaults that config.h names. */
void teacher_config_init(struct teacher_config *c);

/* task: PREFIX:FILE with a prefix that teacher_task_at lists: parlai, jsonl, fbdialog,
 * conversations; data for a built file. Reads (or maps) all of it. NOT_FOUND: no such file, or no
 * such prefix (the error lists the known ones). INVALID: "FILE:LINE: what is wrong", also for a
 * file without a single example. Any one thread; participant_unref it. */
enum status teacher_open(struct teacher **out, const char *task,
                         const struct teacher_config *config, struct error *err) MUST_CHECK;
/* The teacher as a participant, and back; of another participant: NULL. */
struct participant *teacher_participant(struct teacher *t);
struct teacher *teacher_of(struct participant *p);

/* "parlai", …; NULL after the last. */
const char *teacher_task_at(size_t i);

/* A list of tasks with commas; the text before the first comma is texts[0]. Each text is the
 * arena's. A name in the list twice is INVALID: two tasks of one name cannot be told apart in a
 * report. */
enum status tasks_split(struct text **out, size_t *ret_n, const char *tasks, struct arena *arena,
                        struct error *err) MUST_CHECK;

size_t teacher_n_episodes(const struct teacher *t); /* of this rank */
size_t teacher_n_examples(const struct teacher *t);
/* The id that acts carry: the file's name without folder and extension. */
const char *teacher_id(const struct teacher *t);
size_t teacher_n_skipped(const struct teacher *t); /* bad lines, with skip_bad */
/* One line about data that other readers read differently (episode_done:False …), or NULL. */
const char *teacher_warning(const struct teacher *t);
struct metrics *teacher_metrics(struct teacher *t);

#endif
