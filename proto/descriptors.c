#include "proto/descriptors.h"

#include <stdlib.h>
#include <string.h>

const struct descriptor_file *descriptor_find_file(const char *name)
{
    for (size_t i = 0; i < descriptor_n_files; i++)
        if (strcmp(descriptor_files[i].name, name) == 0)
            return &descriptor_files[i];
    return NULL;
}

static int descriptors_by_name(const void *key, const void *item)
{
    return strcmp(key, ((const struct descriptor_symbol *)item)->name);
}

const struct descriptor_symbol *descriptor_find_symbol(const char *name)
{
    return bsearch(name, descriptor_symbols, descriptor_n_symbols, sizeof(descriptor_symbols[0]),
                   descriptors_by_name);
}
