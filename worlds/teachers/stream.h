/* A data file that is read on demand, in bounded memory: loader threads read and parse chunks of
 * episodes ahead, at places that an index gives. A chunk lives until the last of its episodes is
 * released, so memory is that of the chunks read ahead and of those that clones use. */
#ifndef WORLDS_TEACHERS_STREAM_H
#define WORLDS_TEACHERS_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worlds/teachers/example.h"
#include "worlds/teachers/format.h"

struct episode_stream;

/* Opens a task's data file (data_path_of), which is built first if it is missing or was built from
 * another source. id and config are borrowed. */
enum status episodes_open(struct episode_stream **out, const char *task, struct text id,
                          const struct teacher_config *config, bool loops,
                          struct error *err) MUST_CHECK;
void episodes_close(struct episode_stream *s); /* no lease is held */

size_t episodes_n_episodes(const struct episode_stream *s); /* of this rank */
size_t episodes_n_examples(const struct episode_stream *s);
size_t episodes_n_skipped(const struct episode_stream *s);

/* Episode index % n_episodes. Each index is fetched exactly once, by any thread, in any order among
 * those in flight; waits for the loader. Examples are valid until the release. DATA_LOSS: the file
 * has changed since it was indexed. */
enum status episodes_fetch(struct episode_stream *s, uint64_t index, const struct example **out,
                           size_t *ret_n, void **ret_lease, struct error *err) MUST_CHECK;
void episodes_release(void *lease);
/* Begins at index 0 again. No fetch may run meanwhile. */
void episodes_reset(struct episode_stream *s);

#endif
