/* The protocol between parleyd and the program parley-compile, over a pair of sockets: parleyd
 * sends a request and gets its answer, one at a time. Both programs are of one build and on one
 * machine. */
#ifndef SERVER_COMPILE_PROTOCOL_H
#define SERVER_COMPILE_PROTOCOL_H

#include <stdint.h>

enum {
    COMPILE_MAGIC = 0x31434750,
    COMPILE_SOCKET_FD = 0,        /* the program's descriptor of its socket */
    COMPILE_VOCAB_FD = 3,         /* the program's descriptor of a file of vocab_file_make */
    COMPILE_MAX_BYTES = 16 << 20, /* the most bytes of a compiled constraint */
    COMPILE_MAX_WHY = 160,        /* the most bytes of the text of a refusal */
};

/* A request. The n_bytes of the constraint's text follow. */
struct compile_request {
    uint32_t magic;
    uint32_t form; /* an enum constraint_form */
    uint32_t n_bytes;
    uint32_t budget_ms;  /* the most processor time; 0: no bound */
    uint32_t memory_mib; /* the most memory beyond what the program has before it compiles */
    uint32_t reserved;
};

enum compile_verdict {
    COMPILE_DONE,      /* the compiled constraint's bytes follow */
    COMPILE_INVALID,   /* a line follows that says why; such a line also follows those below */
    COMPILE_NO_MEMORY, /* the compiler took more than memory_mib */
    COMPILE_TOO_LARGE, /* the compiled constraint would have more than COMPILE_MAX_BYTES */
    N_COMPILE_VERDICTS,
};

struct compile_answer_head {
    uint32_t magic;
    uint32_t verdict;
    uint32_t n_bytes; /* how many bytes follow */
};

#endif
