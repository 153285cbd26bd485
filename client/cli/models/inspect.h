/* A model's file, for people and scripts. */
#ifndef CLIENT_CLI_MODELS_INSPECT_H
#define CLIENT_CLI_MODELS_INSPECT_H

#include <jansson.h>
#include <stdbool.h>

#include "cli/options/verb.h"

struct lm_inspection;

/* The JSON of a file: stable names, which the man page lists. */
json_t *inspection_json(const char *path, const struct lm_inspection *x);

/* `models list DIR`: the model files of a folder, by name. */
enum exit_code models_list_run(const char *folder, bool is_json);

#endif
