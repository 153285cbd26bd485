#include "compute/cpu/blocks.h"

#include <assert.h>

#define FORM(type, ...) [DTYPE_##type] = {__VA_ARGS__},

static const struct block_form forms[] = {BLOCK_FORMS(FORM)};

bool block_form_of(struct block_form *out, enum dtype t)
{
    if (t == DTYPE_F32 || t == DTYPE_F16 || t == DTYPE_BF16)
        return false;
    assert((size_t)t < sizeof(forms) / sizeof(forms[0]));
    *out = forms[t];
    return true;
}

int block_value(const struct block_form *form, int code)
{
    return form->codes == CODE_IQ4    ? dtype_iq4_values[code]
           : form->codes == CODE_E2M1 ? dtype_e2m1_values[code]
                                      : code - form->bias;
}
