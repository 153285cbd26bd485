/* Reads a whole file of bounded size, as people write them for a daemon. Any thread. */
#ifndef BASE_WHOLE_FILE_H
#define BASE_WHOLE_FILE_H

#include <stddef.h>

#include "base/status.h"

/* Reads the file into text, which has room for max_bytes + 1 bytes and gets no NUL at its end.
 * INVALID, with the path in the error's text: the file cannot be read, or has more than max_bytes
 * bytes. */
enum status whole_file_read(char *text, size_t max_bytes, size_t *ret_len, const char *path,
                            struct error *err) MUST_CHECK;

#endif
