/* A shared object that defines an agent, an environment or a teacher, or several of them. It is
 * loaded only if no other user could have changed its file, and only if its tables are complete. */
#ifndef AGENTS_PLUGIN_LIBRARY_H
#define AGENTS_PLUGIN_LIBRARY_H

#include "agents/plugin/parley_agent.h"
#include "agents/plugin/parley_environment.h"
#include "agents/plugin/parley_teacher.h"
#include "base/status.h"

struct plugin_library {
    void *handle; /* dlopen's; NULL: not loaded */
    /* The tables in the object, at least one of which is not NULL. */
    const struct parley_agent *agent;
    const struct parley_environment *environment;
    const struct parley_teacher *teacher;
};

/* Loads the object at path. The file must be a regular one that root or this process's user owns,
 * and not every user may write to it or to its folder (unless the folder has the sticky bit); else
 * DENIED. NOT_FOUND if there is no such file. PRECONDITION if it cannot be loaded, defines none of
 * the three tables, or has a table of another ABI, without a required entry, or with a value that
 * is not valid. The error names the file. */
enum status plugin_library_open(struct plugin_library *out, const char *path,
                                struct error *err) MUST_CHECK;
void plugin_library_close(struct plugin_library *l);

#endif
