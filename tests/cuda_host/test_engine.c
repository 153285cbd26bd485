/* The engine on the CUDA backend, whose kernels run on fibres. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compute/backends.h"
#include "compute/cuda/module.h"
#include "compute/cuda/parts.h"
#include "compute/kv/pages.h"
#include "compute/model/transformer.h"
#include "tests/cuda_host/control.h"
#include "tests/cuda_host/fibres.h"
#include "tests/support/tiny_model.h"
#include "tests/unit/base/suite.h"

extern const struct cuda_module parley_cuda_module;

enum {
    N_SEQUENCES = 3,
    MAX_TOKENS = 64,
    PAGES_EACH = 7,
    N_TOKENS = 64,    /* of each sequence */
    N_IN_ORDERS = 24, /* where each kernel runs in many orders */
};

/* A model on one backend, and the pages of its sequences. */
struct side {
    struct gguf *gguf;
    struct backend *backend;
    struct transformer *model;
    float logits[N_SEQUENCES][TINY_VOCAB];
};

static int32_t page_tables[N_SEQUENCES][PAGES_EACH];

static enum status side_open(struct side *s, const struct tiny_model *file,
                             const struct backend_type *type, enum kv_type kv_type,
                             struct error *err)
{
    const struct backend_config config = {.n_threads = 1};
    const struct transformer_config transformer_config = {.max_tokens = MAX_TOKENS,
                                                          .max_logits = N_SEQUENCES,
                                                          .n_kv_pages = N_SEQUENCES * PAGES_EACH,
                                                          .kv_type = kv_type};
    enum status rc;

    memset(s, 0, sizeof(*s));
    if ((rc = gguf_open_bytes(&s->gguf, file->bytes, file->size_bytes, "tiny", err)) != STATUS_OK ||
        (rc = backend_open_type(&s->backend, type, &config, err)) != STATUS_OK)
        return rc;
    return transformer_open(&s->model, s->backend, s->gguf, &transformer_config, err);
}

static void side_close(struct side *s)
{
    transformer_close(s->model);
    backend_close(s->backend);
    gguf_close(s->gguf);
}

static const struct backend_type *type_called(const char *name)
{
    for (size_t i = 0; backend_type_at(i) != NULL; i++)
        if (strcmp(backend_type_at(i)->name, name) == 0)
            return backend_type_at(i);
    return NULL;
}

/* Runs tokens pos … pos + n_each - 1 of each sequence, with logits of the last one. */
static enum status step(struct side *s, int32_t ids[N_SEQUENCES][N_TOKENS], const size_t *pos,
                        const size_t *n_each, struct error *err)
{
    struct transformer_row rows[N_SEQUENCES];
    size_t n_rows = 0;

    for (size_t i = 0; i < N_SEQUENCES; i++)
        if (n_each[i] > 0)
            rows[n_rows++] = (struct transformer_row){.ids = ids[i] + pos[i],
                                                      .n_tokens = n_each[i],
                                                      .pos = pos[i],
                                                      .pages = page_tables[i],
                                                      .n_logits = 1,
                                                      .logits = s->logits[i]};
    return transformer_forward(s->model, rows, n_rows, NULL, 0, err);
}

static void lay_out_pages(void)
{
    for (size_t i = 0; i < N_SEQUENCES; i++) /* not in order, and not together */
        for (size_t j = 0; j < PAGES_EACH; j++)
            page_tables[i][j] = (int32_t)((PAGES_EACH - 1 - j) * N_SEQUENCES + i);
}

/* The difference in units of the root mean square. */
static double distance(const float *a, const float *b, size_t n)
{
    double most = 0.0, squares = 0.0;

    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)a[i] - (double)b[i]);

        most = d > most || isnan(d) ? d : most;
        squares += (double)b[i] * (double)b[i];
    }
    return most / sqrt(squares / (double)n);
}

/* Whether a weight is held as floats: so are types that have no kernels. */
static bool is_held_as_floats(enum dtype type)
{
    static const enum dtype types[] = {DTYPE_F32,  DTYPE_F16,    DTYPE_BF16,   DTYPE_Q2_K,
                                       DTYPE_Q3_K, DTYPE_IQ4_NL, DTYPE_IQ4_XS, DTYPE_MXFP4};
    bool is_one = false;

    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        is_one = is_one || types[i] == type;
    return is_one;
}

/* Three sequences, in steps that mix prefill chunks and single tokens, and
 * sometimes omit a sequence. Quantised weights give the bits of cpu; floats are near ref, as
 * attention rounds. */
static void run_mixed(enum dtype type, enum kv_type kv_type)
{
    static const size_t chunks[] = {17, 1, 5, 1, 1, 16, 3, 1, 0, 2};
    const struct tiny_config config = {.type = type, .seed = 3, .has_own_head = true};
    const bool is_float = is_held_as_floats(type);
    const size_t n_tokens = getenv("CUDA_HOST_ORDERS") != NULL ? N_IN_ORDERS : N_TOKENS;
    int32_t ids[N_SEQUENCES][N_TOKENS];
    size_t pos[N_SEQUENCES] = {0}, n_done = 0;
    struct side cuda, other;
    struct tiny_model file;
    struct error err;

    lay_out_pages();
    for (size_t i = 0; i < N_SEQUENCES; i++)
        for (size_t t = 0; t < N_TOKENS; t++)
            ids[i][t] = (int32_t)((t * 31 + i * 97 + 7) % TINY_VOCAB);
    tiny_model_init(&file, &config);
    ck_assert_msg(side_open(&cuda, &file, parley_cuda_module.type, kv_type, &err) == STATUS_OK,
                  "%s", err.text);
    ck_assert_int_eq(side_open(&other, &file, type_called(is_float ? "ref" : "cpu"), kv_type, &err),
                     STATUS_OK);
    for (size_t round = 0; n_done < N_SEQUENCES; round++) {
        size_t n[N_SEQUENCES];

        for (size_t i = 0; i < N_SEQUENCES; i++) {
            n[i] = chunks[(round + 3 * i) % (sizeof(chunks) / sizeof(chunks[0]))];
            n[i] = n[i] < n_tokens - pos[i] ? n[i] : n_tokens - pos[i];
        }
        if (n[0] + n[1] + n[2] == 0)
            continue;
        ck_assert_msg(step(&cuda, ids, pos, n, &err) == STATUS_OK, "%s", err.text);
        ck_assert_int_eq(step(&other, ids, pos, n, &err), STATUS_OK);
        for (size_t i = 0; i < N_SEQUENCES; i++) {
            if (n[i] == 0)
                continue;
            pos[i] += n[i];
            n_done += pos[i] == n_tokens;
            if (is_float)
                ck_assert_double_le(distance(cuda.logits[i], other.logits[i], TINY_VOCAB), 1e-2);
            else
                ck_assert_mem_eq(cuda.logits[i], other.logits[i], sizeof(cuda.logits[i]));
        }
    }
    side_close(&cuda);
    side_close(&other);
    tiny_model_deinit(&file);
    ck_assert_uint_eq(cuda_host_bytes_taken(), 0);
    ck_assert_uint_eq(cuda_host_n_handles(), 0);
}

START_TEST(mixed_batches_equal_the_cpu)
{
    static const enum dtype types[] = {DTYPE_Q4_0, DTYPE_Q4_1, DTYPE_Q5_0, DTYPE_Q5_1,
                                       DTYPE_Q8_0, DTYPE_Q4_K, DTYPE_Q5_K, DTYPE_Q6_K,
                                       DTYPE_F16,  DTYPE_BF16, DTYPE_F32};

    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        run_mixed(types[i], KV_F16);
    run_mixed(DTYPE_Q4_1, KV_F32);
    run_mixed(DTYPE_Q4_1, KV_Q8);
}
END_TEST

/* So do weights of types that have no kernels, which are decoded when they are uploaded. */
START_TEST(types_without_kernels_are_decoded)
{
    static const enum dtype types[] = {DTYPE_Q2_K, DTYPE_Q3_K, DTYPE_IQ4_NL, DTYPE_IQ4_XS,
                                       DTYPE_MXFP4};

    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        run_mixed(types[i], KV_F16);
}
END_TEST

/* A context of more than one span of positions: a prompt in chunks, then single tokens, alone on
 * the device. */
static void run_long(bool has_partials)
{
    enum { N_PAGES = N_SEQUENCES * PAGES_EACH, LENGTH = N_PAGES * 16 };
    const struct tiny_config config = {.type = DTYPE_Q4_1, .seed = 5, .has_own_head = true};
    int32_t ids[LENGTH], pages[N_PAGES];
    struct side cuda, other;
    struct tiny_model file;
    struct error err;
    size_t n;

    for (int32_t i = 0; i < LENGTH; i++)
        ids[i] = (i * 31 + 7) % TINY_VOCAB;
    for (int32_t i = 0; i < N_PAGES; i++)
        pages[i] = N_PAGES - 1 - i;
    tiny_model_init(&file, &config);
    ck_assert_msg(side_open(&cuda, &file, parley_cuda_module.type, KV_F16, &err) == STATUS_OK, "%s",
                  err.text);
    ck_assert_int_eq(side_open(&other, &file, type_called("cpu"), KV_F16, &err), STATUS_OK);
    if (!has_partials) {
        struct cuda *c = to_cuda(cuda.backend);

        cuda_give_back(c, c->partials.at);
        c->partials = (struct cuda_scratch){0};
    }
    for (size_t pos = 0; pos < LENGTH; pos += n) {
        struct side *const sides[] = {&cuda, &other};

        n = pos < 256 ? MAX_TOKENS : pos == 256 ? 21 : pos < 280 ? 1 : LENGTH - pos;
        for (size_t i = 0; i < 2; i++) {
            struct transformer_row row = {.ids = ids + pos,
                                          .n_tokens = n,
                                          .pos = pos,
                                          .pages = pages,
                                          .n_logits = 1,
                                          .logits = sides[i]->logits[0]};

            ck_assert_msg(transformer_forward(sides[i]->model, &row, 1, NULL, 0, &err) == STATUS_OK,
                          "%s", err.text);
        }
        ck_assert_mem_eq(cuda.logits[0], other.logits[0], sizeof(cuda.logits[0]));
    }
    side_close(&cuda);
    side_close(&other);
    tiny_model_deinit(&file);
}

/* Several blocks share a token's positions. */
START_TEST(long_contexts_equal_the_cpu)
{
    run_long(true);
}
END_TEST

/* Where there is no room for what they hand to one another, a block has all of them. */
START_TEST(blocks_share_where_there_is_room)
{
    run_long(false);
}
END_TEST

/* The second step of a kind is recorded, and those after it are replayed as one launch, also with
 * other numbers of tokens in the same bucket; the logits are those of unrecorded steps. */
START_TEST(steps_become_graphs)
{
    const struct tiny_config config = {.type = DTYPE_Q4_1, .seed = 3};
    int32_t ids[N_SEQUENCES][N_TOKENS] = {{0}};
    size_t pos[N_SEQUENCES] = {0}, seven[] = {7, 0, 0}, eight[] = {8, 0, 0};
    float first[TINY_VOCAB];
    struct side s;
    struct tiny_model file;
    struct error err;
    uint64_t n_graphs;

    lay_out_pages();
    for (int32_t t = 0; t < N_TOKENS; t++)
        ids[0][t] = t + 3;
    tiny_model_init(&file, &config);
    ck_assert_int_eq(side_open(&s, &file, parley_cuda_module.type, KV_F16, &err), STATUS_OK);
    n_graphs = cuda_host_n_graphs();
    ck_assert_int_eq(step(&s, ids, pos, eight, &err), STATUS_OK);
    memcpy(first, s.logits[0], sizeof(first));
    ck_assert_uint_eq(cuda_host_n_graphs(), n_graphs);
    for (int again = 1; again <= 3; again++) {
        memset(s.logits, 0, sizeof(s.logits));
        ck_assert_int_eq(step(&s, ids, pos, again == 2 ? seven : eight, &err), STATUS_OK);
        ck_assert_uint_eq(cuda_host_n_graphs(), n_graphs + (uint64_t)again);
        if (again != 2)
            ck_assert_mem_eq(s.logits[0], first, sizeof(first));
    }
    side_close(&s);
    tiny_model_deinit(&file);
}
END_TEST

/* A step's inputs are uploaded in one copy; its logits are downloaded in one. Rope's table is there
 * since the model was opened. */
START_TEST(a_step_copies_once_each_way)
{
    const struct tiny_config config = {.type = DTYPE_Q4_1, .seed = 3};
    int32_t ids[N_SEQUENCES][N_TOKENS] = {{0}};
    size_t pos[N_SEQUENCES] = {0}, n[] = {4, 1, 9};
    struct side s;
    struct tiny_model file;
    struct error err;
    uint64_t n_copies;

    lay_out_pages();
    tiny_model_init(&file, &config);
    ck_assert_int_eq(side_open(&s, &file, parley_cuda_module.type, KV_F16, &err), STATUS_OK);
    n_copies = cuda_host_n_copies();
    for (size_t i = 1; i <= 2; i++) {
        ck_assert_int_eq(step(&s, ids, pos, n, &err), STATUS_OK);
        ck_assert_uint_eq(cuda_host_n_copies(), n_copies + 2 * i);
    }
    side_close(&s);
    tiny_model_deinit(&file);
}
END_TEST

/* Lists that run one behind another, none waited for, have each its own inputs: a download runs the
 * list before it, and the inputs of the next are copied beside it, on a stream of their own. */
START_TEST(lists_in_flight_have_their_inputs)
{
    enum { N_LISTS = 5, N = 16 };
    const struct backend_config config = {.n_threads = 1};
    float sent[N_LISTS][N], got[N_LISTS][N] = {{0}};
    struct backend *b = NULL;
    struct buffer *m;
    struct error err;

    ck_assert_int_eq(backend_open_type(&b, parley_cuda_module.type, &config, &err), STATUS_OK);
    ck_assert_ptr_nonnull(m = b->type->buffer_open(b, sizeof(sent[0])));
    for (size_t i = 0; i < N_LISTS; i++) {
        for (size_t j = 0; j < N; j++)
            sent[i][j] = (float)(i * N + j + 1);
        b->type->upload(b, m, sent[i], sizeof(sent[i]));
        b->type->download(b, got[i], m, sizeof(got[i]));
    }
    ck_assert_int_eq(b->type->sync(b, &err), STATUS_OK);
    ck_assert_mem_eq(got, sent, sizeof(sent));
    b->type->buffer_close(b, m);
    backend_close(b);
}
END_TEST

/* Opens a model, takes steps, and closes all; *ret_opened: steps were taken. */
static enum status live(const struct tiny_model *file, bool *ret_opened, struct error *err)
{
    int32_t ids[N_SEQUENCES][N_TOKENS] = {{0}};
    size_t pos[N_SEQUENCES] = {0}, n[] = {2, 1, 0};
    const struct backend_config config = {.n_threads = 1};
    struct side s;
    enum status rc = side_open(&s, file, parley_cuda_module.type, KV_F16, err);

    *ret_opened = rc == STATUS_OK;
    for (int i = 0; i < 3 && rc == STATUS_OK; i++)
        rc = step(&s, ids, pos, n, err);
    if (rc != STATUS_OK && s.model != NULL) {
        /* all of it is closed, and the device is reset; a second failure may hit this, too */
        struct error second;

        if (rc == STATUS_EXHAUSTED) {
            ck_assert_msg(step(&s, ids, pos, n, &second) == STATUS_OK, "%s", second.text);
        } else {
            ck_assert_int_eq(rc, STATUS_INTERNAL);
            ck_assert_int_eq(step(&s, ids, pos, n, &second), STATUS_INTERNAL);
            transformer_close(s.model);
            s.model = NULL;
            ck_assert_msg(backend_restart(s.backend, &config, &second) == STATUS_OK, "%s",
                          second.text);
        }
    }
    side_close(&s);
    return rc;
}

/* Each call of the runtime fails in turn, for want of memory or because the device breaks: the
 * status says which, nothing leaks, and the next user finds the device working. */
START_TEST(calls_fail)
{
    static const cudaError_t codes[] = {cudaErrorMemoryAllocation, cudaErrorIllegalAddress};
    const struct tiny_config config = {.type = DTYPE_Q4_1, .seed = 3};
    struct tiny_model file;
    struct error err;
    bool opened;

    lay_out_pages();
    tiny_model_init(&file, &config);
    for (size_t i = 0; i < 2; i++) {
        uint64_t first = cuda_host_n_calls(), n;

        ck_assert_int_eq(live(&file, &opened, &err), STATUS_OK);
        n = cuda_host_n_calls() - first;
        ck_assert_uint_ge(n, 100);
        for (uint64_t k = 0; k < n; k += k < 30 ? 2 : 29) {
            enum status rc;

            cuda_host_fail((long)k, codes[i]);
            rc = live(&file, &opened, &err);
            cuda_host_fail(-1, cudaSuccess);
            ck_assert_msg(
                rc == STATUS_OK || rc == (i == 0 ? STATUS_EXHAUSTED : STATUS_INTERNAL) ||
                    (!opened && rc == STATUS_EXHAUSTED) || /* buffer_open only returns NULL */
                    (k == 0 && rc == STATUS_PRECONDITION), /* is there a device? */
                "call %d: %s", (int)k, err.text);
            ck_assert_msg(cuda_host_bytes_taken() == 0 && cuda_host_n_handles() == 0,
                          "call %d leaves %zu bytes, %zu handles", (int)k, cuda_host_bytes_taken(),
                          cuda_host_n_handles());
        }
        ck_assert_int_eq(live(&file, &opened, &err), STATUS_OK);
    }
    tiny_model_deinit(&file);
}
END_TEST

/* Two models on one device: one breaks it and reopens it; the other gets the failure and reopens
 * it, too, without breaking the first. */
START_TEST(one_resets_for_all)
{
    const struct tiny_config config = {.type = DTYPE_Q4_1, .seed = 3};
    const struct backend_config backend_config = {.n_threads = 1};
    int32_t ids[N_SEQUENCES][N_TOKENS] = {{0}};
    size_t pos[N_SEQUENCES] = {0}, n[] = {2, 1, 0};
    struct side a, b, c;
    struct tiny_model file;
    struct error err;

    lay_out_pages();
    tiny_model_init(&file, &config);
    ck_assert_msg(side_open(&a, &file, parley_cuda_module.type, KV_F16, &err) == STATUS_OK, "%s",
                  err.text);
    ck_assert_int_eq(side_open(&b, &file, parley_cuda_module.type, KV_F16, &err), STATUS_OK);
    ck_assert_int_eq(step(&a, ids, pos, n, &err), STATUS_OK);
    cuda_host_fail(3, cudaErrorIllegalAddress);
    ck_assert_int_eq(step(&a, ids, pos, n, &err), STATUS_INTERNAL);
    transformer_close(a.model);
    a.model = NULL;
    ck_assert_int_eq(backend_restart(a.backend, &backend_config, &err), STATUS_OK);
    ck_assert_int_eq(side_open(&c, &file, parley_cuda_module.type, KV_F16, &err), STATUS_OK);
    ck_assert_int_eq(step(&b, ids, pos, n, &err), STATUS_INTERNAL);
    side_close(&b);
    ck_assert_msg(step(&c, ids, pos, n, &err) == STATUS_OK, "%s", err.text);
    side_close(&a);
    side_close(&c);
    tiny_model_deinit(&file);
    ck_assert_uint_eq(cuda_host_bytes_taken(), 0);
    ck_assert_uint_eq(cuda_host_n_handles(), 0);
}
END_TEST

SUITE_MAIN("cuda_host/engine", mixed_batches_equal_the_cpu, types_without_kernels_are_decoded,
           long_contexts_equal_the_cpu, blocks_share_where_there_is_room, steps_become_graphs,
           a_step_copies_once_each_way, lists_in_flight_have_their_inputs, calls_fail,
           one_resets_for_all)
