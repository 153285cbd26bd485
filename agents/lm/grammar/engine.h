/* Finds and loads the grammar module, when it is first needed. Any thread. */
#ifndef AGENTS_LM_GRAMMAR_ENGINE_H
#define AGENTS_LM_GRAMMAR_ENGINE_H

#include <limits.h>

#include "base/status.h"

struct grammar_module;

/* The module's file. UNAVAILABLE where it is missing. */
enum status engine_find(char out[PATH_MAX], struct error *err) MUST_CHECK;

/* UNAVAILABLE with one line where the module is missing or of another build. It stays loaded. The
 * environment's PARLEY_GRAMMAR_MODULE names its file; "" means that there is none. */
enum status engine_load(const struct grammar_module **out, struct error *err) MUST_CHECK;

#endif
