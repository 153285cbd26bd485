/* The daemon: one loop that owns everything else, and the order of its start and stop. */
#ifndef SERVER_DAEMON_H
#define SERVER_DAEMON_H

#include "base/status.h"

struct config;

/* Serves until a signal ends it. STATUS_OK: a clean stop was requested. All resources are released
 * on return. If a library prevents the return, SIGALRM is raised, with the error in *err. */
enum status daemon_run(const struct config *config, struct error *err) MUST_CHECK;

#endif
