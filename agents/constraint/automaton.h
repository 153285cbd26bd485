/* Deterministic finite automata, over characters or over bytes. Memory is the caller's arena's. */
#ifndef AGENTS_CONSTRAINT_AUTOMATON_H
#define AGENTS_CONSTRAINT_AUTOMATON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/status.h"

enum {
    AUTOMATON_MAX_STATES = 4096,
    AUTOMATON_WORK = 1024,    /* looks that an automaton costs, however small */
    AUTOMATON_MAX_KEY = 2048, /* bytes of a machine's state */
};

#define AUTOMATON_DEAD UINT32_MAX

struct automaton_edge {
    uint32_t first, last; /* the characters, or bytes, that lead to target */
    uint32_t target;
};

struct automaton_state {
    struct automaton_edge *edges; /* [n_edges], ascending */
    uint32_t n_edges;
    bool is_end;
};

struct automaton {
    struct automaton_state *states; /* [n_states]; the first is where it starts */
    size_t n_states;                /* 0: it matches nothing */
};

/* What an automaton is made of: states that are any bytes of one size, and how one follows from
 * another. Equal bytes are the same state. */
struct machine {
    const uint32_t *symbols; /* [n_symbols]: where each run of characters begins that it does not
                                tell apart; the last ends with last */
    const uint32_t *classes; /* [n_symbols]: runs of one class lead to the same states; NULL: each
                                run is a class of its own */
    size_t n_symbols;
    uint32_t last;
    size_t key_bytes; /* of a state, at most AUTOMATON_MAX_KEY; its start is given zeroed */
    size_t step_work; /* what a step costs, in looks at a part of a state */
    size_t *work;     /* how much may be done; less afterwards */
    void (*start)(const void *self, void *ret_key);
    bool (*step)(const void *self, const void *key, uint32_t code,
                 void *ret_key); /* false: nothing follows; ret_key is given zeroed */
    bool (*is_end)(const void *self, const void *key);
    const void *self;
};

/* An automaton that does what the machine does: without states from which no end is reached and, if
 * they are found soon, without two that go on alike. UNIMPLEMENTED says which bound it is beyond.
 */
enum status automaton_of_machine(struct automaton *out, const struct machine *m, size_t max_states,
                                 struct arena *arena, struct error *err) MUST_CHECK;
/* Makes it so. Its states come in the order of a search breadth first. */
enum status automaton_minimize(struct automaton *a, struct arena *arena,
                               struct error *err) MUST_CHECK;

uint32_t automaton_step(const struct automaton *a, uint32_t state, uint32_t code);
bool automaton_matches(const struct automaton *a, const char *text, size_t len); /* UTF-8 */
/* The fewest and most characters that a text has that it matches; SIZE_MAX: any number. It matches
 * one. */
enum status automaton_lengths(const struct automaton *a, size_t *ret_least, size_t *ret_most,
                              struct error *err) MUST_CHECK;

/* Appends an automaton over bytes as grammars have it: see agents/lm/grammar/automaton_text.h. */
enum status automaton_put(struct buf *b, const struct automaton *a) MUST_CHECK;

#endif
