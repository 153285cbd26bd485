/* Folders that are made together with those that they lie in. Any thread. */
#ifndef BASE_FOLDERS_H
#define BASE_FOLDERS_H

#include <stddef.h>
#include <sys/types.h>

/* Makes the folder of path[0, len), and those that it lies in, with this mode; one that is there
 * stays as it is. Returns 0, or errno; then *ret_len is the length of the folder in path that
 * cannot be made. */
int folders_make(const char *path, size_t len, mode_t mode, size_t *ret_len);

#endif
