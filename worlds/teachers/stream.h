/* A data file that is read as it is asked for, in bounded memory: loader threads read and parse
 * chunks of episodes ahead, an index says where they lie. Chunks live until the last of their
 * episodes is released, so memory is that of the chunks ahead and of those that clones stand in. */
#ifndef WORLDS_TEACHERS_STREAM_H
#define WORLDS_TEACHERS_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worlds/teachers/example.h"
#include "worlds/teachers/format.h"

struct stream;

/* Of a task's data file (data_path_of), which is built now if it is not there or was built from
 * something else. id and config are borrowed. */
enum status episodes_open(struct stream **out, const char *task, struct text id,
                          const struct teacher_config *config, bool loops,
                          struct error *err) MUST_CHECK;
void episodes_close(struct stream *s); /* no lease is held */

size_t episodes_n_episodes(const struct stream *s); /* of this rank */
size_t episodes_n_examples(const struct stream *s);
size_t episodes_n_skipped(const struct stream *s);

/* Episode index % n_episodes. Each index is fetched exactly once, by any thread, in any order
 * among those that are under way; waits for the loader. Examples are valid until the release.
 * DATA_LOSS: the file is no longer what was indexed. */
enum status episodes_fetch(struct stream *s, uint64_t index, const struct example **out,
                           size_t *ret_n, void **ret_lease, struct error *err) MUST_CHECK;
void episodes_release(void *lease);
/* Begins at index 0 again. Nobody fetches meanwhile. */
void episodes_reset(struct stream *s);

#endif
