/* Regular expressions as JSON schemas have them (ECMAScript's, with Unicode's characters): parsed,
 * and made a deterministic automaton. */
#ifndef AGENTS_CONSTRAINT_REGEX_H
#define AGENTS_CONSTRAINT_REGEX_H

#include "agents/constraint/automaton.h"
#include "agents/constraint/char_set.h"

enum { REGEX_MAX_AHEAD = 4 };

/* An automaton of the texts that the expression is found in, or is not found in. */
struct regex_part {
    struct automaton automaton;
    bool is_excluded;
};

/* What a text must satisfy for the expression to be found in it: the first part, and one for each
 * look-ahead at its beginning. */
struct regex {
    struct regex_part parts[1 + REGEX_MAX_AHEAD]; /* [n_parts] */
    size_t n_parts;
};

/* UNIMPLEMENTED names what has no automaton: look-around elsewhere, back references, unknown
 * properties of characters, too many repetitions. work: as a machine's. */
enum status regex_compile(struct regex *out, const char *pattern, size_t len, size_t *work,
                          struct arena *arena, struct error *err) MUST_CHECK;
/* The same of fewer texts, with fewer states: the expression matches them from their beginning to
 * their end, and what it repeats m to n times at most 32 times more than m. */
enum status regex_compile_whole(struct regex *out, const char *pattern, size_t len, size_t *work,
                                struct arena *arena, struct error *err) MUST_CHECK;

/* If the expression is one set of characters, repeated, between ^ and $, and ret_set has room for
 * it: that, and true. *ret_most is SIZE_MAX where there is no bound. work: as a machine's. */
bool regex_is_repeated_set(const char *pattern, size_t len, size_t *work, struct char_set *ret_set,
                           size_t *ret_least, size_t *ret_most);

#endif
