/* The third form of a schema, made by the guard, as a grammar of the engine: rules of which "root"
 * is the first. A schema is an object:
 *   {}                        any value
 *   {"$ref": NAME}            a definition
 *   {"anyOf": [...]}          one of them
 *   {"enum": [...]}           one of the values
 *   {"types": BITS, ...}      enum value_type, with for
 *     strings   "string": an automaton over the text behind the first quote; or "blocks", which
 *               count: "n_needed" times "block", an automaton of some characters; then "n_open"
 *               times a string may end as "first", the later times "next" says, or has one block
 *               more, of which the first may be another, "head"; then it ends as "last" says. Else
 *               any string
 *     numbers   "number": an automaton
 *     arrays    "prefix": [...], "items": a schema or false, "min_items", "max_items"; or
 *               "values": [...]: each of these at most once; or "classes": [...]: at most one item
 *               of each of these schemas
 *     objects   "members": [[NAME, SCHEMA, is_required], ...], "rest": [[AUTOMATON or null of the
 *               name behind its first quote, SCHEMA, KINDS], ...], "min_members", "max_members".
 *               KINDS may be missing, in all or in none: of the last of the first "min_members"
 *               members each has a name of its automaton in this list, where it is of the rest;
 *               false: it is not of this one
 * Members come in this order, each once; then the rest. */
#ifndef AGENTS_CONSTRAINT_SCHEMA_GRAMMAR_H
#define AGENTS_CONSTRAINT_SCHEMA_GRAMMAR_H

#include <jansson.h>

#include "base/buf.h"
#include "base/status.h"

enum value_type {
    TYPE_NULL = 1 << 0,
    TYPE_BOOLEAN = 1 << 1,
    TYPE_INTEGER = 1 << 2,
    TYPE_NUMBER = 1 << 3,
    TYPE_STRING = 1 << 4,
    TYPE_ARRAY = 1 << 5,
    TYPE_OBJECT = 1 << 6,
    TYPE_ALL = TYPE_NULL | TYPE_BOOLEAN | TYPE_NUMBER | TYPE_STRING | TYPE_ARRAY | TYPE_OBJECT,
};

enum status schema_grammar_write(struct buf *out, const json_t *top, const json_t *defs,
                                 struct error *err) MUST_CHECK;

#endif
