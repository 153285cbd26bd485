/* Sampling's message with each of its numbers set, as its descriptor has them: whoever copies it by
 * proto/sampling_fields.h shows what the table lacks. */
#ifndef TESTS_SUPPORT_SAMPLING_MESSAGE_H
#define TESTS_SUPPORT_SAMPLING_MESSAGE_H

#include <check.h>
#include <string.h>

#include "parley/v1/sampling.pb-c.h"

/* All but the two that clear lists. */
static inline void sampling_message_set_numbers(Parley__V1__Sampling *m)
{
    const ProtobufCMessageDescriptor *d = &parley__v1__sampling__descriptor;

    parley__v1__sampling__init(m);
    for (unsigned i = 0; i < d->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &d->fields[i];
        char *at = (char *)m + f->offset;

        if (f->label != PROTOBUF_C_LABEL_OPTIONAL || strncmp(f->name, "clear_", 6) == 0)
            continue;
        *(protobuf_c_boolean *)(void *)((char *)m + f->quantifier_offset) = 1;
        if (f->type == PROTOBUF_C_TYPE_FLOAT)
            *(float *)(void *)at = (float)(i + 1) / 64;
        else if (f->type == PROTOBUF_C_TYPE_UINT32)
            *(uint32_t *)(void *)at = i + 1;
        else if (f->type == PROTOBUF_C_TYPE_UINT64)
            *(uint64_t *)(void *)at = UINT64_MAX - i;
        else
            *(protobuf_c_boolean *)(void *)at = 1;
    }
}

static inline void sampling_message_check_equal(const Parley__V1__Sampling *a,
                                                const Parley__V1__Sampling *b)
{
    uint8_t x[256], y[256];
    size_t n = parley__v1__sampling__get_packed_size(a);

    ck_assert_uint_le(n, sizeof(x));
    ck_assert_uint_eq(parley__v1__sampling__get_packed_size(b), n);
    (void)parley__v1__sampling__pack(a, x);
    (void)parley__v1__sampling__pack(b, y);
    ck_assert_mem_eq(x, y, n);
}

#endif
