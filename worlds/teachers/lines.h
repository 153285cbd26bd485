/* A file line by line, in bounded memory. A line ends with \n; where ends_universally is
 * set also with \r\n or \r, as for Python. */
#ifndef WORLDS_TEACHERS_LINES_H
#define WORLDS_TEACHERS_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct lines {
    int fd;      /* -1: closed */
    char *block; /* [cap]; bytes at … end are read and not yet given out */
    size_t at, end, cap, max_line_bytes;
    size_t number;         /* of the last line returned, from 1 */
    uint64_t n_bytes;      /* read so far */
    uint64_t start, stop;  /* the last line's bytes in the file, with its end */
    uint32_t crc;          /* crc32c of these bytes */
    bool ends_universally; /* set by the caller, once open */
    bool is_at_end, is_skipping;
};

/* NOT_FOUND or DENIED as the file system says; INVALID: it is a folder. */
enum status lines_open(struct lines *l, const char *path, size_t max_line_bytes,
                       struct error *err) MUST_CHECK;
/* Number, sizes and checksum stay. A zeroed struct counts as closed. */
void lines_close(struct lines *l);

/* The next line without its end, borrowed until the next call; *out NULL at the end of the file. A
 * last line needs no end. INVALID: longer than max_line_bytes (the line is skipped; the next call
 * continues behind it). DATA_LOSS: reading failed. */
enum status lines_next(struct lines *l, const char **out, size_t *ret_len,
                       struct error *err) MUST_CHECK;

#endif
