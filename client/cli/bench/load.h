/* A load: conversations at a target, a number of them at once, each a series of turns; and what
 * they measured. */
#ifndef CLIENT_CLI_BENCH_LOAD_H
#define CLIENT_CLI_BENCH_LOAD_H

#include <stdint.h>

#include "base/status.h"
#include "client/cli/bench/arrivals.h"
#include "client/cli/bench/figures.h"
#include "client/cli/bench/lengths.h"
#include "client/cli/bench/prompts.h"
#include "client/cli/bench/target.h"
#include "client/cli/bench/trace.h"

struct load_plan {
    const char *server; /* HOST:PORT or unix:PATH, for its CPU time; not owned */
    uint32_t
        first; /* number of the first conversation; a conversation's texts depend on its number */
    uint32_t n_conversations;
    uint32_t n_turns;                                 /* of each */
    uint32_t concurrency;                             /* at most so many at once */
    struct token_lengths input_tokens, output_tokens; /* of a turn */
    const struct trace *trace; /* what conversation number first + i says, i modulo its length;
                                  NULL: words */
    /* rate 0: a conversation begins when another is over (closed loop); else at these times,
     * whatever the server does (open loop). The seed and the stream are the load's to fill in. */
    struct arrivals_plan arrivals;
    /* Shares, from 0 to 1, by the seed: of later turns, that are taken on a fork of their
     * conversation; of turns, that are cancelled at their first chunk, which ends the conversation;
     * of turns, whose reply must match json_schema, which is not NULL then. */
    double forks, cancels, constrained;
    const char *json_schema;
    double timeout_s; /* after which a turn fails with STATUS_DEADLINE; 0: never */
    double think_s;   /* between a reply and the next turn */
    /* 0: until all conversations are over; else no conversation begins after this time, and no turn
     * that follows without think time. */
    double duration_s;
    uint32_t n_background;    /* background conversations, which are not measured */
    uint32_t newcomer_tokens; /* of one more prompt, once all others generate; 0: none */
};

/* Runs it to its end. The figures are filled in also on failure: STATUS_CANCELLED after a Ctrl-C;
 * the error of a failed background conversation or newcomer, which spoils the figures. */
enum status load_run(struct figures *out, struct target *t, const struct prompts *prompts,
                     const struct load_plan *plan, struct error *err) MUST_CHECK;

#endif
