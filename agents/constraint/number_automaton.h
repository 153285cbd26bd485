/* What a schema asks of a number, as an automaton over its JSON text. A number is written plainly,
 * with at most 17 digits before the point and as many behind it, or as many as its bounds have; one
 * without bounds may have an exponent of two digits. */
#ifndef AGENTS_CONSTRAINT_NUMBER_AUTOMATON_H
#define AGENTS_CONSTRAINT_NUMBER_AUTOMATON_H

#include <jansson.h>

#include "agents/constraint/automaton.h"

enum { NUMBER_MAX_PLACES = 40 };
#define NUMBER_MAX_DIVISOR UINT64_C(1000000000000000000) /* ten of them fit into 64 bits */

/* A decimal: digits without leading zeros, of which the last n_places are behind the point. */
struct decimal {
    bool is_negative;
    char digits[2 * NUMBER_MAX_PLACES]; /* [n_digits], at least one before the point */
    size_t n_digits, n_places;
};

struct number_bound {
    bool is_set, is_exclusive;
    struct decimal value;
};

struct number_rules {
    bool is_integer, is_plain; /* plain: without an exponent */
    struct number_bound least, most;
    uint64_t divisor; /* at most NUMBER_MAX_DIVISOR: the number is a multiple of divisor /
                         10^divisor_places; 0: of any */
    size_t divisor_places;
};

/* False: it has more digits than a decimal holds. */
bool decimal_of_number(struct decimal *out, const json_t *number);
/* A bound beside the one that is there: the tighter one stays. */
void number_bound_tighten(struct number_bound *b, const struct decimal *value, bool is_exclusive,
                          bool is_upper);
/* Whether a number, whatever its digits, satisfies the rules. */
bool number_rules_allow(const struct number_rules *r, const struct decimal *d);
/* UNIMPLEMENTED where the automaton has too many states. No states: no number satisfies them. */
enum status number_to_json(struct automaton *out, const struct number_rules *r, size_t *work,
                           struct arena *arena, struct error *err) MUST_CHECK;

#endif
