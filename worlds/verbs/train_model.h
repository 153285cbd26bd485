/* parley train --task TASK --agent NAME --model-file FILE: an agent that learns from dialogues. */
#ifndef WORLDS_VERBS_TRAIN_MODEL_H
#define WORLDS_VERBS_TRAIN_MODEL_H

#include <stdbool.h>

#include "cli/options/verb.h"

/* Whether the command line names such an agent. */
bool train_model_is_wanted(int argc, char **argv);
enum exit_code train_model_run(const struct verb *verb, int argc, char **argv);

#endif
