#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "client/cli/bench/params_bench.h"

enum { MAX_SPECS = 256, NAME_BYTES = 48 };

static void params_shape_add(struct params_shape *s, const char *name, size_t n_dims,
                             const int64_t *dims)
{
    struct parley_tensor_spec *spec = &s->specs[s->n_specs++];
    int64_t *shape = xalloc(n_dims * sizeof(*shape));
    size_t n = 1;

    for (size_t i = 0; i < n_dims; i++) {
        shape[i] = dims[i];
        n *= (size_t)dims[i];
    }
    *spec = (struct parley_tensor_spec){xstrdup(name), shape, n_dims};
    s->n += n;
}

/* A convolution and the scale and shift of the normalisation behind it. */
static void add_conv(struct params_shape *s, const char *conv, const char *norm, int64_t out,
                     int64_t in, int64_t side)
{
    char name[NAME_BYTES];

    (void)snprintf(name, sizeof(name), "%s.weight", conv);
    params_shape_add(s, name, 4, (const int64_t[]){out, in, side, side});
    (void)snprintf(name, sizeof(name), "%s.weight", norm);
    params_shape_add(s, name, 1, &out);
    (void)snprintf(name, sizeof(name), "%s.bias", norm);
    params_shape_add(s, name, 1, &out);
}

static void params_shape_add_block(struct params_shape *s, int layer, int block, int64_t in,
                                   int64_t width)
{
    const struct {
        int64_t out, in, side;
    } convs[] = {{width, in, 1}, {width, width, 3}, {4 * width, width, 1}};
    char conv[NAME_BYTES], norm[NAME_BYTES];

    for (int i = 0; i < 3; i++) {
        (void)snprintf(conv, sizeof(conv), "layer%d.%d.conv%d", layer, block, i + 1);
        (void)snprintf(norm, sizeof(norm), "layer%d.%d.bn%d", layer, block, i + 1);
        add_conv(s, conv, norm, convs[i].out, convs[i].in, convs[i].side);
    }
    if (block > 0)
        return;
    (void)snprintf(conv, sizeof(conv), "layer%d.0.downsample.0", layer);
    (void)snprintf(norm, sizeof(norm), "layer%d.0.downsample.1", layer);
    add_conv(s, conv, norm, 4 * width, in, 1);
}

void params_shape_resnet50(struct params_shape *out, size_t n_classes)
{
    static const int n_blocks[] = {3, 4, 6, 3};
    int64_t in = 64, width = 64;

    *out = (struct params_shape){.specs = xalloc(MAX_SPECS * sizeof(struct parley_tensor_spec))};
    add_conv(out, "conv1", "bn1", 64, 3, 7);
    for (int layer = 0; layer < 4; layer++, width *= 2) {
        for (int block = 0; block < n_blocks[layer]; block++) {
            params_shape_add_block(out, layer + 1, block, in, width);
            in = 4 * width;
        }
    }
    params_shape_add(out, "fc.weight", 2, (const int64_t[]){(int64_t)n_classes, in});
    params_shape_add(out, "fc.bias", 1, (const int64_t[]){(int64_t)n_classes});
}

void params_shape_flat(struct params_shape *out, size_t n)
{
    *out = (struct params_shape){.specs = xalloc(sizeof(struct parley_tensor_spec))};
    params_shape_add(out, "w", 1, (const int64_t[]){(int64_t)n});
}

void params_shape_free(struct params_shape *s)
{
    for (size_t i = 0; i < s->n_specs; i++) {
        free((void *)(uintptr_t)s->specs[i].name);
        free((void *)(uintptr_t)s->specs[i].shape);
    }
    free(s->specs);
}
