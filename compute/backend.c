#include "compute/backend.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "compute/cpu/cpu.h"
#include "compute/cuda_module.h"
#include "compute/ref.h"

static const struct backend_type *const types[] = {&cpu_backend, &cuda_backend, &ref_backend};

enum { N_TYPES = sizeof types / sizeof types[0] };

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

        assert(len + 2 + more < sizeof names);
        if (i > 0) {
            memcpy(names + len, ", ", 2);
            len += 2;
        }
        memcpy(names + len, types[i]->name, more + 1);
        len += more;
    }
    return error_set(err, STATUS_NOT_FOUND, "no backend is called '%.40s'; there are: %s", name,
                     names);
}

enum status backend_open(struct backend **out, const char *name,
                         const struct backend_config *config, struct error *err)
{
    const struct backend_type *type = find_type(name);

    if (type == NULL)
        return no_such_type(name, err);
    return backend_open_type(out, type, config, err);
}

enum status backend_open_type(struct backend **out, const struct backend_type *type,
                              const struct backend_config *config, struct error *err)
{
    enum status rc = type->load != NULL ? type->load(&type, err) : STATUS_OK;
    struct backend *b;

    if (rc != STATUS_OK)
        return rc;
    if (config->fast_math && !type->has_fast_math)
        return error_set(err, STATUS_INVALID,
                         "backend '%s' has no fast math: it multiplies in one way, which gives the "
                         "same bits in any batch",
                         type->name);
    b = xalloc(type->size);
    b->type = type;
    rc = type->open(b, config, err);
    if (rc == STATUS_OK)
        *out = b;
    else
        free(b);
    return rc;
}

void backend_close(struct backend *b)
{
    if (b == NULL)
        return;
    if (!b->is_down)
        b->type->close(b);
    free(b);
}

enum status backend_restart(struct backend *b, const struct backend_config *config,
                            struct error *err)
{
    const struct backend_type *type = b->type;
    enum status rc;

    if (!b->is_down)
        type->close(b);
    memset(b, 0, type->size);
    b->type = type;
    rc = type->open(b, config, err);
    b->is_down = rc != STATUS_OK;
    return rc;
}
