/* A bound that a load must keep to, as "p99_ttft_ms<200": a metric's name, one of < <= > >=, and a
 * number. */
#ifndef CLIENT_CLI_BENCH_REQUIRE_H
#define CLIENT_CLI_BENCH_REQUIRE_H

#include <stdbool.h>

#include "base/status.h"
#include "client/cli/bench/figures.h"

struct requirement {
    char name[48];
    bool is_ceiling, may_be_equal;
    double bound;
};

/* STATUS_INVALID: the text is no such bound, or there is no metric of that name. */
enum status requirement_parse(struct requirement *out, const char *text,
                              struct error *err) MUST_CHECK;
/* *ret_is: the metric. What was not measured does not hold. */
bool requirement_holds(const struct requirement *r, const struct figures *f, double *ret_is);

#endif
