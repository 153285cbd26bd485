/* Describes a model's file to people and scripts. */
#ifndef AGENTS_VERBS_INSPECT_H
#define AGENTS_VERBS_INSPECT_H

#include <jansson.h>

struct lm_inspection;

/* Returns the JSON of a file, for the caller. The man page lists the names, which do not change. */
json_t *inspection_json(const char *path, const struct lm_inspection *x);

#endif
