/* Values as JSON Schema compares them: numbers by what they are, however they are written. */
#ifndef AGENTS_CONSTRAINT_JSON_VALUE_H
#define AGENTS_CONSTRAINT_JSON_VALUE_H

#include <jansson.h>
#include <stdbool.h>

/* Whether one number is less than another, exactly. */
bool json_number_is_less(const json_t *a, const json_t *b);
bool json_value_is_same(const json_t *a, const json_t *b);

#endif
