/* The half of `parley eval` that scores a served policy in an environment. */
#ifndef WORLDS_VERBS_POLICY_SCORE_H
#define WORLDS_VERBS_POLICY_SCORE_H

#include <stdbool.h>

#include "cli/options/verb.h"

/* --world is among the arguments. */
bool score_is_wanted(int argc, char **argv);
enum exit_code score_run(const struct verb *verb, int argc, char **argv);

#endif
