/* Environments in shared objects (parley_environment.h). Loop. */
#ifndef AGENTS_PLUGIN_ENVIRONMENT_H
#define AGENTS_PLUGIN_ENVIRONMENT_H

#include "agents/plugin/library.h"
#include "base/list.h"

struct plugin_environment {
    struct link link; /* its user's */
    struct plugin_library library;
    const struct parley_environment *type; /* in library */
};

/* What the object of that path has: an environment, an agent or both; *out is NULL if there is no
 * environment. As plugin_library_open; PRECONDITION also if it has neither. */
enum status plugin_environment_open(struct plugin_environment **out, bool *ret_has_agent,
                                    const char *path, struct error *err) MUST_CHECK;
void plugin_environment_close(struct plugin_environment *e);

#endif
