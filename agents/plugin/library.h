/* A shared object with an agent, an environment or a teacher in it, or several of them: whether it
 * may be loaded, and whether it is complete. */
#ifndef AGENTS_PLUGIN_LIBRARY_H
#define AGENTS_PLUGIN_LIBRARY_H

#include "agents/plugin/parley_agent.h"
#include "agents/plugin/parley_environment.h"
#include "agents/plugin/parley_teacher.h"
#include "base/status.h"

struct plugin_library {
    void *handle; /* NULL: not loaded */
    /* In the object; one of them at least is there. */
    const struct parley_agent *agent;
    const struct parley_environment *environment;
    const struct parley_teacher *teacher;
};

/* The file must be a regular one of root or of this process's user, and neither it nor its folder
 * writable for all; a folder may be so with the sticky bit. DENIED; NOT_FOUND; PRECONDITION: not an
 * object that loads, or one of another ABI, or without something. The error names the file. */
enum status plugin_library_open(struct plugin_library *out, const char *path,
                                struct error *err) MUST_CHECK;
void plugin_library_close(struct plugin_library *l);

#endif
