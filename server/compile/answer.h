/* The answer of a compiling process, read as it comes. The bytes may be anything, because the
 * process that wrote them has read somebody's constraint. */
#ifndef SERVER_COMPILE_ANSWER_H
#define SERVER_COMPILE_ANSWER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "server/compile/protocol.h"

struct answer {
    struct compile_answer_head head;
    size_t n_head;  /* bytes of the head that have come */
    char *bytes;    /* [head.n_bytes] and a NUL; NULL until the head is there */
    size_t n_bytes; /* bytes that have come */
};

void answer_init(struct answer *a);
void answer_deinit(struct answer *a);

/* Takes the next n bytes. DATA_LOSS for bytes that are no answer, and for bytes behind the answer's
 * end; EXHAUSTED without memory. */
enum status answer_take(struct answer *a, const char *bytes, size_t n,
                        struct error *err) MUST_CHECK;
bool answer_is_complete(const struct answer *a);

#endif
