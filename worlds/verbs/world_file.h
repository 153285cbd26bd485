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

/* Whether --world says a world of participants, not an environment. */
bool world_file_is_wanted(int argc, char **argv);
/* Of an attached one from data's connection. INVALID: what is wrong with it. */
enum status world_file_open(struct world_file **out, const char *name,
                            const struct data_options *data, struct error *err) MUST_CHECK;
void world_file_close(struct world_file *f); /* after the world; NULL is fine */

/* INVALID: somebody else speaks first. */
enum status world_file_expect(const struct world_file *f, enum world_file_first first,
                              struct error *err) MUST_CHECK;
const char *world_file_task(const struct world_file *f); /* the teacher's; NULL: it has none */
size_t world_file_n_rounds(const struct world_file *f);  /* 0: not said */
size_t world_file_n_positions(const struct world_file *f);
const char *world_file_name(const struct world_file *f, size_t position);

/* Opens the agents; what a participant leaves out, the options say. Fills in config's agents and
 * graph, and, of a world whose first is an agent, its task. */
enum status world_file_cast(struct world_file *f, struct world_config *config,
                            const struct data_options *data,
                            const struct participant_options *options,
                            struct error *err) MUST_CHECK;

#endif
