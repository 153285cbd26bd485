/* The verbs that run agents over data and in environments. Most need no server; some attach to one.
 */
#ifndef WORLDS_VERBS_VERBS_H
#define WORLDS_VERBS_VERBS_H

#include "cli/options/verb.h"

enum exit_code bench_cartpole_run(const struct verb *verb, int argc, char **argv);
enum exit_code build_data_run(const struct verb *verb, int argc, char **argv);
enum exit_code convert_run(const struct verb *verb, int argc, char **argv);
enum exit_code data_stats_run(const struct verb *verb, int argc, char **argv);
enum exit_code display_run(const struct verb *verb, int argc, char **argv);
enum exit_code eval_run(const struct verb *verb, int argc, char **argv);
enum exit_code interactive_run(const struct verb *verb, int argc, char **argv);
enum exit_code observe_run(const struct verb *verb, int argc, char **argv);
enum exit_code policy_run(const struct verb *verb, int argc, char **argv);
enum exit_code self_chat_run(const struct verb *verb, int argc, char **argv);
enum exit_code train_run(const struct verb *verb, int argc, char **argv);

#endif
