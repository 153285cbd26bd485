/* The formats of data files, by their names. */
#include <string.h>

#include "worlds/teachers/format.h"

static const struct data_format *const formats[] = {&parlai_format,   &jsonl_format,
                                                    &fbdialog_format, &conversations_format,
                                                    &plugin_format,   &attached_format};

const struct data_format *format_named(const char *name, size_t len)
{
    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++)
        if (strlen(formats[i]->name) == len && memcmp(formats[i]->name, name, len) == 0)
            return formats[i];
    return NULL;
}
