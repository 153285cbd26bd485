#include "base/json_place.h"

bool json_place_add(struct json_place *p, char c)
{
    if (p->is_escaped) {
        p->is_escaped = false;
    } else if (p->is_in_string) {
        p->is_escaped = c == '\\';
        p->is_in_string = c != '"';
    } else if (c == '"') {
        p->is_in_string = true;
    } else if (c == '{' || c == '[') {
        p->depth++;
    } else if ((c == '}' || c == ']') && p->depth > 0) {
        return --p->depth == 0;
    }
    return false;
}
