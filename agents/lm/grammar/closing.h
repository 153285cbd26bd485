/* The text that ends a reply under a schema soonest, from where it stands: what is open is closed,
 * what is required and missing gets the shortest value that is found. */
#ifndef AGENTS_LM_GRAMMAR_CLOSING_H
#define AGENTS_LM_GRAMMAR_CLOSING_H

#include <stddef.h>

#include "base/json_place.h"

struct grammar_module;

/* Writes the text [cap] and returns its length; SIZE_MAX if none is found, or none so short. The
 * engine's matcher is as before. What is found depends on the reply so far alone. */
size_t closing_find(const struct grammar_module *module, void *engine, struct json_place place,
                    char *text, size_t cap);

#endif
