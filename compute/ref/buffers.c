/* Views of buffers as floats, and the note of a failure. */
#include <assert.h>

#include "compute/ref/parts.h"

float *ref_floats(struct buffer *m, size_t n, size_t width)
{
    assert(width == 0 || n <= m->size_bytes / sizeof(float) / width);
    return m->data;
}

const float *ref_const_floats(const struct buffer *m, size_t n, size_t width)
{
    assert(width == 0 || n <= m->size_bytes / sizeof(float) / width);
    return m->data;
}

void ref_fail(struct ref *r, const struct error *err)
{
    if (r->failed.status == STATUS_OK)
        r->failed = *err;
}
