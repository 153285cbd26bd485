/* When the conversations of an open loop begin: a schedule that does not depend on the server.
 * Times follow from the seed alone, so two cursors over one schedule need no list of times. */
#ifndef CLIENT_CLI_BENCH_ARRIVALS_H
#define CLIENT_CLI_BENCH_ARRIVALS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arrivals_plan {
    double rate;      /* conversations a second at the start; 0: no schedule */
    double last_rate; /* after ramp_s, rising or falling in a straight line; then it stays */
    double ramp_s;    /* 0: no ramp */
    uint32_t burst;   /* so many begin at once; at least 1. The rate stays */
    bool is_constant; /* equal gaps; else a Poisson process */
    uint64_t seed;
    uint32_t stream;       /* another number, another draw */
    const double *times_s; /* [n_times], never falling: these instead, over and over; NULL: none */
    uint32_t n_times;
};

struct arrivals {
    const struct arrivals_plan *plan;
    uint32_t n;       /* arrivals taken */
    double at_s;      /* of the next one, from the start */
    double n_planned; /* integral of the rate until then */
};

/* Whether there is a schedule at all. */
bool arrivals_are_given(const struct arrivals_plan *plan);
/* The plan must live as long. */
void arrivals_init(struct arrivals *a, const struct arrivals_plan *plan);
/* The time of the next arrival, in seconds from the start; then steps on. */
double arrivals_take(struct arrivals *a);

#endif
