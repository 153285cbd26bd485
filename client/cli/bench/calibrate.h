/* Finds out by asking how a server counts tokens, so that prompts have exactly as many as they are
 * to have: which words are one token each, and how many a conversation has beside them. */
#ifndef CLIENT_CLI_BENCH_CALIBRATE_H
#define CLIENT_CLI_BENCH_CALIBRATE_H

#include "client/cli/bench/prompts.h"
#include "client/cli/bench/target.h"

/* Drops words of p and fills its overheads, the later turns' only if has_more_turns. A Ctrl-C is
 * STATUS_CANCELLED; no word that is one token is STATUS_PRECONDITION. */
enum status calibrate(struct prompts *p, struct target *t, bool has_more_turns,
                      struct error *err) MUST_CHECK;

#endif
