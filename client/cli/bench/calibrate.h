/* Measures how a server counts tokens, so that prompts have exactly the wanted number: which
 * words are one token each, and how many tokens a conversation has beyond its words. */
#ifndef CLIENT_CLI_BENCH_CALIBRATE_H
#define CLIENT_CLI_BENCH_CALIBRATE_H

#include "client/cli/bench/prompts.h"
#include "client/cli/bench/target.h"

/* Drops the words of p that are not one token and fills in its overheads, that of later turns
 * only if has_more_turns; where the server counts no tokens, a word is one. timeout_s: of a turn, 0
 * for none. STATUS_CANCELLED after a Ctrl-C; STATUS_PRECONDITION when no word is left. */
enum status calibrate(struct prompts *p, struct target *t, bool has_more_turns, double timeout_s,
                      struct error *err) MUST_CHECK;

#endif
