/* An environment that this process steps itself: a built-in one, by its name, or the environment of
 * a plug-in, by "plugin:FILE.so". */
#ifndef WORLDS_VERBS_POLICY_LOCAL_ENVIRONMENT_H
#define WORLDS_VERBS_POLICY_LOCAL_ENVIRONMENT_H

#include <stdbool.h>

#include "base/status.h"
#include "worlds/environment/environment.h"

/* Opens an environment. NOT_FOUND lists the names that are built in; for a plug-in DENIED and
 * PRECONDITION name the file. Each call opens an environment of its own; with the same seed a
 * plug-in's environment plays the same episodes in the daemon. Only one thread at a time may step
 * environments. */
enum status local_environment_open(struct environment **out, const char *name,
                                   struct error *err) MUST_CHECK;
/* Returns whether the name is one of these two kinds; the file may be missing. */
bool local_environment_is_known(const char *name);
void local_environment_close(struct environment *e);
/* Returns why the last reset or step failed, after which the environment must be reset; NULL: the
 * last reset or step did not fail. */
const char *local_environment_failure(const struct environment *e);

#endif
