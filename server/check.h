/* --check: tries what a start would need, without serving. A row of check.c's table adds a trial.
 */
#ifndef SERVER_CHECK_H
#define SERVER_CHECK_H

#include "base/status.h"

struct config;

/* Opens every model and binds every address, and gives them back. */
enum status check_config(const struct config *config, struct error *err) MUST_CHECK;

#endif
