/* A custom world, as JSON: the participants in speaking order, who hears whom, and what ends an
 * episode; or the participants alone, and a worker's code says the rest (attached_script.h). The
 * JSON is in a file, or is the reply of an attached worker (attached:NAME[:ARGUMENT]).
 * parley-parlai(7) has the fields. */
#ifndef WORLDS_VERBS_WORLD_FILE_H
#define WORLDS_VERBS_WORLD_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

struct data_options;
struct participant_options;
struct world_config;
struct world_file;

/* Whom a verb needs in a world: a teacher, a human and no teacher, or agents alone. */
enum world_file_needs { WORLD_NEEDS_TEACHER, WORLD_NEEDS_HUMAN, WORLD_NEEDS_AGENTS };

/* Returns whether --world names a world of participants, and no environment. */
bool world_file_is_wanted(int argc, char **argv);
/* Opens the world of that name, an attached one at data's connection. INVALID says what is wrong
 * with the world. */
enum status world_file_open(struct world_file **out, const char *name,
                            const struct data_options *data, struct error *err) MUST_CHECK;
/* Called after the world is closed. f may be NULL. */
void world_file_close(struct world_file *f);

/* INVALID: others are in that world. */
enum status world_file_expect(const struct world_file *f, enum world_file_needs needs,
                              struct error *err) MUST_CHECK;
/* Returns the teacher's task; NULL: the world has no teacher. */
const char *world_file_task(const struct world_file *f);
bool world_file_has_human(const struct world_file *f);
size_t world_file_n_rounds(const struct world_file *f); /* 0: the world does not say */
const char *world_file_name(const struct world_file *f, size_t position);

/* Opens the agents; the options say what the world says nothing of. The function fills in config's
 * agents, graph and script, and config's task if there is no teacher. Humans need data's terminal.
 */
enum status world_file_cast(struct world_file *f, struct world_config *config,
                            const struct data_options *data,
                            const struct participant_options *options,
                            struct error *err) MUST_CHECK;

#endif
