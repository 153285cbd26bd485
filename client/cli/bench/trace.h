/* A trace: the conversations of a load as a file gives them, a JSON object a line or one array of
 * them, whose conversations without a text of a human are left out. Each has one of
 *
 *   {"timestamp": MS, "input_length": N, "output_length": N}     as the Mooncake traces
 *   {"prompt": TEXT, "output_length": N}                         one turn
 *   {"conversations": [{"from": "human", "value": TEXT}, …]}     ShareGPT's: a turn for each text
 *                                                                of a human
 *
 * timestamp and output_length may be missing; other members are ignored. */
#ifndef CLIENT_CLI_BENCH_TRACE_H
#define CLIENT_CLI_BENCH_TRACE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct trace_turn {
    char *text;                           /* NULL: words, as many as input_tokens says */
    uint32_t input_tokens, output_tokens; /* 0: as the load's options say */
};

struct trace_item {
    struct trace_turn *turns; /* [n_turns] */
    uint32_t n_turns;         /* at least 1 */
};

struct trace {
    struct trace_item *items; /* [n] */
    double *at_s;             /* [n], from the first one, never falling; NULL: without times */
    uint32_t n, max_turns;
};

/* The error names the file and the line, or the array's item. The caller calls trace_deinit, also
 * after a failure. */
enum status trace_read(struct trace *out, const char *path, struct error *err) MUST_CHECK;
void trace_deinit(struct trace *t);

#endif
