/* Libwebsockets loads its libuv plug-in when a context is made, from one folder fixed at its build,
 * Debian's. In a tarball the plug-in lies beside the libraries. The function that searches folders
 * is an exported one, so this one overrides it: it searches the tarball's folder, if that has the
 * file, and else libwebsockets' own. */
#include "server/http/event_lib.h"

#include <assert.h>
#include <dlfcn.h>
#include <libwebsockets.h>
#include <string.h>

#include "base/program.h"

#define EVENT_LIB "libwebsockets-evlib_uv.so"

typedef int (*plugins_init_fn)(struct lws_plugin **list, const char *const *folders,
                               const char *class, const char *filter, each_plugin_cb_t each,
                               void *user);

static char folder[PATH_MAX]; /* "": libwebsockets' own; written before its use */

void event_lib_locate(void)
{
    char path[PATH_MAX];

    if (!program_beside(path, "../lib/" EVENT_LIB))
        return;
    *strrchr(path, '/') = '\0';
    memcpy(folder, path, sizeof(folder));
}

__attribute__((visibility("default"))) int lws_plugins_init(struct lws_plugin **list,
                                                            const char *const *folders,
                                                            const char *class, const char *filter,
                                                            each_plugin_cb_t each, void *user)
{
    const char *const ours[] = {folder, NULL};
    plugins_init_fn real;
    void *found = dlsym(RTLD_NEXT, "lws_plugins_init");

    assert(found != NULL); /* the calling library has it */
    memcpy(&real, &found, sizeof(real));
    return real(list, folder[0] == '\0' ? folders : ours, class, filter, each, user);
}
