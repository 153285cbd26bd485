/* Where the brackets and strings of a JSON text stand. */
#ifndef BASE_JSON_PLACE_H
#define BASE_JSON_PLACE_H

#include <stdbool.h>
#include <stddef.h>

struct json_place {
    size_t depth;
    bool is_in_string, is_escaped;
};

/* Takes one more byte; true if a value that began at depth 0 with a bracket ends with it. */
bool json_place_add(struct json_place *p, char c);

#endif
