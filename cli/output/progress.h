/* Prints the progress of a long run on stderr: examples, examples a second, remaining time. A
 * terminal shows one line that is rewritten; any other stderr gets a line now and then. */
#ifndef CLI_OUTPUT_PROGRESS_H
#define CLI_OUTPUT_PROGRESS_H

#include <stdint.h>

#include "base/env.h"

struct run_progress {
    const char *what; /* "eval" */
    const struct env *env;
    uint64_t n_all; /* UINT64_MAX: not known */
    uint64_t start_us, next_us;
    uint32_t every_us;
};

/* every_s: the seconds between lines if stderr is no terminal; 0: there are no lines then. */
void run_progress_start(struct run_progress *p, const char *what, uint64_t n_all, uint32_t every_s,
                        const struct env *env);
/* Says that n_done examples are done. The function may be called often: it prints now and then. */
void run_progress_tell(struct run_progress *p, uint64_t n_done);
double run_progress_seconds(const struct run_progress *p);
void run_progress_end(struct run_progress *p);

#endif
