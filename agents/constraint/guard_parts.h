/* The inside of the guard. Schemas are taken in two forms: as they were given; and normal ones,
 * which have only keywords that assert, each in one form, so that two can be joined:
 *   enum            the values (const too)
 *   pattern, format, multipleOf, propertyNames    lists of what was given
 *   -notPattern     patterns that strings do not match
 *   not             values that it is not
 *   anyOf           a list of lists of schemas as given: one of each holds (oneOf, if,
 *                   dependentRequired too)
 *   exclusiveMinimum and -Maximum    numbers
 *   contains        {"schema", "least", "most"}; most -1: any number
 *   -opposite       true where anyOf has the opposite of a schema
 *   -patterned      pairs: a property's name, and a schema that holds for it where no pattern does
 * A given schema of anyOf that has "-optional" is left out where it cannot be joined.
 * What a walk returns is a schema of the third form, which schema_grammar.h describes; json_false()
 * where no value matches; NULL with an error in g. */
#ifndef AGENTS_CONSTRAINT_GUARD_PARTS_H
#define AGENTS_CONSTRAINT_GUARD_PARTS_H

#include <jansson.h>
#include <stdbool.h>

#include "agents/constraint/schema_grammar.h"
#include "base/buf.h"
#include "base/status.h"

struct string_rules;

#define GUARD_OPTIONAL "-optional"

struct guard {
    const json_t *root;
    /* Walks a schema as it was given (guard.c), for the files of the types, which it calls. */
    json_t *(*walk)(struct guard *g, const json_t *schema);
    json_t *refs;  /* pointer: the name of its definition */
    json_t *defs;  /* the definitions, as they are walked */
    json_t *names; /* $id, $anchor: the schema */
    json_t *made;  /* what was asked of strings: what they became */
    struct buf path, *left_out;
    bool strict;
    bool has_resources; /* a schema inside of the root has a base of its own for references */
    bool is_trial;      /* only whether any value matches is asked: see guard_disjoint.c */
    bool is_joined;     /* what becomes normal now is joined with others */
    unsigned depth;
    size_t n_nodes, n_merged;
    size_t work;     /* what may still be done for automata */
    char never[200]; /* why the last schema that no value matches is one */
    struct error *err;
};

/* --- guard_state.c --- */

void *guard_fail(struct guard *g, const char *keyword, const char *why); /* NULL */
void *guard_no_memory(struct guard *g);                                  /* NULL */
/* A keyword that cannot be enforced. True where it may be left out. */
bool guard_leave_out(struct guard *g, const char *keyword, const char *why);
/* Takes back what was left out since the list had so many bytes. */
void guard_take_back(struct guard *g, size_t len);
/* No value matches, and why. */
json_t *guard_never(struct guard *g, const char *keyword, const char *why);
size_t guard_path_push(struct guard *g, const char *name);
void guard_path_pop(struct guard *g, size_t len);
/* Counts schemas and values. False with an error where they are too many. */
bool guard_count(struct guard *g, const char *keyword, size_t n);
/* Whether work is due to compare so many values with so many others; it is done then. */
bool guard_compares(struct guard *g, size_t n, size_t n_others);
/* Walks a schema that stands under a keyword, and perhaps under a name in it: the path names both
 * meanwhile. */
json_t *guard_walk_at(struct guard *g, const json_t *schema, const char *keyword, const char *name);

/* --- guard_normal.c --- */

json_t *guard_normal(struct guard *g, const json_t *schema);
/* All that stands together in s, a normal schema, as one without $ref and allOf; NULL: there is no
 * such schema, or with an error in g it may not be. */
json_t *guard_fold(struct guard *g, const json_t *s, unsigned hops);
/* Joins to the normal schema s what the schema asks for. False as above. */
bool guard_join(struct guard *g, json_t *s, const json_t *schema, unsigned hops);
/* What a schema's opposite names is not evaluated by it. False: an error. */
bool guard_check_unevaluated(struct guard *g, const json_t *s, const char *keyword);
/* Whether the schema says something by this keyword. */
bool guard_is_keyword(const json_t *schema, const char *name);
unsigned guard_types(const json_t *type); /* that "type" names, all without it; 0: it is wrong */
unsigned guard_type_of_value(const json_t *value);
json_t *guard_type_name(unsigned type); /* one bit; a new reference */

/* --- guard_opposite.c --- */

/* What is known of the values that an opposite is beside. */
struct guard_beside {
    json_t *names;      /* members that objects may have, as keys */
    bool are_all;       /* they have no others */
    bool has_fractions; /* numbers may be no integers */
};

/* A list of schemas of which each holds only where schema does not; where it is partial, there may
 * be values beside it for which none holds. NULL: no keyword has an opposite
 * with a form. */
json_t *guard_opposite(struct guard *g, const json_t *schema, const struct guard_beside *beside,
                       bool *ret_is_partial);
/* One of the list, which it takes; false for an empty one. */
json_t *guard_any_of(json_t *list);

/* --- guard_disjoint.c --- */

/* The values that a schema enumerates, as a new list; NULL if it enumerates none. */
json_t *guard_values_of(const json_t *schema);
/* No value that is written matches both. alone: where nothing stands beside them that names
 * members, the types that values may be of, else 0. */
bool guard_are_disjoint(struct guard *g, const json_t *a, const json_t *b, unsigned alone);

/* --- guard_refs.c --- */

/* The schema that a reference means; NULL: it is not in this document. */
const json_t *guard_resolve(struct guard *g, const char *reference);
/* The end of a chain of references; NULL if it has none. */
const json_t *guard_resolve_chain(struct guard *g, const char *reference);
/* The schema, or the end of the chain of references that it is: what stands beside them is not in
 * it. */
const json_t *guard_follow(struct guard *g, const json_t *schema);
/* The same where nothing is asked beside these references; NULL: something is. */
const json_t *guard_follow_alone(struct guard *g, const json_t *schema);
bool guard_find_names(struct guard *g); /* false: no memory, or there are too many */

/* --- guard_values.c --- */

/* Adds to r what s, a normal schema, asks of strings, but for its enum. False: an error. */
bool guard_string_rules(struct guard *g, struct string_rules *r, const json_t *s);
/* What s, a normal schema, asks of strings and numbers: written to out. False: an error; or no
 * string, no number satisfies it: then *ret_is_never. */
bool guard_string(struct guard *g, json_t *out, const json_t *s, bool *ret_is_never);
bool guard_number(struct guard *g, json_t *out, const json_t *s, bool is_integer,
                  bool *ret_is_never);
bool guard_any_number(struct guard *g); /* puts its automaton into the definitions, "-number" */
/* The values of s's enum that it allows, of the types: a schema, never, or NULL with an error. */
json_t *guard_enum(struct guard *g, const json_t *s, unsigned types);

/* --- guard_object.c, guard_array.c --- */

bool guard_object(struct guard *g, json_t *out, const json_t *s, bool *ret_is_never);
bool guard_array(struct guard *g, json_t *out, const json_t *s, bool *ret_is_never);
/* A size, written to out: at most the given one, but minItems is left out then. Zero as the least
 * is nothing; so is no bound. */
bool guard_size(struct guard *g, json_t *out, const json_t *s, const char *name, json_int_t most);

#endif
