/* parley eval --task TASK: agents over data. */
#ifndef WORLDS_VERBS_EVAL_TASK_H
#define WORLDS_VERBS_EVAL_TASK_H

#include <stdbool.h>

#include "cli/options/verb.h"

/* Whether the command line names a task. */
bool eval_task_is_wanted(int argc, char **argv);
enum exit_code eval_task_run(const struct verb *verb, int argc, char **argv);

#endif
