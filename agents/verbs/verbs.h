/* The verbs that read a model's file. None needs a server. */
#ifndef AGENTS_VERBS_VERBS_H
#define AGENTS_VERBS_VERBS_H

#include <stdbool.h>

#include "cli/options/verb.h"

enum exit_code inspect_run(const struct verb *verb, int argc, char **argv);
enum exit_code tokenize_run(const struct verb *verb, int argc, char **argv);
enum exit_code detokenize_run(const struct verb *verb, int argc, char **argv);
/* `eval` without --task or --world. */
enum exit_code eval_golden_run(const struct verb *verb, int argc, char **argv);
/* `models list DIR`: the model files of a folder, by name. */
enum exit_code models_list_run(const char *folder, bool is_json);

#endif
