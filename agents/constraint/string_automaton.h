/* What a schema asks of a string, all of it together, as one automaton over the bytes of its JSON
 * text. Characters stand raw where JSON allows that, others by their shortest escape. */
#ifndef AGENTS_CONSTRAINT_STRING_AUTOMATON_H
#define AGENTS_CONSTRAINT_STRING_AUTOMATON_H

#include "agents/constraint/regex.h"

enum { STRING_MAX_PARTS = 24 };

struct string_rules {
    struct regex_part parts[STRING_MAX_PARTS]; /* [n_parts]; all are to be satisfied */
    size_t n_parts;
    size_t least, most; /* characters; SIZE_MAX: any number */
    size_t *work;       /* as a machine's */
    struct arena *arena;
};

/* No rules; the arena and work are the caller's. */
void string_rules_init(struct string_rules *r, size_t *work, struct arena *arena);
/* UNIMPLEMENTED says why the pattern has no automaton. */
enum status string_rules_add_pattern(struct string_rules *r, const char *pattern, size_t len,
                                     struct error *err) MUST_CHECK;
/* The texts that the pattern matches whole alone. */
enum status string_rules_add_whole(struct string_rules *r, const char *pattern, size_t len,
                                   struct error *err) MUST_CHECK;
/* The texts that a pattern is found in, with its look-aheads. UNIMPLEMENTED likewise. */
enum status string_pattern(struct automaton *out, const char *pattern, size_t len, size_t *work,
                           struct arena *arena, struct error *err) MUST_CHECK;
/* It is none of these texts, or one of them. */
enum status string_rules_add_texts(struct string_rules *r, const char *const *texts,
                                   const size_t *lens, size_t n, bool is_excluded,
                                   struct error *err) MUST_CHECK;
enum status string_rules_add(struct string_rules *r, const struct automaton *a, bool is_excluded,
                             struct error *err) MUST_CHECK;

/* All rules as one automaton over characters; UNIMPLEMENTED where that has too many states. No
 * states: nothing satisfies them. */
enum status string_rules_join(const struct string_rules *r, struct automaton *out,
                              struct error *err) MUST_CHECK;
/* The JSON text of the strings that a matches, behind the opening quote, with the closing one.
 * work: as a machine's; UNIMPLEMENTED where it is too much. */
enum status string_to_json(struct automaton *out, const struct automaton *a, size_t *work,
                           struct arena *arena, struct error *err) MUST_CHECK;
/* Texts of many characters end in one set of them, as many as there are, behind a head: there is a
 * state that is an end, and from which each character leads back to it. */
struct string_tail {
    struct char_set set;
    uint32_t state;
    size_t shortest; /* characters of the shortest head */
};

/* False: a has no such state, or heads may have more characters than the shortest and slack, but
 * for repeated white space; or there is no memory. ret->set has room for CHAR_SET_MAX. */
bool string_tail_find(struct string_tail *ret, const struct automaton *a, size_t slack,
                      struct arena *arena);
/* Of a's texts those whose head has at most most_head characters, and that have at least least ones
 * in all: with up to n of the set behind the head, and the closing quote; or with n of it exactly,
 * as a part of a string. As JSON text; no states: there are none. UNIMPLEMENTED likewise. */
enum status string_tail_to_json(struct automaton *out, const struct string_tail *t,
                                const struct automaton *a, size_t most_head, size_t least, size_t n,
                                bool is_part, size_t *work, struct arena *arena,
                                struct error *err) MUST_CHECK;
/* The JSON text of strings of so many characters of the set, SIZE_MAX: any number; with the closing
 * quote, or a part of a string, behind which others follow. work: as a machine's; UNIMPLEMENTED
 * where it is too much. */
enum status string_of_set(struct automaton *out, const struct char_set *set, size_t least,
                          size_t most, bool is_part, size_t *work, struct arena *arena,
                          struct error *err) MUST_CHECK;
/* As string_to_json of any string, with all escapes. */
enum status string_any_json(struct automaton *out, struct arena *arena,
                            struct error *err) MUST_CHECK;

/* The regular expression of a format; NULL: the specification has no such format. */
const char *format_regex(const char *name);

#endif
