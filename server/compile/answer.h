/* The answer of a compiling process, read as it comes. Its bytes may be anything: what wrote them
 * read somebody's constraint. */
#ifndef SERVER_COMPILE_ANSWER_H
#define SERVER_COMPILE_ANSWER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "server/compile/protocol.h"

struct answer {
    struct compile_answer_head head;
    size_t n_head; /* bytes of it that have come */
    char *bytes;   /* [n_bytes] and a NUL; NULL until the head is there */
    size_t n_bytes;
};

void answer_init(struct answer *a);
void answer_deinit(struct answer *a);

/* Takes the next bytes. DATA_LOSS for what no answer says, and for bytes behind its end; EXHAUSTED
 * without memory. */
enum status answer_take(struct answer *a, const char *bytes, size_t n,
                        struct error *err) MUST_CHECK;
bool answer_is_complete(const struct answer *a);

#endif
