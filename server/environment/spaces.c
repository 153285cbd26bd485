#include "server/environment/spaces.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

bool environment_spaces_equal(const struct environment_spaces *a,
                              const struct environment_spaces *b)
{
    return a->n_observation == b->n_observation && a->n_actions == b->n_actions &&
           a->n_action_numbers == b->n_action_numbers &&
           strcmp(a->described != NULL ? a->described : "",
                  b->described != NULL ? b->described : "") == 0;
}

enum status environment_spaces_copy(struct environment_spaces *out,
                                    const struct environment_spaces *from, struct error *err)
{
    size_t size_bytes = from->described != NULL ? strlen(from->described) + 1 : 0;
    char *described = size_bytes > 0 ? try_alloc(size_bytes, 1) : NULL;

    if (size_bytes > 0 && described == NULL)
        return error_no_memory(err, size_bytes, "a description of spaces");
    if (size_bytes > 0)
        memcpy(described, from->described, size_bytes);
    *out = *from;
    out->described = described;
    return STATUS_OK;
}
