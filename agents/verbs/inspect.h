/* A model's file, for people and scripts. */
#ifndef AGENTS_VERBS_INSPECT_H
#define AGENTS_VERBS_INSPECT_H

#include <jansson.h>

struct lm_inspection;

/* The JSON of a file: stable names, which the man page lists. */
json_t *inspection_json(const char *path, const struct lm_inspection *x);

#endif
