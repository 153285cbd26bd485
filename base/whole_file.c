#include "base/whole_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum status whole_file_read(char *text, size_t max_bytes, size_t *ret_len, const char *path,
                            struct error *err)
{
    FILE *in = fopen(path, "re");
    int failed;

    if (in == NULL)
        return error_set(err, STATUS_INVALID, "%.100s: cannot be read: %s", path, strerror(errno));
    errno = 0;
    *ret_len = fread(text, 1, max_bytes + 1, in);
    failed = ferror(in) != 0 ? errno : 0;
    (void)fclose(in); /* it was only read */
    if (failed != 0)
        return error_set(err, STATUS_INVALID, "%.100s: cannot be read: %s", path, strerror(failed));
    if (*ret_len > max_bytes)
        return error_set(err, STATUS_INVALID, "%.100s: has more than %zu bytes", path, max_bytes);
    return STATUS_OK;
}
