#include "server/journal/libpq.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

static const struct {
    const char *name;
    size_t offset;
} libpq_functions[] = {
#define LIBPQ_ROW(name) {#name, offsetof(struct libpq, name)},
    LIBPQ_FUNCTIONS(LIBPQ_ROW)
#undef LIBPQ_ROW
};

enum status libpq_load(const struct libpq **out, struct error *err)
{
    static struct libpq loaded;
    static bool is_loaded;
    struct libpq functions;
    void *library, *function;

    if (!is_loaded) {
        library = dlopen("libpq.so.5", RTLD_NOW | RTLD_LOCAL);
        if (library == NULL)
            return error_set(err, STATUS_PRECONDITION,
                             "PostgreSQL's client library cannot be loaded (Debian's package "
                             "libpq5 has it): %s",
                             dlerror());
        for (size_t i = 0; i < sizeof(libpq_functions) / sizeof(libpq_functions[0]); i++) {
            function = dlsym(library, libpq_functions[i].name);
            if (function == NULL) {
                (void)dlclose(library); /* nothing of it is in use */
                return error_set(err, STATUS_PRECONDITION,
                                 "PostgreSQL's client library is too old, it has no %s: install "
                                 "libpq5 14 or newer",
                                 libpq_functions[i].name);
            }
            memcpy((char *)&functions + libpq_functions[i].offset, &function, sizeof(function));
        }
        loaded = functions;
        is_loaded = true;
    }
    *out = &loaded;
    return STATUS_OK;
}
