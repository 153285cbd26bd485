#include "compute/backends.h"

#include <assert.h>
#include <string.h>

#include "compute/cpu/cpu.h"
#include "compute/cuda/module.h"
#include "compute/ref/ref.h"

static const struct backend_type *const types[] = {&cpu_backend, &cuda_backend, &ref_backend};

enum { N_TYPES = sizeof(types) / sizeof(types[0]) };

const struct backend_type *backend_type_at(size_t i)
{
    return i < N_TYPES ? types[i] : NULL;
}

static const struct backend_type *find_type(const char *name)
{
    for (size_t i = 0; i < N_TYPES; i++)
        if (strcmp(types[i]->name, name) == 0)
            return types[i];
    return NULL;
}

static enum status no_such_type(const char *name, struct error *err)
{
    char names[64] = "";
    size_t len = 0;

    for (size_t i = 0; i < N_TYPES; i++) {
        size_t more = strlen(types[i]->name);

        assert(len + 2 + more < sizeof(names));
        if (i > 0) {
            memcpy(names + len, ", ", 2);
            len += 2;
        }
        memcpy(names + len, types[i]->name, more + 1);
        len += more;
    }
    return error_set(err, STATUS_NOT_FOUND, "there is no backend '%.40s', it must be one of: %s",
                     name, names);
}

enum status backend_open(struct backend **out, const char *name,
                         const struct backend_config *config, struct error *err)
{
    const struct backend_type *type = find_type(name);

    if (type == NULL)
        return no_such_type(name, err);
    return backend_open_type(out, type, config, err);
}
