/* A vocabulary in memory that another process maps, for the one that compiles constraints: the
 * head, the ids of ends [n_ends], the bytes' lengths [n], and then the bytes of all tokens. The
 * program of server/compile includes this alone, without a library of ours. */
#ifndef AGENTS_LM_GRAMMAR_VOCAB_FILE_H
#define AGENTS_LM_GRAMMAR_VOCAB_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct vocab_file_head {
    uint64_t n, n_ends, n_bytes;
};

/* A descriptor, closed on exec; the caller closes it. texts [n], lens [n], ends [n_ends] as
 * grammar_module's. Any thread. */
enum status vocab_file_make(int *ret_fd, const char *const *texts, const size_t *lens, size_t n,
                            const int32_t *ends, size_t n_ends, struct error *err) MUST_CHECK;

#endif
