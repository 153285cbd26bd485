#include "agents/lm/grammar/engine.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agents/lm/grammar/module.h"
#include "base/program.h"

enum status engine_find(char out[PATH_MAX], struct error *err)
{
    const char *given = getenv("PARLEY_GRAMMAR_MODULE");

    if (given != NULL) {
        if (given[0] == '\0' || strlen(given) >= PATH_MAX || access(given, R_OK) != 0)
            return error_set(err, STATUS_UNAVAILABLE,
                             "PARLEY_GRAMMAR_MODULE is '%.100s', but this file cannot be read",
                             given);
        memcpy(out, given, strlen(given) + 1);
        return STATUS_OK;
    }
    if (program_beside(out, "../lib/libparley-grammar.so") ||
        program_beside(out,
                       "../lib/parley/libparley-grammar.so") || /* its place in an installation */
        program_beside(out, "agents/lm/grammar/libparley-grammar.so"))
        return STATUS_OK;
    return error_set(err, STATUS_UNAVAILABLE,
                     "replies cannot be constrained: the grammar module libparley-grammar.so is "
                     "not beside the program ('./run build' builds it)");
}

enum status engine_load(const struct grammar_module **out, struct error *err)
{
    const struct grammar_module *module;
    char path[PATH_MAX];
    void *library;
    enum status rc = engine_find(path, err);

    if (rc != STATUS_OK)
        return rc;
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL); /* loading it again counts a reference */
    if (library == NULL)
        return error_set(err, STATUS_UNAVAILABLE, "the grammar module cannot be loaded: %s",
                         dlerror());
    module = dlsym(library, "parley_grammar_module");
    if (module == NULL || strcmp(module->version, PARLEY_VERSION) != 0 ||
        module->size_bytes != sizeof(*module)) {
        (void)dlclose(library);
        return error_set(
            err, STATUS_UNAVAILABLE,
            "%.180s and the program are from different builds: install both from the same build",
            path);
    }
    *out = module;
    return STATUS_OK;
}
