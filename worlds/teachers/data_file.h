/* A data file holds acts as JSON lines, episode by episode. Beside it lies an index, which says
 * where each episode lies. Both are built once from a source; a teacher of the datatype :stream
 * reads them.
 *
 * The index (FILE.index) is little-endian. It has a header of 128 bytes with its own crc32c, and
 * for each episode an entry of 24 bytes; all entries together have a crc32c. The header has the
 * source's size, time of change and crc32c, the data's size, and a checksum of the options of the
 * build. So opening detects an index that is damaged, of another version, or older than its source.
 * Each entry has the crc32c of its episode, which is checked when the episode is read. */
#ifndef WORLDS_TEACHERS_DATA_FILE_H
#define WORLDS_TEACHERS_DATA_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "worlds/teachers/config.h"
#include "worlds/teachers/index.h"

struct participant;

/* Builds the data file of a task ("parlai:FILE", …) and its index. If the task is jsonl:FILE (or
 * data:FILE), data_path is FILE, and nothing is squashed or preprocessed, FILE itself is the data
 * file and only the index is built. Both are written to temporary files, which are renamed when
 * complete and removed after a failure. Of the config it reads datatype.fold, squash,
 * include_labels, context_length, seed, skip_bad, max_line_bytes and attached.
 *
 * preprocess, if not NULL, observes each act as in a world and self-observes the first label as its
 * answer. What it observes (text_vec, labels_vec, …, but not full_text) is written instead of the
 * act, with the field vectors_of: a listener (worlds/participant/listener.h) with that digest takes
 * the vectors.
 *
 * INVALID for a bad line ("FILE:LINE: what is wrong"), a source without an example, and a
 * preprocess without vectors_of; NOT_FOUND for an unknown task or a missing source; DENIED for a
 * file that cannot be opened or made; DATA_LOSS for one that cannot be read or written; EXHAUSTED
 * without memory or for an episode of 4 GiB. One thread. */
enum status data_build(const char *task, const char *data_path, const struct teacher_config *config,
                       struct participant *preprocess, struct error *err) MUST_CHECK;

/* Maps the index of data_path, and reads it once to check it. PRECONDITION says why the index
 * cannot be used: it is missing, damaged, of another version or of other data, older than its
 * source, or built with another config. task NULL: source and config (or NULL) are not checked. */
enum status data_index_open(struct data_index *out, const char *data_path, const char *task,
                            const struct teacher_config *config, struct error *err) MUST_CHECK;
void data_index_close(struct data_index *x);

/* Returns the path of a task's data file: FILE itself for data:FILE, else config's data_file, else
 * FILE for jsonl:FILE that is not squashed, else FILE.stream. The caller frees *out. EXHAUSTED. */
enum status data_path_of(char **out, const char *task, const struct teacher_config *config,
                         struct error *err) MUST_CHECK;

/* Opens the index for a stream. If it cannot be used, data file and index are built first.
 * PRECONDITION if that would replace preprocessed data, whose source has changed since or whose
 * options differ; INVALID if data:FILE is to be squashed; else the errors of data_build. */
enum status data_ready(struct data_index *out, const char *data_path, const char *task,
                       const struct teacher_config *config, struct error *err) MUST_CHECK;

#endif
