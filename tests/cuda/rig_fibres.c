#include <check.h>

#include "tests/cuda/rig_device.h"
#include "tests/cuda_host/fibres.h"

void *rig_alloc(size_t size_bytes)
{
    void *at = fibres_alloc(size_bytes);

    ck_assert_ptr_nonnull(at);
    return at;
}

void rig_free(void *at)
{
    fibres_free(at);
}

void rig_written(const void *at, size_t size_bytes)
{
    fibres_copied(at, NULL, size_bytes);
}

void rig_set_orders(unsigned n, unsigned seed)
{
    fibres_set_orders(n, seed);
}

const char *rig_error(void)
{
    return fibres_error();
}
