/* Environments in shared objects (parley_environment.h), as parleyd opens them. Loop. */
#ifndef AGENTS_PLUGIN_ENVIRONMENT_H
#define AGENTS_PLUGIN_ENVIRONMENT_H

#include "agents/plugin/library.h"
#include "base/list.h"

struct plugin_environment {
    struct link link; /* for the list of whoever opened it */
    struct plugin_library library;
    const struct parley_environment *type; /* the table, in library */
};

/* Opens the object at path. *out is its environment, NULL if it has none; *ret_has_agent says
 * whether it has an agent. PRECONDITION if it has neither; else the errors of
 * plugin_library_open. */
enum status plugin_environment_open(struct plugin_environment **out, bool *ret_has_agent,
                                    const char *path, struct error *err) MUST_CHECK;
void plugin_environment_close(struct plugin_environment *e);

#endif
