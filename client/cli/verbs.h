/* The verbs that talk to a server, and `keys`, which makes a key for one. */
#ifndef CLIENT_CLI_VERBS_H
#define CLIENT_CLI_VERBS_H

#include <stdbool.h>

#include "cli/options/verb.h"

enum exit_code ask_run(const struct verb *verb, int argc, char **argv);
enum exit_code bench_load_run(const struct verb *verb, int argc, char **argv);
enum exit_code bench_params_run(const struct verb *verb, int argc, char **argv);
enum exit_code chat_run(const struct verb *verb, int argc, char **argv);
enum exit_code cluster_run(const struct verb *verb, int argc, char **argv);
enum exit_code conversations_run(const struct verb *verb, int argc, char **argv);
enum exit_code drain_run(const struct verb *verb, int argc, char **argv);
enum exit_code keys_run(const struct verb *verb, int argc, char **argv);
enum exit_code pull_verb_run(const struct verb *verb, int argc, char **argv);
enum exit_code rerun_run(const struct verb *verb, int argc, char **argv);
enum exit_code verify_run(const struct verb *verb, int argc, char **argv);
enum exit_code status_run(const struct verb *verb, int argc, char **argv);
/* list_files is for `models list DIR`, which needs no server: it prints the model files of a
 * folder. */
typedef enum exit_code (*models_list_fn)(const char *folder, bool is_json);
enum exit_code models_run(const struct verb *verb, int argc, char **argv,
                          models_list_fn list_files);

#endif
