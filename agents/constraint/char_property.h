/* The characters that have a property of Unicode, by the names that regular expressions of ECMA-262
 * give it in \p{…}. */
#ifndef AGENTS_CONSTRAINT_CHAR_PROPERTY_H
#define AGENTS_CONSTRAINT_CHAR_PROPERTY_H

#include "agents/constraint/char_set.h"
#include "base/status.h"

/* Replaces the set by the characters with the property. name is what stands between the braces:
 * "L", "Uppercase_Letter", "gc=Lu", "Script=Greek", "scx=Grek", "Alphabetic". UNIMPLEMENTED says
 * which property is not known, or cannot be had, as a regular expression's refusal ("has …").
 * work: as a machine's. */
enum status char_property_set(struct char_set *ret_set, const char *name, size_t len, size_t *work,
                              struct error *err) MUST_CHECK;

#endif
