#include "compute/numerics/kv_type.h"

#include <string.h>

static const char *const names[] = {[KV_F16] = "f16", [KV_F32] = "f32", [KV_Q8] = "q8"};

const char *kv_type_name(enum kv_type type)
{
    return names[type];
}

enum status kv_type_of(enum kv_type *out, const char *name, struct error *err)
{
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (enum kv_type)i;
            return STATUS_OK;
        }
    return error_set(err, STATUS_INVALID, "is '%.40s', it must be f16, q8 or f32", name);
}
