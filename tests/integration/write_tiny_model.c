/* Writes the small model of the tests into a file: `write_tiny_model FILE`. */
#include <stdio.h>

#include "tests/support/tiny_model.h"

int main(int argc, char **argv)
{
    const struct tiny_config config = {.type = DTYPE_F32, .seed = 1};
    struct tiny_model model;
    FILE *out;
    int is_good;

    if (argc != 2)
        return 2;
    out = fopen(argv[1], "wb");
    if (out == NULL)
        return 1;
    tiny_model_init(&model, &config);
    is_good = fwrite(model.bytes, 1, model.size_bytes, out) == model.size_bytes;
    tiny_model_deinit(&model);
    return fclose(out) == 0 && is_good ? 0 : 1;
}
