#include "base/fetch/hub_path.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/alloc.h"

char *hub_path(const char *format, ...)
{
    char *out;
    va_list args;
    int n;

    va_start(args, format);
    n = vasprintf(&out, format, args);
    va_end(args);
    return n < 0 ? xstrdup("") : out; /* without memory: no file's path */
}
