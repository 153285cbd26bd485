#include "base/fetch/hub_path.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

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

const char *hub_variable(const char *name)
{
    const char *value = getenv(name);

    return value != NULL && value[0] != '\0' ? value : NULL;
}

char *hub_home(const char *variable, const char *below)
{
    const char *value;

    if ((value = hub_variable(variable)) != NULL)
        return xstrdup(value);
    if ((value = hub_variable("HF_HOME")) != NULL)
        return hub_path("%s/%s", value, below);
    if ((value = hub_variable("XDG_CACHE_HOME")) != NULL)
        return hub_path("%s/huggingface/%s", value, below);
    if ((value = hub_variable("HOME")) != NULL)
        return hub_path("%s/.cache/huggingface/%s", value, below);
    return NULL;
}
