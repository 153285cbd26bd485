/* A language model on a device that has little memory. */
#include <string.h>

#include "compute/cuda/module.h"
#include "tests/cuda_host/control.h"
#include "tests/support/lm_driver.h"
#include "tests/unit/base/suite.h"

extern const struct cuda_module parley_cuda_module;

enum { MAX_BYTES = 1 << 30 };

static const struct tiny_config tiny = {.type = DTYPE_Q4_1, .seed = 3};

/* kv_bytes 0: as many pages as fit in half of the memory that the weights leave. */
static enum status try_open(struct agent **out, size_t memory_bytes, size_t kv_bytes,
                            struct error *err)
{
    struct agent_config config = drive_config("cuda", 2);

    config.backend_type = parley_cuda_module.type;
    config.options.kv_bytes = kv_bytes;
    config.options.kv_host_bytes = 0;
    config.max_step_tokens = 16384; /* a step's memory is as large as the pages */
    cuda_host_set_memory(memory_bytes);
    return drive_open(out, &tiny, &config, err);
}

/* By default the pages take half of the memory, or less where a step's own memory would not fit.
 * Without room for a small context, or for the requested pages, the error says how to set
 * --kv-bytes. */
START_TEST(pages_make_room)
{
    size_t n_refused = 0, n_fewer = 0, n_opened = 0, last = 0;
    struct agent *a = NULL;
    struct error err;

    for (size_t bytes = 1 << 20; bytes < MAX_BYTES && n_opened < 12; bytes += bytes / 8) {
        struct agent_info info;
        enum status rc = try_open(&a, bytes, 0, &err);

        if (rc != STATUS_OK) {
            ck_assert_uint_eq(n_opened, 0); /* it opened with less memory */
            ck_assert(rc == STATUS_EXHAUSTED || rc == STATUS_INVALID);
            if (strstr(err.text, "--kv-bytes") != NULL)
                n_refused++;
            continue;
        }
        agent_describe(a, &info);
        ck_assert_uint_ge(info.cache.pages * KV_PAGE_TOKENS, 2048);
        n_fewer += info.cache.pages * info.cache.page_bytes < bytes / 3;
        last = info.cache.pages * info.cache.page_bytes;
        n_opened++;
        agent_unref(a);
        ck_assert_uint_eq(cuda_host_bytes_taken(), 0);
    }
    ck_assert_uint_gt(n_refused, 0);
    ck_assert_uint_gt(n_fewer, 0);
    ck_assert_uint_gt(n_opened, n_fewer);
    ck_assert_int_eq(try_open(&a, last, last, &err), STATUS_EXHAUSTED);
    ck_assert_ptr_nonnull(strstr(err.text, "--kv-bytes"));
    ck_assert_uint_eq(cuda_host_bytes_taken(), 0);
}
END_TEST

SUITE_MAIN("cuda_host/memory", pages_make_room)
