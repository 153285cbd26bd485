#include "agents/lm/grammar/vocab_file.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"

static char *vocab_file_fill(char *at, const void *from, size_t size_bytes)
{
    if (size_bytes > 0)
        memcpy(at, from, size_bytes);
    return at + size_bytes;
}

static enum status vocab_file_failed(struct error *err)
{
    return error_because(err, STATUS_EXHAUSTED, REASON_OUT_OF_MEMORY, NULL,
                         "cannot hand the vocabulary to the program that compiles constraints: %s",
                         strerror(errno));
}

enum status vocab_file_make(int *ret_fd, const char *const *texts, const size_t *lens, size_t n,
                            const int32_t *ends, size_t n_ends, struct error *err)
{
    struct vocab_file_head head = {.n = n, .n_ends = n_ends};
    const int fd = fault_now() ? -1 : memfd_create("parley-vocabulary", MFD_CLOEXEC);
    size_t size_bytes = sizeof(head) + n_ends * sizeof(*ends) + n * sizeof(uint32_t);
    enum status rc = STATUS_OK;
    char *file, *at;

    for (size_t i = 0; i < n; i++)
        head.n_bytes += lens[i];
    size_bytes += head.n_bytes;
    if (fd < 0)
        return vocab_file_failed(err);
    if (ftruncate(fd, (off_t)size_bytes) != 0) {
        rc = vocab_file_failed(err);
        goto out;
    }
    file = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (file == MAP_FAILED) {
        rc = vocab_file_failed(err);
        goto out;
    }
    at = vocab_file_fill(file, &head, sizeof(head));
    at = vocab_file_fill(at, ends, n_ends * sizeof(*ends));
    for (size_t i = 0; i < n; i++) {
        const uint32_t len = (uint32_t)lens[i];

        at = vocab_file_fill(at, &len, sizeof(len));
    }
    for (size_t i = 0; i < n; i++)
        at = vocab_file_fill(at, texts[i], lens[i]);
    (void)munmap(file, size_bytes); /* cannot fail for what was mapped */
    *ret_fd = fd;
out:
    if (rc != STATUS_OK)
        (void)close(fd); /* nothing was written to it */
    return rc;
}
