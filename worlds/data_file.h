/* A data file: acts as JSON lines, episode by episode, and beside it an index that says where each
 * episode lies. It is built once from a source, by what a :stream is read.
 *
 * The index (FILE.index) is little-endian: a header of 128 bytes with its own crc32c, and an entry
 * of 24 bytes an episode with theirs. The header knows the source by size, time of change and
 * crc32c, the data by size, and how they were built; so an index that is damaged, of another
 * version, or older than its source is noticed when it is opened. Each entry has the crc32c of its
 * episode, which is checked when that is read. */
#ifndef WORLDS_DATA_FILE_H
#define WORLDS_DATA_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "worlds/teacher.h"

struct participant;

struct data_entry {
    uint64_t offset;
    uint32_t size_bytes; /* of all the episode's lines, with their newlines */
    uint32_t crc;        /* crc32c of them */
    uint32_t n_examples;
    uint32_t n_words; /* of the longest text, one more than it has spaces */
};

/* An index, mapped read-only. Any thread may read it. */
struct data_index {
    const struct data_entry *entries; /* [n_episodes] */
    uint64_t n_episodes, n_examples, n_skipped;
    uint64_t data_bytes;
    void *map;
    size_t map_bytes;
};

/* Builds the data file of a task ("parlai:FILE", …), or only the index where the task is
 * jsonl:FILE, data_path is FILE, and nothing is squashed or preprocessed. Both are written beside
 * their place and renamed when they are whole. Of the config: squash, include_labels,
 * context_length, seed, skip_bad, max_line_bytes.
 *
 * preprocess, if not NULL, observes each act as it would in a world, hears its own answer to be
 * the first label, and what it makes of the act (text_vec, labels_vec) is what is written; the file
 * is then of use to this participant alone. One thread. */
enum status data_build(const char *task, const char *data_path, const struct teacher_config *config,
                       struct participant *preprocess, struct error *err) MUST_CHECK;

/* PRECONDITION says why the index is not to be used: it is not there, damaged, of another version,
 * of other data, older than its source, or built otherwise than config says (task NULL: source and
 * config are not looked at). Reads the whole index once. */
enum status data_index_open(struct data_index *out, const char *data_path, const char *task,
                            const struct teacher_config *config, struct error *err) MUST_CHECK;
void data_index_close(struct data_index *x);

/* Where the data of a task's stream are: config's data_file, FILE itself (data:, or jsonl: as it
 * is), or FILE.stream. */
enum status data_path_of(char **out, const char *task, const struct teacher_config *config,
                         struct error *err) MUST_CHECK;

/* What data_index_open and data_build do when a stream is opened: the index is used, else built.
 */
enum status data_ready(struct data_index *out, const char *data_path, const char *task,
                       const struct teacher_config *config, struct error *err) MUST_CHECK;

#endif
