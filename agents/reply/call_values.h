/* Reads the arguments of calls whose values are neither JSON nor plain text: Python's, as LFM2 and
 * Llama's built-in tools write them (city='Paris', days=[1, 2], deep=True), and Gemma 4's
 * ({city:<|"|>Paris<|"|>,days:[1,2]}). */
#ifndef AGENTS_REPLY_CALL_VALUES_H
#define AGENTS_REPLY_CALL_VALUES_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* The arguments from *at on, behind their opening bracket, to their closing one, ')' or '}', which
 * *at is behind then. NULL: they are none, or, where *ret_is_open, more text may make them some.
 * The caller frees them. */
json_t *call_values_read(const char *text, size_t len, size_t *at, char close, bool *ret_is_open);

#endif
