/* Reads a file line by line, in bounded memory. A line ends with \n; if ends_universally is set, it
 * also ends with \r\n or \r, as Python's universal newlines. One thread. */
#ifndef WORLDS_TEACHERS_LINES_H
#define WORLDS_TEACHERS_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct lines {
    int fd;      /* -1: closed */
    char *block; /* [cap]; its bytes from at to end were read and are not yet returned */
    size_t at, end, cap, max_line_bytes;
    size_t number;         /* number of the last line returned, from 1 */
    uint64_t n_bytes;      /* bytes of the file read so far */
    uint64_t start, stop;  /* offsets of the last line returned: its first byte, behind its end */
    uint32_t crc;          /* crc32c of the n_bytes bytes */
    bool ends_universally; /* set by the caller after lines_open */
    bool is_at_end, is_skipping; /* the file was read to its end; the next bytes belong to a line
                                    that was too long */
};

/* Opens a file. NOT_FOUND if there is none, DENIED if it cannot be opened, INVALID if it is a
 * folder, EXHAUSTED without memory. */
enum status lines_open(struct lines *l, const char *path, size_t max_line_bytes,
                       struct error *err) MUST_CHECK;
/* Closes the file. number, n_bytes and crc stay readable. A zeroed struct counts as closed. */
void lines_close(struct lines *l);

/* Returns the next line without its end, borrowed until the next call; *out is NULL at the end of
 * the file. The last line needs no end. INVALID if the line is longer than max_line_bytes: it is
 * skipped, and the next call continues behind it. DATA_LOSS if reading failed. EXHAUSTED without
 * memory for a long line. */
enum status lines_next(struct lines *l, const char **out, size_t *ret_len,
                       struct error *err) MUST_CHECK;

#endif
