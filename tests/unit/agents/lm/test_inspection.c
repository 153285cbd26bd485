#include "agents/lm/inspection.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/tiny_model.h"
#include "tests/unit/base/suite.h"

static char path[64];

/* Writes a model to a new path, inspects it and removes it: the inspection keeps it open. */
static void inspect(struct lm_inspection *x, const struct tiny_config *config)
{
    struct tiny_model model;
    struct error err;
    int fd;

    (void)snprintf(path, sizeof(path), "/tmp/parley-test-inspection-XXXXXX");
    fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    tiny_model_init(&model, config);
    ck_assert_int_eq(write(fd, model.bytes, model.size_bytes), (ssize_t)model.size_bytes);
    tiny_model_deinit(&model);
    ck_assert_int_eq(close(fd), 0);
    ck_assert_int_eq(lm_inspect(x, path, &err), STATUS_OK);
    ck_assert_int_eq(unlink(path), 0);
}

/* A model's figures are those it was made with. */
START_TEST(figures_are_read)
{
    const struct tiny_config config = {.type = DTYPE_Q8_0, .seed = 1, .has_own_head = true};
    const uint64_t head_bytes = kv_head_bytes(KV_Q8, TINY_HEAD_DIM);
    struct lm_inspection x;

    inspect(&x, &config);
    ck_assert_int_eq(x.why.status, STATUS_OK);
    ck_assert_str_eq(x.architecture, "llama");
    ck_assert_str_eq(x.template_name, "chatml");
    ck_assert_uint_eq(x.template_len, strlen(tiny_chat_template));
    ck_assert_uint_eq(x.n_layers, TINY_LAYERS);
    ck_assert_uint_eq(x.context, TINY_CONTEXT);
    ck_assert_uint_eq(x.n_vocab, TINY_VOCAB);
    ck_assert_uint_eq(x.kv_token_bytes[KV_Q8], TINY_LAYERS * TINY_KV_HEADS * 2 * head_bytes);
    ck_assert_uint_eq(x.n_kinds, 2); /* norms are f32 */
    ck_assert_str_eq(x.kinds[0].type, "Q8_0");
    ck_assert_str_eq(x.mix, "Q8_0");
    ck_assert_str_eq(x.kinds[1].type, "F32");
    ck_assert_uint_eq(x.kinds[1].n_values, (2 * TINY_LAYERS + 1) * TINY_WIDTH);
    ck_assert_uint_eq(x.weight_bytes, x.kinds[0].size_bytes + x.kinds[1].size_bytes);
    lm_inspection_deinit(&x);
}
END_TEST

/* A file that is not run here is described all the same, with the reason. */
START_TEST(foreign_files_are_described)
{
    struct tiny_config config = {.seed = 1, .architecture = "mamba"};
    struct lm_inspection x;

    inspect(&x, &config);
    ck_assert_int_eq(x.why.status, STATUS_UNIMPLEMENTED);
    ck_assert_ptr_nonnull(strstr(x.why.text, "mamba"));
    ck_assert_str_eq(x.architecture, "mamba");
    ck_assert_uint_gt(x.n_parameters, 0);
    ck_assert_uint_eq(x.n_layers, 0); /* its keys are llama's */
    ck_assert_uint_eq(x.kv_token_bytes[KV_F16], 0);
    lm_inspection_deinit(&x);
    config = (struct tiny_config){.seed = 1, .set_key = "llama.block_count", .set_value = 1u << 31};
    inspect(&x, &config);
    ck_assert_int_ne(x.why.status, STATUS_OK);
    ck_assert_uint_eq(x.n_layers, 0);
    lm_inspection_deinit(&x);
}
END_TEST

SUITE_MAIN("agents/lm/inspection", figures_are_read, foreign_files_are_described)
