#include "compute/cuda/module.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/program.h"

static enum status module_find(char out[PATH_MAX], struct error *err)
{
    const char *given = getenv("PARLEY_CUDA_MODULE");

    if (given != NULL && given[0] != '\0') {
        if (strlen(given) >= PATH_MAX || access(given, R_OK) != 0)
            return error_set(err, STATUS_PRECONDITION,
                             "PARLEY_CUDA_MODULE is '%.100s', but this file cannot be read", given);
        memcpy(out, given, strlen(given) + 1);
        return STATUS_OK;
    }
    if (program_beside(out, "../lib/libparley-cuda.so") ||
        program_beside(out, "compute/cuda/libparley-cuda.so"))
        return STATUS_OK;
    return error_set(err, STATUS_PRECONDITION,
                     "the CUDA module libparley-cuda.so is not beside the program: './run cuda' "
                     "builds it, './run dist --cuda-arch N' makes a tarball that has it");
}

/* The library is never unloaded: other backends may have it open. */
static enum status module_load(const struct backend_type **out, struct error *err)
{
    const struct cuda_module *module;
    char path[PATH_MAX];
    void *library;
    enum status rc = module_find(path, err);

    if (rc != STATUS_OK)
        return rc;
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return error_set(err, STATUS_PRECONDITION, "the CUDA module cannot be loaded: %s",
                         dlerror());
    module = dlsym(library, "parley_cuda_module");
    if (module == NULL || strcmp(module->version, PARLEY_VERSION) != 0 ||
        module->type_bytes != sizeof(**out)) {
        (void)dlclose(library);
        return error_set(
            err, STATUS_PRECONDITION,
            "%.180s and the program are from different builds: install both from the same build",
            path);
    }
    *out = module->type;
    return STATUS_OK;
}

const struct backend_type cuda_backend = {
    .name = "cuda", .has_fast_math = true, .load = module_load};
