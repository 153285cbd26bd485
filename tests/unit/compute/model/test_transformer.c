#include "compute/model/read_shape.h"
#include "compute/model/transformer.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "compute/backends.h"
#include "tests/support/tiny_model.h"
#include "tests/unit/base/suite.h"

#define N_OF(a) (sizeof(a) / sizeof((a)[0]))

enum { MAX_TOKENS = 64, MAX_LOGITS = 40, PAGES = 16, PROMPT = 40 };

/* A tiny model and its backend. */
struct rig {
    struct tiny_model file;
    struct gguf *gguf;
    struct backend *backend;
    struct transformer *model;
};

static const struct tiny_config plain = {.seed = 1};

static void rig_open_on(struct rig *r, const struct tiny_config *config, const char *backend,
                        size_t n_threads)
{
    const struct backend_config backend_config = {.n_threads = n_threads};
    const struct transformer_config transformer_config = {
        .max_tokens = MAX_TOKENS, .max_logits = MAX_LOGITS, .n_kv_pages = PAGES, .kv_type = KV_F32};
    struct error err = {0};

    tiny_model_init(&r->file, config);
    ck_assert_msg(gguf_open_bytes(&r->gguf, r->file.bytes, r->file.size_bytes, "tiny", &err) ==
                      STATUS_OK,
                  "%s", err.text);
    ck_assert_int_eq(backend_open(&r->backend, backend, &backend_config, &err), STATUS_OK);
    ck_assert_msg(transformer_open(&r->model, r->backend, r->gguf, &transformer_config, &err) ==
                      STATUS_OK,
                  "%s", err.text);
}

static void rig_open(struct rig *r, const struct tiny_config *config)
{
    rig_open_on(r, config, "ref", 0);
}

static void rig_close(struct rig *r)
{
    transformer_close(r->model);
    backend_close(r->backend);
    gguf_close(r->gguf);
    tiny_model_deinit(&r->file);
}

static void forward(struct rig *r, const struct transformer_row *rows, size_t n_rows)
{
    struct error err = {0};

    ck_assert_msg(transformer_forward(r->model, rows, n_rows, NULL, 0, &err) == STATUS_OK, "%s",
                  err.text);
}

static void make_prompt(int32_t ids[PROMPT], int32_t salt)
{
    for (int32_t i = 0; i < PROMPT; i++)
        ids[i] = (i * 31 + salt) % TINY_VOCAB;
}

static float known[PROMPT * TINY_VOCAB], is[PROMPT * TINY_VOCAB];

/* Logits of all tokens of a prompt, run in chunks. */
static void run_prompt(struct rig *r, const int32_t *ids, const int32_t *pages, size_t chunk,
                       float *out)
{
    for (size_t pos = 0, n; pos < PROMPT; pos += n) {
        struct transformer_row row = {
            .ids = ids + pos, .pos = pos, .pages = pages, .logits = out + pos * TINY_VOCAB};

        n = row.n_tokens = row.n_logits = PROMPT - pos < chunk ? PROMPT - pos : chunk;
        forward(r, &row, 1);
    }
}

static const int32_t some_pages[] = {3, 1, 12}, other_pages[] = {7, 8, 9};

/* The metadata's numbers are in the shape. */
START_TEST(shape_is_read)
{
    struct rig r;
    const struct transformer_shape *s;

    rig_open(&r, &plain);
    s = transformer_shape(r.model);
    ck_assert_uint_eq(s->n_layers, TINY_LAYERS);
    ck_assert_uint_eq(s->width, TINY_WIDTH);
    ck_assert_uint_eq(s->n_heads, TINY_HEADS);
    ck_assert_uint_eq(s->n_kv_heads, TINY_KV_HEADS);
    ck_assert_uint_eq(s->head_dim, TINY_HEAD_DIM);
    ck_assert_uint_eq(s->ffn_width, TINY_WIDTH);
    ck_assert_uint_eq(s->n_vocab, TINY_VOCAB);
    ck_assert_uint_eq(s->context, TINY_CONTEXT);
    ck_assert(s->rope_base == 10000.0f && s->norm_eps == 1e-5f);
    ck_assert_uint_eq(transformer_page_bytes(r.model), TINY_LAYERS * 2 * KV_PAGE_TOKENS *
                                                           TINY_KV_HEADS *
                                                           kv_head_bytes(KV_F32, TINY_HEAD_DIM));
    ck_assert_uint_gt(transformer_weight_bytes(r.model),
                      TINY_LAYERS * 6 * TINY_WIDTH * TINY_WIDTH * 4);
    ck_assert_uint_lt(transformer_weight_bytes(r.model), r.file.size_bytes);
    rig_close(&r);
}
END_TEST

/* A model with another's weights, on a backend of its own, gives the same logits and does not copy
 * the weights. */
START_TEST(weights_are_shared)
{
    const struct backend_config backend_config = {0};
    struct transformer_config config = {
        .max_tokens = MAX_TOKENS, .max_logits = MAX_LOGITS, .n_kv_pages = PAGES, .kv_type = KV_F32};
    int32_t ids[PROMPT];
    struct rig r, other;
    struct error err;

    rig_open(&r, &plain);
    make_prompt(ids, 5);
    run_prompt(&r, ids, some_pages, PROMPT, known);
    other = r;
    config.weights_of = r.model;
    for (int again = 0; again < 2; again++) {
        ck_assert_int_eq(backend_open(&other.backend, "ref", &backend_config, &err), STATUS_OK);
        ck_assert_int_eq(transformer_open(&other.model, other.backend, r.gguf, &config, &err),
                         STATUS_OK);
        ck_assert_uint_eq(transformer_weight_bytes(other.model), transformer_weight_bytes(r.model));
        run_prompt(&other, ids, other_pages, PROMPT, is);
        ck_assert_mem_eq(is, known, sizeof(is));
        transformer_close(other.model);
        backend_close(other.backend);
    }
    rig_close(&r);
}
END_TEST

/* The error for the shape of a wrong file: a status, and words that its text contains. */
static const struct {
    struct tiny_config config;
    enum status status;
    const char *word, *other_word;
} wrong[] = {
    {{.architecture = "mamba"}, STATUS_UNIMPLEMENTED, "recurrent state", "'mamba'"},
    {{.architecture = "bert"}, STATUS_UNIMPLEMENTED, "is not supported", "'bert'"},
    {{.leave_out = "general.architecture"}, STATUS_NOT_FOUND, "tiny", "general.architecture"},
    {{.leave_out = "llama.block_count"}, STATUS_NOT_FOUND, "tiny", "llama.block_count"},
    {{.leave_out = "llama.attention.layer_norm_rms_epsilon"},
     STATUS_NOT_FOUND,
     "tiny",
     "layer_norm_rms_epsilon"},
    {{.set_key = "llama.block_count", .set_value = 0}, STATUS_DATA_LOSS, "tiny", "block_count"},
    {{.set_key = "llama.block_count", .set_value = 1u << 30},
     STATUS_DATA_LOSS,
     "1073741824",
     "block_count"},
    {{.set_key = "llama.block_count", .set_value = TINY_LAYERS + 1},
     STATUS_NOT_FOUND,
     "tiny",
     "blk.2.attn_norm.weight"},
    {{.set_key = "llama.block_count", .set_value = TINY_LAYERS - 1},
     STATUS_UNIMPLEMENTED,
     "tiny",
     "blk.1."},
    {{.set_key = "llama.embedding_length", .set_value = 512},
     STATUS_UNIMPLEMENTED,
     "tiny",
     "64 rotated"},
    {{.set_key = "llama.feed_forward_length", .set_value = 128},
     STATUS_DATA_LOSS,
     "256 x 256",
     "128 x 256"},
    {{.set_key = "llama.attention.head_count", .set_value = 3},
     STATUS_DATA_LOSS,
     "head_count",
     "3"},
    {{.set_key = "llama.attention.head_count_kv", .set_value = 1},
     STATUS_DATA_LOSS,
     "128 x 256",
     "64 x 256"},
    {{.set_key = "llama.attention.key_length", .set_value = 63}, STATUS_DATA_LOSS, "63", "even"},
    {{.set_key = "llama.rope.dimension_count", .set_value = 32},
     STATUS_UNIMPLEMENTED,
     "tiny",
     "32 rotated"},
    {{.set_key = "llama.vocab_size", .set_value = 100},
     STATUS_DATA_LOSS,
     "token_embd.weight",
     "100 x 256"},
    {{.set_key = "llama.context_length", .set_value = (1u << 24) + 1},
     STATUS_DATA_LOSS,
     "context_length",
     "16777217"},
    {{.set_key = "llama.expert_count", .set_value = 8},
     STATUS_NOT_FOUND,
     "expert_used_count",
     "absent"},
    {{.add_keys = {{"llama.rope.scaling.factor", NULL, -4, false}}},
     STATUS_DATA_LOSS,
     "'llama.rope.scaling.factor' is -4",
     "tiny"},
    {{.add_keys = {{"llama.rope.scaling.type", "dynamic", 0, false}}},
     STATUS_UNIMPLEMENTED,
     "'llama.rope.scaling.type' is 'dynamic'",
     "tiny"},
    {{.add_keys = {{"llama.rope.scaling.type", "none", 0, false},
                   {"llama.rope.scaling.attn_factor", NULL, 0, false}}},
     STATUS_DATA_LOSS,
     "'llama.rope.scaling.attn_factor' is 0",
     "tiny"},
    {{.add_keys = {{"llama.attention.scale", NULL, -1, false}}},
     STATUS_DATA_LOSS,
     "'llama.attention.scale' is -1",
     "tiny"},
    {{.set_key = "llama.attention.sliding_window", .set_value = TINY_CONTEXT - 1},
     STATUS_UNIMPLEMENTED,
     "'llama.attention.sliding_window' is 2047",
     "tiny"},
    {{.add_keys = {{"llama.attention.causal", NULL, 0, true}}},
     STATUS_UNIMPLEMENTED,
     "'llama.attention.causal' is false",
     "tiny"},
    {{.add_keys = {{"llama.tensor_data_layout", "other", 0, false}}},
     STATUS_UNIMPLEMENTED,
     "'llama.tensor_data_layout' is 'other'",
     "tiny"},
    {{.add_keys = {{"general.type", "adapter", 0, false}}},
     STATUS_UNIMPLEMENTED,
     "the kind 'adapter' is not supported",
     "take a model that it is merged into"},
    {{.add_keys = {{"llama.logit_scale", NULL, 1, false}}},
     STATUS_UNIMPLEMENTED,
     "key 'llama.logit_scale' is not supported",
     "tiny"},
    {{.set_key = "llama.", .set_value = 1},
     STATUS_UNIMPLEMENTED,
     "key 'llama.' is not supported",
     "tiny"},
    {{.set_key = "llama.rope.scaling.type", .set_value = 1},
     STATUS_DATA_LOSS,
     "llama.rope.scaling.type",
     "tiny"},
    {{.set_key = "general.architecture", .set_value = 8},
     STATUS_DATA_LOSS,
     "tiny",
     "general.architecture"},
    {{.leave_out = "token_embd.weight"}, STATUS_NOT_FOUND, "tiny", "token_embd.weight"},
    {{.leave_out = "output_norm.weight"}, STATUS_NOT_FOUND, "tiny", "output_norm.weight"},
    {{.leave_out = "blk.1.ffn_up.weight"}, STATUS_NOT_FOUND, "tiny", "blk.1.ffn_up.weight"},
    {{.add_tensor = "blk.0.attn_k.bias"}, STATUS_DATA_LOSS, "1 x 256", "1 x 128"},
    {{.add_tensor = "blk.0.ffn_up.bias"}, STATUS_UNIMPLEMENTED, "tiny", "blk.0.ffn_up.bias"},
    {{.add_tensor = "blk.0.attn_q_norm.weight"},
     STATUS_UNIMPLEMENTED,
     "tiny",
     "blk.0.attn_q_norm.weight"},
    {{.add_tensor = "blk.0.attn_sinks.weight"},
     STATUS_UNIMPLEMENTED,
     "tiny",
     "blk.0.attn_sinks.weight"},
    {{.add_tensor = "blk.x.attn_q.weight"}, STATUS_UNIMPLEMENTED, "tiny", "blk.x.attn_q.weight"},
    {{.add_tensor = "blk.00.attn_q.weight"}, STATUS_UNIMPLEMENTED, "tiny", "blk.00.attn_q.weight"},
    {{.add_tensor = "rope_freqs.weight"}, STATUS_DATA_LOSS, "1 x 256", "1 x 32"},
    {{.add_tensor = "output.weight"}, STATUS_DATA_LOSS, "1 x 256", "267 x 256"},
};

/* A file whose numbers and tensors do not match, or need what we do not compute, is refused with a
 * text that names them. */
START_TEST(wrong_shapes_are_refused)
{
    for (size_t i = 0; i < N_OF(wrong); i++) {
        struct transformer_shape shape = {.n_layers = 77};
        struct error err = {0};
        struct tiny_model file;
        struct gguf *g;
        enum status rc;

        tiny_model_init(&file, &wrong[i].config);
        ck_assert_int_eq(gguf_open_bytes(&g, file.bytes, file.size_bytes, "tiny", &err), STATUS_OK);
        rc = transformer_read_shape(&shape, g, &err);
        ck_assert_msg(rc == wrong[i].status && strstr(err.text, wrong[i].word) != NULL &&
                          strstr(err.text, wrong[i].other_word) != NULL,
                      "case %zu: status %d, '%s'", i, rc, err.text);
        ck_assert_uint_eq(shape.n_layers, 77);
        gguf_close(g);
        tiny_model_deinit(&file);
    }
}
END_TEST

/* Harmless keys change no bit. */
START_TEST(harmless_keys_change_nothing)
{
    static const struct tiny_config harmless[] = {
        {.seed = 1, .set_key = "llama.expert_count", .set_value = 0},
        {.seed = 1, .add_keys = {{"general.type", "model", 0, false}}},
        {.seed = 1, .set_key = "llama.expert_used_count", .set_value = 2},
        {.seed = 1, .set_key = "llama.pooling_type", .set_value = 3},
        {.seed = 1, .set_key = "llama.attention.sliding_window", .set_value = 0},
        {.seed = 1, .set_key = "llama.attention.sliding_window", .set_value = TINY_CONTEXT},
        {.seed = 1, .set_key = "llama.rope.scaling.original_context_length", .set_value = 64},
        {.seed = 1, .add_keys = {{"llama.attention.layer_norm_epsilon", NULL, 0.5f, false}}},
        {.seed = 1, .add_keys = {{"llama.attention.causal", NULL, 1, true}}},
        {.seed = 1, .add_keys = {{"llama.attention.scale", NULL, 0, false}}},
        {.seed = 1, .add_keys = {{"llama.attention.scale", NULL, 0.125f, false}}},
        {.seed = 1, .add_keys = {{"llama.rope.scaling.factor", NULL, 0, false}}},
        {.seed = 1, .add_keys = {{"llama.rope.scale_linear", NULL, 1, false}}},
        {.seed = 1,
         .add_keys = {{"llama.rope.scaling.type", "none", 0, false},
                      {"llama.rope.scaling.factor", NULL, 4, false}}},
        {.seed = 1,
         .add_keys = {{"llama.rope.scaling.type", "none", 0, false},
                      {"llama.rope.scale_linear", NULL, 4, false}}},
        {.seed = 1, .add_keys = {{"llama.rope.scaling.attn_factor", NULL, 1, false}}},
        {.seed = 1, .add_keys = {{"llama.rope.scaling.finetuned", NULL, 1, true}}},
        {.seed = 1, .add_keys = {{"llama.tensor_data_layout", "Meta AI original pth", 0, false}}},
    };
    int32_t ids[PROMPT];
    struct rig r;

    make_prompt(ids, 5);
    rig_open(&r, &plain);
    run_prompt(&r, ids, some_pages, PROMPT, known);
    rig_close(&r);
    for (size_t i = 0; i < N_OF(harmless); i++) {
        rig_open(&r, &harmless[i]);
        run_prompt(&r, ids, some_pages, PROMPT, is);
        ck_assert_mem_eq(is, known, sizeof(is));
        rig_close(&r);
    }
}
END_TEST

static const char *const backends[] = {"ref", "cpu"};

/* A model with a number that is infinite or NaN is refused with the name of its tensor. */
START_TEST(broken_weights_are_refused)
{
    static const struct {
        enum dtype type;
        const char *tensor;
    } broken[] = {
        {DTYPE_F32, "token_embd.weight"},         {DTYPE_F32, "blk.1.attn_norm.weight"},
        {DTYPE_F32, "rope_freqs.weight"},         {DTYPE_F16, "blk.0.attn_q.weight"},
        {DTYPE_BF16, "blk.1.ffn_up.weight"},      {DTYPE_Q4_0, "blk.0.attn_k.weight"},
        {DTYPE_Q4_1, "blk.0.ffn_gate.weight"},    {DTYPE_Q5_0, "blk.0.attn_v.weight"},
        {DTYPE_Q5_1, "token_embd.weight"},        {DTYPE_Q8_0, "output.weight"},
        {DTYPE_Q4_K, "blk.1.attn_output.weight"}, {DTYPE_Q5_K, "blk.1.ffn_down.weight"},
        {DTYPE_Q6_K, "token_embd.weight"},        {DTYPE_Q4_1, "output_norm.weight"},
    };

    for (size_t b = 0; b < N_OF(backends); b++)
        for (size_t i = 0; i < N_OF(broken); i++) {
            const struct tiny_config config = {.seed = 1,
                                               .type = broken[i].type,
                                               .has_own_head = true,
                                               .has_rope_freqs = true,
                                               .break_tensor = broken[i].tensor};
            const struct backend_config backend_config = {.n_threads = 2};
            const struct transformer_config transformer_config = {.max_tokens = MAX_TOKENS,
                                                                  .max_logits = MAX_LOGITS,
                                                                  .n_kv_pages = PAGES,
                                                                  .kv_type = KV_F32};
            struct rig r = {0};
            struct error err = {0};
            char words[96];

            (void)snprintf(words, sizeof(words), "tiny: tensor '%s' has the value ",
                           broken[i].tensor);
            tiny_model_init(&r.file, &config);
            ck_assert_int_eq(
                gguf_open_bytes(&r.gguf, r.file.bytes, r.file.size_bytes, "tiny", &err), STATUS_OK);
            ck_assert_int_eq(backend_open(&r.backend, backends[b], &backend_config, &err),
                             STATUS_OK);
            ck_assert_int_eq(
                transformer_open(&r.model, r.backend, r.gguf, &transformer_config, &err),
                STATUS_DATA_LOSS);
            ck_assert_msg(strstr(err.text, words) != NULL, "%s", err.text);
            rig_close(&r);
        }
}
END_TEST

static void write_file(const char *path, const struct tiny_model *m)
{
    FILE *to = fopen(path, "we"); /* in place, if the file exists */

    ck_assert_ptr_nonnull(to);
    ck_assert_uint_eq(fwrite(m->bytes, 1, m->size_bytes, to), m->size_bytes);
    ck_assert_int_eq(fclose(to), 0);
}

/* An open model gives the same logits whatever happens to its file. A model whose file changes
 * while it is loaded is refused; so is one that is to share weights with another state of the file,
 * or to be loaded again from it on a device that has failed. */
START_TEST(files_may_change_under_a_model)
{
    const struct timespec old[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    struct transformer_config config = {
        .max_tokens = MAX_TOKENS, .max_logits = MAX_LOGITS, .n_kv_pages = PAGES, .kv_type = KV_F32};
    char path[] = "/tmp/parley-test-llama-XXXXXX";
    struct tiny_model other;
    int32_t ids[PROMPT];
    struct error err = {0};
    int fd = mkstemp(path);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(close(fd), 0);
    make_prompt(ids, 5);
    tiny_model_init(&other, &(struct tiny_config){.type = DTYPE_Q4_1, .seed = 9});
    for (size_t b = 0; b < N_OF(backends); b++) {
        struct rig r, shared;
        struct gguf *file = NULL;

        rig_open_on(&r, &(struct tiny_config){.type = DTYPE_Q4_1, .seed = 1}, backends[b], 2);
        run_prompt(&r, ids, some_pages, PROMPT, known);
        transformer_close(r.model);
        r.model = NULL;
        write_file(path, &r.file);
        ck_assert_int_eq(utimensat(AT_FDCWD, path, old, 0), 0);
        ck_assert_int_eq(gguf_open(&file, path, &err), STATUS_OK);
        ck_assert_int_eq(transformer_open(&r.model, r.backend, file, &config, &err), STATUS_OK);
        ck_assert_int_eq(
            transformer_restart(r.model, &(struct backend_config){.n_threads = 2}, &err),
            STATUS_OK);
        write_file(path, &other);
        run_prompt(&r, ids, some_pages, PROMPT, is);
        ck_assert_mem_eq(is, known, sizeof(is));

        shared = r;
        ck_assert_int_eq(gguf_open(&shared.gguf, path, &err), STATUS_OK);
        config.weights_of = r.model;
        ck_assert_int_eq(transformer_open(&shared.model, r.backend, shared.gguf, &config, &err),
                         STATUS_PRECONDITION);
        ck_assert_ptr_nonnull(
            strstr(err.text, "the file has changed since its weights were loaded"));
        config.weights_of = NULL;
        ck_assert_int_eq(
            transformer_restart(r.model, &(struct backend_config){.n_threads = 2}, &err),
            STATUS_UNAVAILABLE);
        ck_assert_ptr_nonnull(strstr(err.text, "has changed since it was opened"));
        ck_assert_int_eq(truncate(path, 16), 0);
        run_prompt(&r, ids, some_pages, PROMPT, is);
        ck_assert_mem_eq(is, known, sizeof(is));

        ck_assert_int_eq(transformer_open(&shared.model, r.backend, shared.gguf, &config, &err),
                         STATUS_UNAVAILABLE);
        ck_assert_ptr_nonnull(strstr(err.text, "has changed since it was opened"));
        gguf_close(shared.gguf);
        rig_close(&r);
        gguf_close(file);
    }
    tiny_model_deinit(&other);
    ck_assert_int_eq(unlink(path), 0);
}
END_TEST

/* Absent optional keys have the format's defaults. */
START_TEST(optional_keys_have_defaults)
{
    static const char *const keys[] = {"llama.rope.dimension_count", "llama.vocab_size",
                                       "llama.rope.freq_base"};

    for (size_t i = 0; i < N_OF(keys); i++) {
        struct tiny_config config = {.leave_out = keys[i]};
        struct rig r;

        rig_open(&r, &config);
        ck_assert_uint_eq(transformer_shape(r.model)->n_vocab, TINY_VOCAB);
        ck_assert(transformer_shape(r.model)->rope_base == 10000.0f);
        rig_close(&r);
    }
}
END_TEST

/* A prompt at once, in chunks, token by token, in any pages: the same logits, to the bit. */
START_TEST(chunks_do_not_matter)
{
    static const size_t chunks[] = {1, 7, 16, 39};
    int32_t ids[PROMPT];
    struct rig r;

    rig_open(&r, &plain);
    make_prompt(ids, 5);
    run_prompt(&r, ids, some_pages, PROMPT, known);
    for (size_t i = 0; i < N_OF(chunks); i++) {
        run_prompt(&r, ids, other_pages, chunks[i], is);
        ck_assert_mem_eq(is, known, sizeof(known));
    }
    rig_close(&r);
}
END_TEST

/* A chunk of one prompt and the last token of another, in one call, give the same as each alone;
 * each row gets its n_logits, anywhere in memory. */
START_TEST(neighbours_do_not_matter)
{
    static float one[3 * TINY_VOCAB], two[TINY_VOCAB], two_known[PROMPT * TINY_VOCAB];
    int32_t ids[PROMPT], other_ids[PROMPT];
    struct transformer_row rows[] = {
        {.ids = ids, .n_tokens = 23, .pages = some_pages, .n_logits = 3, .logits = one},
        {.ids = ids, .n_tokens = 5, .pages = (const int32_t[]){14}}, /* no logits */
        {.ids = other_ids + PROMPT - 1,
         .n_tokens = 1,
         .pos = PROMPT - 1,
         .pages = other_pages,
         .n_logits = 1,
         .logits = two},
    };
    struct rig r;

    rig_open(&r, &plain);
    make_prompt(ids, 5);
    make_prompt(other_ids, 9);
    run_prompt(&r, other_ids, other_pages, PROMPT, two_known);
    run_prompt(&r, ids, some_pages, PROMPT, known);
    forward(&r, rows, N_OF(rows));
    ck_assert_mem_eq(one, known + (23 - 3) * TINY_VOCAB, sizeof(one));
    ck_assert_mem_eq(two, two_known + (PROMPT - 1) * TINY_VOCAB, sizeof(two));

    /* the same, into one piece of memory */
    rows[0].logits = is;
    rows[2].logits = is + 3 * TINY_VOCAB;
    forward(&r, rows, N_OF(rows));
    ck_assert_mem_eq(is, one, sizeof(one));
    ck_assert_mem_eq(is + 3 * TINY_VOCAB, two, sizeof(two));
    rig_close(&r);
}
END_TEST

/* Copies are made before the rows run: a branch continues from a copied page as from the
 * original. */
START_TEST(copies_come_first)
{
    static const int32_t branch_pages[] = {10};
    static float branch[TINY_VOCAB];
    const struct kv_copy copy = {.from = some_pages[0], .to = branch_pages[0]};
    int32_t ids[PROMPT];
    struct transformer_row row = {.ids = ids, .n_tokens = 12, .pages = some_pages};
    struct error err;
    struct rig r;

    rig_open(&r, &plain);
    make_prompt(ids, 5);
    run_prompt(&r, ids, other_pages, PROMPT, known);
    forward(&r, &row, 1);
    row = (struct transformer_row){.ids = ids + 12,
                                   .n_tokens = 1,
                                   .pos = 12,
                                   .pages = branch_pages,
                                   .n_logits = 1,
                                   .logits = branch};
    ck_assert_int_eq(transformer_forward(r.model, &row, 1, &copy, 1, &err), STATUS_OK);
    ck_assert_mem_eq(branch, known + 12 * TINY_VOCAB, sizeof(branch));
    rig_close(&r);
}
END_TEST

/* Counts the steps that are divided into micro-batches, and can delay all but the first one. */
static struct backend_type counted;
static const struct backend_type *real_type;
static size_t n_shared;
static bool are_late;

static double now_s(void)
{
    struct timespec t;

    ck_assert_int_eq(clock_gettime(CLOCK_MONOTONIC, &t), 0);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void count_each(struct backend *b, size_t n, void (*fn)(void *arg, size_t i), void *arg)
{
    double begun = now_s(), first;

    n_shared++;
    if (!are_late) {
        real_type->each(b, n, fn, arg);
        return;
    }
    fn(arg, 0);
    first = now_s() - begun;
    while (now_s() - begun < 2 * first)
        ;
    for (size_t i = 1; i < n; i++)
        fn(arg, i);
}

static void rig_open_counted(struct rig *r)
{
    static const struct tiny_config quantised = {.type = DTYPE_Q4_1, .seed = 1};

    rig_open_on(r, &quantised, "cpu", 2);
    real_type = r->backend->type;
    counted = *real_type;
    counted.each = count_each;
    r->backend->type = &counted;
    n_shared = 0;
}

enum { MICRO_BATCH_ROWS = 6 };

/* Prompts of 12, 8, 8 and 4 tokens, and two tokens after earlier ones: 34 in all. */
static void lay_out_micro_batches(struct transformer_row rows[MICRO_BATCH_ROWS], const int32_t *ids)
{
    static const int32_t pages[MICRO_BATCH_ROWS] = {2, 9, 4, 11, 0, 7};
    static const size_t n_tokens[MICRO_BATCH_ROWS] = {12, 8, 8, 4, 1, 1};
    static float logits[MICRO_BATCH_ROWS][TINY_VOCAB];

    for (size_t i = 0; i < MICRO_BATCH_ROWS; i++)
        rows[i] = (struct transformer_row){.ids = ids + i,
                                           .n_tokens = n_tokens[i],
                                           .pos = n_tokens[i] == 1 ? 3 : 0,
                                           .pages = &pages[i],
                                           .n_logits = 1,
                                           .logits = logits[i]};
}

/* With micro-batches, each row has the logits that it has alone. */
START_TEST(micro_batches_do_not_matter)
{
    static float alone[MICRO_BATCH_ROWS][TINY_VOCAB];
    struct transformer_row rows[MICRO_BATCH_ROWS], before[2];
    int32_t ids[PROMPT];
    struct rig r;

    rig_open_counted(&r);
    make_prompt(ids, 5);
    lay_out_micro_batches(rows, ids);
    for (size_t i = 0; i < 2; i++)
        before[i] = (struct transformer_row){.ids = ids, .n_tokens = 3, .pages = rows[4 + i].pages};
    forward(&r, before, 2);
    for (size_t i = 0; i < MICRO_BATCH_ROWS; i++) {
        forward(&r, &rows[i], 1);
        memcpy(alone[i], rows[i].logits, sizeof(alone[i]));
        memset(rows[i].logits, 0, sizeof(alone[i]));
    }
    ck_assert_uint_eq(n_shared, 0);
    forward(&r, rows, MICRO_BATCH_ROWS);
    ck_assert_uint_eq(n_shared, 1);
    for (size_t i = 0; i < MICRO_BATCH_ROWS; i++)
        ck_assert_mem_eq(rows[i].logits, alone[i], sizeof(alone[i]));
    /* rows that cannot be halved are computed together */
    rows[0].n_tokens = 32;
    rows[0].pages = (const int32_t[]){2, 3};
    forward(&r, rows, MICRO_BATCH_ROWS);
    ck_assert_uint_eq(n_shared, 1);
    ck_assert_mem_eq(rows[1].logits, alone[1], sizeof(alone[1]));
    rig_close(&r);
}
END_TEST

/* If one thread ends long after another, another process probably uses its processor: the next
 * steps are not divided. */
START_TEST(late_micro_batches_wait)
{
    struct transformer_row rows[MICRO_BATCH_ROWS];
    int32_t ids[PROMPT];
    struct rig r;

    rig_open_counted(&r);
    make_prompt(ids, 5);
    lay_out_micro_batches(rows, ids);
    are_late = true;
    for (size_t i = 0; i < 33; i++)
        forward(&r, rows, MICRO_BATCH_ROWS);
    ck_assert_uint_eq(n_shared, 1);
    forward(&r, rows, MICRO_BATCH_ROWS);
    ck_assert_uint_eq(n_shared, 2);
    are_late = false;
    rig_close(&r);
}
END_TEST

static double distance(const float *a, const float *b, size_t n)
{
    double sum = 0.0;

    for (size_t i = 0; i < n; i++)
        sum += fabs((double)a[i] - (double)b[i]);
    return sum / (double)n;
}

/* A separate head is used where there is one; so are the divisors of rope's frequencies. */
START_TEST(optional_tensors_are_used)
{
    static const struct tiny_config configs[] = {{.seed = 1, .has_own_head = true},
                                                 {.seed = 1, .has_rope_freqs = true}};
    int32_t ids[PROMPT];
    struct rig r;

    make_prompt(ids, 5);
    rig_open(&r, &plain);
    run_prompt(&r, ids, some_pages, PROMPT, known);
    rig_close(&r);
    for (size_t i = 0; i < N_OF(configs); i++) {
        rig_open(&r, &configs[i]);
        run_prompt(&r, ids, some_pages, PROMPT, is);
        ck_assert_double_gt(distance(is, known, N_OF(is)), 1e-3);
        /* position 0 is not rotated, whatever the frequencies */
        if (configs[i].has_rope_freqs)
            ck_assert_mem_eq(is, known, TINY_VOCAB * sizeof(*is));
        rig_close(&r);
    }
}
END_TEST

/* Weights of every format run, and the logits are finite and differ from token to token. */
START_TEST(every_format_runs)
{
    static const enum dtype types[] = {DTYPE_F32,  DTYPE_F16,    DTYPE_BF16,   DTYPE_Q4_0,
                                       DTYPE_Q4_1, DTYPE_Q5_0,   DTYPE_Q5_1,   DTYPE_Q8_0,
                                       DTYPE_Q4_K, DTYPE_Q5_K,   DTYPE_Q6_K,   DTYPE_Q2_K,
                                       DTYPE_Q3_K, DTYPE_IQ4_NL, DTYPE_IQ4_XS, DTYPE_MXFP4};
    int32_t ids[PROMPT];

    make_prompt(ids, 5);
    for (size_t i = 0; i < N_OF(types); i++) {
        const struct tiny_config config = {.type = types[i], .seed = 2};
        double square = 0.0;
        struct rig r;

        rig_open(&r, &config);
        run_prompt(&r, ids, some_pages, PROMPT, is);
        for (size_t j = 0; j < N_OF(is); j++)
            square += (double)is[j] * (double)is[j];
        ck_assert_msg(square / N_OF(is) > 0.1 && square / N_OF(is) < 10.0, "%s: mean square %g",
                      dtype_name(types[i]), square / N_OF(is));
        rig_close(&r);
    }
}
END_TEST

SUITE_MAIN("compute/transformer", shape_is_read, weights_are_shared, wrong_shapes_are_refused,
           harmless_keys_change_nothing, broken_weights_are_refused, files_may_change_under_a_model,
           optional_keys_have_defaults, chunks_do_not_matter, neighbours_do_not_matter,
           copies_come_first, micro_batches_do_not_matter, late_micro_batches_wait,
           optional_tensors_are_used, every_format_runs)
