/* The shapes of conversations that the bench knows by name: how many turns a conversation has, and
 * how many tokens each turn brings and gets. */
#ifndef CLIENT_CLI_BENCH_SHAPE_H
#define CLIENT_CLI_BENCH_SHAPE_H

#include "base/status.h"
#include "client/cli/bench/trace.h"

enum { SHAPE_AGENT_TURNS = 43, SHAPE_AGENT_TOKENS = 142000 };

/* Makes a trace of one conversation, which each conversation of a load repeats with words of its
 * own. name is "agent", a session of a coding agent: a long first prompt, then tools' results of
 * very unequal lengths and short replies, SHAPE_AGENT_TOKENS in SHAPE_AGENT_TURNS turns. "agent:X"
 * has X times the tokens, and one token at least where there is one. The caller calls trace_deinit,
 * also after a failure. STATUS_INVALID: the name or X is none. */
enum status shape_make(struct trace *out, const char *name, struct error *err) MUST_CHECK;

#endif
