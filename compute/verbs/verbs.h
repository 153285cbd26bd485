/* The verbs that run operators, or place models on devices. None needs a server. */
#ifndef COMPUTE_VERBS_VERBS_H
#define COMPUTE_VERBS_VERBS_H

#include "cli/options/verb.h"

enum exit_code place_run(const struct verb *verb, int argc, char **argv);
enum exit_code selftest_run(const struct verb *verb, int argc, char **argv);

#endif
