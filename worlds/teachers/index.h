/* The bytes of an index file (worlds/teachers/data_file.h): its structs, a writer, and the check of
 * what is read. */
#ifndef WORLDS_TEACHERS_INDEX_H
#define WORLDS_TEACHERS_INDEX_H

#include <stdint.h>
#include <stdio.h>

#include "base/status.h"

/* An entry says where an episode lies in the data file. */
struct data_entry {
    uint64_t offset;
    uint32_t size_bytes; /* bytes of the episode's lines, with their newlines */
    uint32_t crc;        /* crc32c of these bytes */
    uint32_t n_examples;
    uint32_t n_words; /* words of the episode's longest text (count_words) */
};

/* An index, mapped read-only. data_index_open makes it, data_index_close unmaps it. In between any
 * thread may read it. */
struct data_index {
    const struct data_entry *entries;           /* [n_episodes] */
    uint64_t n_episodes, n_examples, n_skipped; /* n_skipped: bad lines of the source */
    uint64_t data_bytes;                        /* size of the data file */
    void *map; /* NULL: the index is not mapped by data_index_open */
    size_t map_bytes;
};

struct index_header {
    char magic[8]; /* "PARLEYIX" */
    uint32_t version, entry_bytes;
    uint64_t source_bytes; /* size of the source */
    int64_t source_ns;     /* time of the source's last change, since 1970 */
    uint32_t source_crc;   /* crc32c of the source */
    uint32_t options_crc;  /* crc32c of the build's options, written as a text */
    uint64_t data_bytes;   /* size of the data file */
    uint64_t n_episodes, n_examples, n_skipped;
    uint32_t entries_crc;     /* crc32c of all entries */
    uint32_t is_preprocessed; /* 0 or 1 */
    uint32_t zeros[11];
    uint32_t crc; /* crc32c of all members before */
};

_Static_assert(sizeof(struct index_header) == 128, "a header has 128 bytes");
_Static_assert(sizeof(struct data_entry) == 24, "an entry has 24 bytes");

/* An index that is being written. index_writer_open makes the file, index_writer_add counts in
 * `header`, the caller sets the header's other members, index_writer_finish writes it, and
 * index_writer_close closes the file in any case. */
struct index_writer {
    FILE *out; /* NULL: closed */
    struct index_header header;
};

/* Makes the file at path, with a header of zeros. The caller renames the file when it is complete.
 * DENIED if it cannot be made, DATA_LOSS if it cannot be written. */
enum status index_writer_open(struct index_writer *w, const char *path,
                              struct error *err) MUST_CHECK;
/* Appends an entry. DATA_LOSS. */
enum status index_writer_add(struct index_writer *w, const struct data_entry *entry,
                             struct error *err) MUST_CHECK;
/* Writes the header and syncs the file to the disk. DATA_LOSS. */
enum status index_writer_finish(struct index_writer *w, struct error *err) MUST_CHECK;
void index_writer_close(struct index_writer *w);

/* Checks that bytes are a complete index: magic, version, sizes, both checksums, and that every
 * entry lies in the data behind the one before. PRECONDITION says what is wrong. *out borrows
 * bytes, which must be aligned to 8; its map is NULL. */
enum status index_check(struct data_index *out, const void *bytes, size_t size_bytes,
                        struct error *err) MUST_CHECK;

#endif
