/* Finds a model by its name (model_name.h) on this machine, without a network. Any thread. */
#ifndef BASE_FETCH_FIND_H
#define BASE_FETCH_FIND_H

#include "base/status.h"

/* The path of the model, for the caller to free: a copy of text where it is a path already.
 * INVALID: no such name; NOT_FOUND says how to get the model. */
enum status fetch_find(char **out, const char *text, struct error *err) MUST_CHECK;

#endif
