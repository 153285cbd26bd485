/* The kernels of the operators that only the newer architectures need: gates.h, inlined for the
 * instruction set. */
#include "compute/backend/gates.h"
#include "compute/cpu/isa.h"

void FLOAT_NAME(layer_norm)(const float *in, const float *gain, const float *bias, float eps,
                            size_t width, float *out)
{
    gates_layer_norm(in, gain, bias, eps, width, out);
}

void FLOAT_NAME(activate)(enum activation kind, float *x, const float *by, size_t n)
{
    switch (kind) {
    case ACTIVATION_GELU:
        for (size_t i = 0; i < n; i++)
            x[i] = gates_activated(ACTIVATION_GELU, x[i], by != NULL ? by[i] : 1.0f);
        break;
    case ACTIVATION_GELU_ERF:
        for (size_t i = 0; i < n; i++)
            x[i] = gates_activated(ACTIVATION_GELU_ERF, x[i], by != NULL ? by[i] : 1.0f);
        break;
    case ACTIVATION_PRODUCT:
        for (size_t i = 0; i < n; i++)
            x[i] = gates_activated(ACTIVATION_PRODUCT, x[i], by[i]);
        break;
    case ACTIVATION_SIGMOID:
        for (size_t i = 0; i < n; i++)
            x[i] = gates_activated(ACTIVATION_SIGMOID, x[i], by != NULL ? by[i] : 1.0f);
        break;
    case ACTIVATION_SQUARE:
        for (size_t i = 0; i < n; i++)
            x[i] = gates_activated(ACTIVATION_SQUARE, x[i], by != NULL ? by[i] : 1.0f);
        break;
    case ACTIVATION_CLAMPED:
        for (size_t i = 0; i < n; i++)
            x[i] = gates_activated(ACTIVATION_CLAMPED, x[i], by[i]);
        break;
    default:
        for (size_t i = 0; i < n; i++)
            x[i] = gates_activated(ACTIVATION_SILU, x[i], by != NULL ? by[i] : 1.0f);
    }
}

void FLOAT_NAME(add_tap)(const float *taps, size_t n_taps, size_t tap, const float *row,
                         size_t width, float *out)
{
    gates_add_tap(taps, n_taps, tap, row, width, out);
}
