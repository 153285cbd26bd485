#include "compute/backend/backend.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum status backend_open_type(struct backend **out, const struct backend_type *type,
                              const struct backend_config *config, struct error *err)
{
    enum status rc = type->load != NULL ? type->load(&type, err) : STATUS_OK;
    struct backend *b;

    if (rc != STATUS_OK)
        return rc;
    if (config->fast_math && !type->has_fast_math)
        return error_set(err, STATUS_INVALID,
                         "backend '%s' has no fast math: its results never depend on the batch",
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
