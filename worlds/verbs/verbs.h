/* The verbs that run agents over data and in environments. Most need no server; some attach to one.
 */
#ifndef WORLDS_VERBS_VERBS_H
#define WORLDS_VERBS_VERBS_H

#include <stdbool.h>

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

/* The parts of eval and train. A part is wanted if the command line names it: --task or a --world
 * of participants; --world of an environment; --agent of a kind that learns. */
bool eval_task_is_wanted(int argc, char **argv);
enum exit_code eval_task_run(const struct verb *verb, int argc, char **argv);
bool score_is_wanted(int argc, char **argv);
enum exit_code score_run(const struct verb *verb, int argc, char **argv);
bool train_program_is_wanted(int argc, char **argv);
enum exit_code train_program_run(const struct verb *verb, int argc, char **argv);
bool train_model_is_wanted(int argc, char **argv);
enum exit_code train_model_run(const struct verb *verb, int argc, char **argv);
enum exit_code train_task_run(const struct verb *verb, int argc, char **argv);

#endif
