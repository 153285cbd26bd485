/* An episode stream reads a data file on demand, in bounded memory. Loader threads read and parse
 * chunks of episodes ahead, at places that an index gives. A chunk lives until all of its episodes
 * were fetched and released, so the memory is that of the chunks read ahead and of those in use. */
#ifndef WORLDS_TEACHERS_STREAM_H
#define WORLDS_TEACHERS_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worlds/teachers/example.h"
#include "worlds/teachers/format.h"

struct episode_stream;

/* Opens a task's data file (data_path_of), which is built first if it is missing or was built from
 * another source (data_ready, with its errors), and starts the loaders. loops: the data begin again
 * after the last episode. INVALID without a single example, EXHAUSTED if no loader can be started.
 * Borrows id and config until episodes_close. */
enum status episodes_open(struct episode_stream **out, const char *task, struct text id,
                          const struct teacher_config *config, bool loops,
                          struct error *err) MUST_CHECK;
/* Every lease was released, and no fetch runs. s may be NULL. */
void episodes_close(struct episode_stream *s);

size_t episodes_n_episodes(const struct episode_stream *s); /* of this rank */
size_t episodes_n_examples(const struct episode_stream *s); /* of this rank */
size_t episodes_n_skipped(const struct episode_stream *s);  /* bad lines of the source */

/* Returns the *ret_n examples of episode index % n_episodes, valid until episodes_release is called
 * with *ret_lease. Indices count on across epochs; without loops they stay below n_episodes. The
 * callers together fetch each index from 0 on exactly once, in any order among those in flight.
 * Waits until a loader has read the chunk. Any thread. DATA_LOSS if the file has changed since it
 * was indexed, EXHAUSTED if the loader had no memory. */
enum status episodes_fetch(struct episode_stream *s, uint64_t index, const struct example **out,
                           size_t *ret_n, void **ret_lease, struct error *err) MUST_CHECK;
void episodes_release(void *lease); /* any thread */
/* Begins again at index 0. No fetch may run meanwhile. */
void episodes_reset(struct episode_stream *s);

#endif
