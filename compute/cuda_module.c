#include "compute/cuda_module.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The file beside the running program, if it is there. */
static bool beside_program(char out[PATH_MAX], const char *place)
{
    char program[PATH_MAX];
    ssize_t len = readlink("/proc/self/exe", program, sizeof program - 1);
    char *slash;
    int n;

    if (len <= 0)
        return false;
    program[len] = '\0';
    slash = strrchr(program, '/');
    if (slash == NULL)
        return false;
    *slash = '\0';
    n = snprintf(out, PATH_MAX, "%s/%s", program, place);
    return n > 0 && n < PATH_MAX && access(out, R_OK) == 0;
}

static enum status find(char out[PATH_MAX], struct error *err)
{
    const char *given = getenv("PARLEY_CUDA_MODULE");

    if (given != NULL && given[0] != '\0') {
        if (strlen(given) >= PATH_MAX || access(given, R_OK) != 0)
            return error_set(err, STATUS_PRECONDITION,
                             "PARLEY_CUDA_MODULE is '%.100s', and that cannot be read", given);
        memcpy(out, given, strlen(given) + 1);
        return STATUS_OK;
    }
    if (beside_program(out, "../lib/libparley-cuda.so") ||
        beside_program(out, "compute/cuda/libparley-cuda.so"))
        return STATUS_OK;
    return error_set(err, STATUS_PRECONDITION,
                     "the CUDA module libparley-cuda.so is not beside the program: build it with "
                     "'./run cuda', or take a tarball made by './run dist --cuda-arch'");
}

/* Loaded once and for all: what opened it last does not know who has it open. */
static enum status load(const struct backend_type **out, struct error *err)
{
    const struct cuda_module *module;
    char path[PATH_MAX];
    void *library;
    enum status rc = find(path, err);

    if (rc != STATUS_OK)
        return rc;
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return error_set(err, STATUS_PRECONDITION, "the CUDA module does not load: %s", dlerror());
    module = dlsym(library, "parley_cuda_module");
    if (module == NULL || strcmp(module->version, PARLEY_VERSION) != 0 ||
        module->type_bytes != sizeof **out) {
        (void)dlclose(library);
        return error_set(err, STATUS_PRECONDITION, "%.180s is of another build than the program",
                         path);
    }
    *out = module->type;
    return STATUS_OK;
}

const struct backend_type cuda_backend = {.name = "cuda", .load = load};
