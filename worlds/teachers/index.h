/* The index file of data (worlds/teachers/data_file.h): its bytes. */
#ifndef WORLDS_TEACHERS_INDEX_H
#define WORLDS_TEACHERS_INDEX_H

#include <stdint.h>
#include <stdio.h>

#include "base/status.h"

/* Where an episode lies in the data. */
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

struct index_header {
    char magic[8]; /* "PARLEYIX" */
    uint32_t version, entry_bytes;
    uint64_t source_bytes;
    int64_t source_ns; /* its time of change */
    uint32_t source_crc;
    uint32_t options_crc; /* of how it was built, as a text */
    uint64_t data_bytes;
    uint64_t n_episodes, n_examples, n_skipped;
    uint32_t entries_crc;
    uint32_t is_preprocessed; /* 0 or 1 */
    uint32_t zeros[11];
    uint32_t crc; /* of all before */
};

_Static_assert(sizeof(struct index_header) == 128, "a header has 128 bytes");
_Static_assert(sizeof(struct data_entry) == 24, "an entry has 24 bytes");

/* An index during writing. */
struct index_writer {
    FILE *out;
    struct index_header header;
    uint64_t last_end;
};

/* Writes to path; starts with a header of zeros. The caller renames the file. */
enum status index_writer_open(struct index_writer *w, const char *path,
                              struct error *err) MUST_CHECK;
enum status index_writer_add(struct index_writer *w, const struct data_entry *entry,
                             struct error *err) MUST_CHECK;
/* Writes the header and syncs the file to the disk. */
enum status index_writer_finish(struct index_writer *w, struct error *err) MUST_CHECK;
void index_writer_close(struct index_writer *w);

/* Checks that bytes are a complete index: magic, version, sizes, both checksums, every entry within
 * the data and behind the one before. PRECONDITION says what is wrong. Out borrows bytes, which
 * must be aligned to 8. */
enum status index_check(struct data_index *out, const void *bytes, size_t size_bytes,
                        struct error *err) MUST_CHECK;

#endif
