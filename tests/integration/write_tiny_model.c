/* Writes the small model of the tests into a file: `write_tiny_model FILE [CONTEXT [SEED
 * [TEMPLATE [TOKEN]...]]]`. CONTEXT: so many tokens instead of TINY_CONTEXT, for replies that are
 * still running when a test reaches them; or KEY=NUMBER, another key: one of qwen35 makes a model
 * with recurrent state; or add_bos. SEED: other weights than those of 1. TEMPLATE: a file with the
 * chat template. TOKEN: the text of a further token, a control token's behind '!'. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/tiny_model.h"

int main(int argc, char **argv)
{
    struct tiny_config config = {.type = DTYPE_F32, .seed = 1};
    struct tiny_token tokens[64];
    struct tiny_model model;
    char template[1 << 16], *value;
    FILE *out, *from;
    int is_good;

    if (argc < 2 || argc > 5 + (int)(sizeof(tokens) / sizeof(tokens[0])))
        return 2;
    if (argc >= 4)
        config.seed = (uint32_t)strtoul(argv[3], NULL, 10);
    config.adds_bos = argc >= 3 && strcmp(argv[2], "add_bos") == 0;
    if (argc >= 3 && !config.adds_bos) {
        value = strchr(argv[2], '=');
        if (value != NULL)
            *value = '\0';
        config.has_state = value != NULL && strncmp(argv[2], "qwen35.", strlen("qwen35.")) == 0;
        config.set_key = value != NULL ? argv[2] : "llama.context_length";
        config.set_value = (uint32_t)strtoul(value != NULL ? value + 1 : argv[2], NULL, 10);
    }
    if (argc >= 5) {
        from = fopen(argv[4], "rb");
        if (from == NULL)
            return 1;
        template[fread(template, 1, sizeof(template) - 1, from)] = '\0';
        (void)fclose(from); /* it was only read */
        config.chat_template = template;
    }
    for (int i = 5; i < argc; i++)
        tokens[i - 5] = (struct tiny_token){argv[i] + (argv[i][0] == '!'), argv[i][0] == '!'};
    config.more_tokens = tokens;
    config.n_more_tokens = argc > 5 ? (size_t)argc - 5 : 0;
    out = fopen(argv[1], "wb");
    if (out == NULL)
        return 1;
    tiny_model_init(&model, &config);
    is_good = fwrite(model.bytes, 1, model.size_bytes, out) == model.size_bytes;
    tiny_model_deinit(&model);
    return fclose(out) == 0 && is_good ? 0 : 1;
}
