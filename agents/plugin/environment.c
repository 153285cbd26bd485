#include "agents/plugin/environment.h"

#include <stdlib.h>

#include "base/alloc.h"

enum status plugin_environment_open(struct plugin_environment **out, bool *ret_has_agent,
                                    const char *path, struct error *err)
{
    struct plugin_environment *e = NULL;
    struct plugin_library library;

    if (plugin_library_open(&library, path, err) != STATUS_OK)
        return err->status;
    if (library.agent == NULL && library.environment == NULL) {
        plugin_library_close(&library);
        return error_set(
            err, STATUS_PRECONDITION,
            "plug-in %.120s: it defines only a teacher, which 'parley' can use but parleyd cannot",
            path);
    }
    *ret_has_agent = library.agent != NULL;
    if (library.environment == NULL) {
        plugin_library_close(&library);
    } else {
        e = xalloc(sizeof(*e));
        e->library = library; /* given away */
        e->type = library.environment;
    }
    *out = e;
    return STATUS_OK;
}

void plugin_environment_close(struct plugin_environment *e)
{
    if (e == NULL)
        return;
    plugin_library_close(&e->library);
    free(e);
}
