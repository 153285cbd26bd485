/* The index file of data (worlds/data_file.h): its bytes. */
#ifndef WORLDS_TEACHERS_INDEX_H
#define WORLDS_TEACHERS_INDEX_H

#include <stdio.h>

#include "worlds/data_file.h"

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
    uint32_t zeros[12];
    uint32_t crc; /* of all before */
};

_Static_assert(sizeof(struct index_header) == 128, "a header has 128 bytes");
_Static_assert(sizeof(struct data_entry) == 24, "an entry has 24 bytes");

/* An index that is being written. */
struct index_writer {
    FILE *out;
    struct index_header header;
    uint64_t last_end;
};

/* Writes to path, whose name is the writer's matter; starts with a header of zeros. */
enum status index_writer_open(struct index_writer *w, const char *path,
                              struct error *err) MUST_CHECK;
enum status index_writer_add(struct index_writer *w, const struct data_entry *entry,
                             struct error *err) MUST_CHECK;
/* Puts the header in place and brings all to the disk. */
enum status index_writer_finish(struct index_writer *w, struct error *err) MUST_CHECK;
void index_writer_close(struct index_writer *w);

/* Whether bytes are a whole index: magic, version, sizes, both checksums, every entry within the
 * data and behind the one before. PRECONDITION says what is wrong. Out borrows bytes, which must be
 * aligned to 8. */
enum status index_check(struct data_index *out, const void *bytes, size_t size_bytes,
                        struct error *err) MUST_CHECK;

#endif
