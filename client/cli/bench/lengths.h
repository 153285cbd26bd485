/* How many tokens a text has: a number, or a draw from a distribution. */
#ifndef CLIENT_CLI_BENCH_LENGTHS_H
#define CLIENT_CLI_BENCH_LENGTHS_H

#include <stdint.h>

#include "base/status.h"

enum lengths_kind {
    LENGTHS_FIXED,       /* a */
    LENGTHS_UNIFORM,     /* from a to b, both included */
    LENGTHS_NORMAL,      /* mean a, standard deviation b */
    LENGTHS_LOGNORMAL,   /* median a, standard deviation b of the logarithm */
    LENGTHS_EXPONENTIAL, /* mean a */
};

enum { LENGTHS_MAX = 1 << 24 };

struct token_lengths {
    enum lengths_kind kind;
    double a, b;
};

/* "64", "32:512", "normal:200,50", "lognormal:200,0.8", "exponential:200". STATUS_INVALID. */
enum status lengths_parse(struct token_lengths *out, const char *text,
                          struct error *err) MUST_CHECK;
/* From 1 to LENGTHS_MAX, rounded; the same for the same arguments. what: another number, another
 * draw. */
uint32_t lengths_draw(const struct token_lengths *l, uint64_t seed, uint32_t conversation,
                      uint32_t turn, uint32_t what);

#endif
