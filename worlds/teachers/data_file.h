/* A data file: acts as JSON lines, episode by episode, and beside it an index that says where each
 * episode lies. It is built once from a source; a :stream reads it.
 *
 * The index (FILE.index) is little-endian: a header of 128 bytes with its own crc32c, and entries
 * of 24 bytes, one an episode, with a crc32c of their own. The header has the source's size, time
 * of change and crc32c, the data's size, and the options of the build. So opening detects an index
 * that is damaged, of another version, or older than its source. Each entry has the crc32c of its
 * episode, which is checked when the episode is read. */
#ifndef WORLDS_TEACHERS_DATA_FILE_H
#define WORLDS_TEACHERS_DATA_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "worlds/teachers/config.h"
#include "worlds/teachers/index.h"

struct participant;

/* Builds the data file of a task ("parlai:FILE", …), or only the index where the task is
 * jsonl:FILE, data_path is FILE, and nothing is squashed or preprocessed. Both are written to
 * temporary files and renamed when complete. Of the config: squash, include_labels, context_length,
 * seed, skip_bad, max_line_bytes.
 *
 * preprocess, if not NULL, observes each act as it would in a world and self-observes the first
 * label as its answer. Its observation (text_vec, labels_vec, …, but not the whole history again)
 * is written, and vectors_of: a listener (worlds/participant/listener.h) with that digest reads
 * them back. INVALID for a participant that reads none back. One thread. */
enum status data_build(const char *task, const char *data_path, const struct teacher_config *config,
                       struct participant *preprocess, struct error *err) MUST_CHECK;

/* PRECONDITION says why the index cannot be used: it is missing, damaged, of another version, of
 * other data, older than its source, or built with another config (task NULL: source and config are
 * not checked). Reads the whole index once. */
enum status data_index_open(struct data_index *out, const char *data_path, const char *task,
                            const struct teacher_config *config, struct error *err) MUST_CHECK;
void data_index_close(struct data_index *x);

/* The path of a task's stream data: config's data_file, FILE itself (data:, or an unchanged
 * jsonl:), or FILE.stream. */
enum status data_path_of(char **out, const char *task, const struct teacher_config *config,
                         struct error *err) MUST_CHECK;

/* For opening a stream: opens the index, or builds it first, but never in place of preprocessed
 * data, which are PRECONDITION when the source has changed since. */
enum status data_ready(struct data_index *out, const char *data_path, const char *task,
                       const struct teacher_config *config, struct error *err) MUST_CHECK;

#endif
