/* parley train --task TASK: the dictionary that unigram and ir_baseline answer from. */
#ifndef WORLDS_VERBS_TRAIN_TASK_H
#define WORLDS_VERBS_TRAIN_TASK_H

#include "cli/options/verb.h"

enum exit_code train_task_run(const struct verb *verb, int argc, char **argv);

#endif
