#include "base/folders.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"

int folders_make(const char *path, size_t len, mode_t mode, size_t *ret_len)
{
    char *part = xalloc(len + 1);
    int failed = 0;

    memcpy(part, path, len);
    for (size_t at = 1; at <= len && failed == 0; at++) {
        if (at < len && path[at] != '/')
            continue;
        part[at] = '\0';
        if (mkdir(part, mode) != 0 && errno != EEXIST) {
            failed = errno;
            *ret_len = at;
        }
        part[at] = at < len ? '/' : '\0';
    }
    free(part);
    return failed;
}
