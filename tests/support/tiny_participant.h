/* A language model in worlds, on the tests' tiny model in a memory file. */
#ifndef TESTS_SUPPORT_TINY_PARTICIPANT_H
#define TESTS_SUPPORT_TINY_PARTICIPANT_H

#include <assert.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/support/tiny_model.h"
#include "worlds/participant/model.h"

struct tiny_file {
    int fd;
    char path[64];
};

static inline void tiny_file_open(struct tiny_file *f)
{
    static const struct tiny_config config = {.type = DTYPE_Q8_0, .seed = 7};
    struct tiny_model model;
    ssize_t written;

    f->fd = memfd_create("tiny.gguf", MFD_CLOEXEC);
    assert(f->fd >= 0);
    tiny_model_init(&model, &config);
    written = write(f->fd, model.bytes, model.size_bytes);
    assert(written == (ssize_t)model.size_bytes);
    tiny_model_deinit(&model);
    (void)snprintf(f->path, sizeof(f->path), "/proc/self/fd/%d", f->fd);
}

static inline void tiny_file_close(struct tiny_file *f)
{
    (void)close(f->fd); /* a memory file: nothing is lost */
}

/* Replies of at most six tokens, one thread, steps of 64 tokens. */
static inline struct model_participant_config tiny_participant(const struct tiny_file *f)
{
    struct model_participant_config c;

    model_config_init(&c);
    c.agent.path = f->path;
    c.agent.options.backend = "cpu";
    c.agent.options.n_threads = 1;
    c.agent.options.kv_type = KV_F32;
    c.agent.options.kv_bytes = 4 << 20;
    c.agent.max_step_rows = 8;
    c.agent.max_step_tokens = 64;
    c.sampling.max_tokens = 6;
    return c;
}

#endif
