/* A custom world, as JSON: the participants in speaking order, who hears whom, and what ends an
 * episode. The JSON is in a file, or is the reply of an attached worker
 * (attached:NAME[:ARGUMENT]). parley-parlai(7) has the fields. */
#ifndef WORLDS_VERBS_WORLD_FILE_H
#define WORLDS_VERBS_WORLD_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

struct data_options;
struct participant_options;
struct world_config;
struct world_file;

/* Who speaks first; all others are agents. */
enum world_file_first { FIRST_TEACHER, FIRST_HUMAN, FIRST_AGENT };

/* Returns whether --world names a world of participants, and no environment. */
bool world_file_is_wanted(int argc, char **argv);
/* Opens the world of that name, an attached one at data's connection. INVALID says what is wrong
 * with the world. */
enum status world_file_open(struct world_file **out, const char *name,
                            const struct data_options *data, struct error *err) MUST_CHECK;
/* Called after the world is closed. f may be NULL. */
void world_file_close(struct world_file *f);

/* INVALID: another participant speaks first in that world. */
enum status world_file_expect(const struct world_file *f, enum world_file_first first,
                              struct error *err) MUST_CHECK;
/* Returns the teacher's task; NULL: the world has no teacher. */
const char *world_file_task(const struct world_file *f);
size_t world_file_n_rounds(const struct world_file *f); /* 0: the world does not say */
const char *world_file_name(const struct world_file *f, size_t position);

/* Opens the agents; the options say what the world says nothing of. The function fills in config's
 * agents and graph, and config's task if an agent speaks first. */
enum status world_file_cast(struct world_file *f, struct world_config *config,
                            const struct data_options *data,
                            const struct participant_options *options,
                            struct error *err) MUST_CHECK;

#endif
