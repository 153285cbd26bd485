/* What parleyd and the program parley-compile say to each other, over a pair of sockets: a request,
 * then its answer, one at a time. Both are of one build and one machine. */
#ifndef SERVER_COMPILE_PROTOCOL_H
#define SERVER_COMPILE_PROTOCOL_H

#include <stdint.h>

enum {
    COMPILE_MAGIC = 0x31434750,
    COMPILE_SOCKET_FD = 0,        /* of the program */
    COMPILE_VOCAB_FD = 3,         /* a file of vocab_file_make */
    COMPILE_MAX_BYTES = 16 << 20, /* of a compiled constraint */
    COMPILE_MAX_WHY = 160,        /* bytes of the text of a refusal */
};

/* The constraint's text [n_bytes] follows. */
struct compile_request {
    uint32_t magic;
    uint32_t form; /* an enum constraint_form */
    uint32_t n_bytes;
    uint32_t budget_ms;  /* of processor time; 0: any */
    uint32_t memory_mib; /* on top of what the program has before it compiles */
    uint32_t reserved;
};

enum compile_verdict {
    COMPILE_DONE,      /* the compiled constraint's bytes follow */
    COMPILE_INVALID,   /* the line that says why; so too below */
    COMPILE_NO_MEMORY, /* it took more than memory_mib */
    COMPILE_TOO_LARGE, /* it would have more than COMPILE_MAX_BYTES */
    N_COMPILE_VERDICTS,
};

struct compile_answer_head {
    uint32_t magic;
    uint32_t verdict;
    uint32_t n_bytes; /* that follow */
};

#endif
