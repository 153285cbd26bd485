/* Joins two JSON schemas into one, where keywords allow that. */
#ifndef AGENTS_CONSTRAINT_SCHEMA_MERGE_H
#define AGENTS_CONSTRAINT_SCHEMA_MERGE_H

#include <jansson.h>
#include <stdbool.h>

/* Makes of schema, whose members it replaces and does not change, one that matches what both match.
 * Both have keywords that assert and no reference. What is unevaluated in schema is so of both.
 * False: no one schema says that, or there was no memory; schema is of no use then. */
bool schema_merge(json_t *schema, const json_t *part) __attribute__((warn_unused_result));

#endif
