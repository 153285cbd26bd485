/* An environment that this process steps itself: one that is built in, by its name, or that of a
 * plug-in, by "plugin:FILE.so". */
#ifndef WORLDS_VERBS_POLICY_LOCAL_ENVIRONMENT_H
#define WORLDS_VERBS_POLICY_LOCAL_ENVIRONMENT_H

#include "base/status.h"
#include "worlds/environment/environment.h"

/* NOT_FOUND lists the names that are built in; of a plug-in also DENIED and PRECONDITION, with its
 * file. Of a plug-in each opens its own, whose episodes are those of the daemon's for the same
 * seed. One thread at a time steps them all. */
enum status local_environment_open(struct environment **out, const char *name,
                                   struct error *err) MUST_CHECK;
void local_environment_close(struct environment *e);
/* Why the last reset or step failed, after which it is to be reset; NULL: it has not. */
const char *local_environment_failure(const struct environment *e);

#endif
