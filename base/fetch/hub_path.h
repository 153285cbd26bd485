/* Paths that are made by printf's rules, and those that the hub's programs take from the
 * environment. The texts are for the caller to free. Any thread. */
#ifndef BASE_FETCH_HUB_PATH_H
#define BASE_FETCH_HUB_PATH_H

#include "base/status.h"

char *hub_path(const char *format, ...) PRINTF_LIKE(1, 2);

/* A variable of the environment, which keeps the text; NULL: it is not set, or empty. */
const char *hub_variable(const char *name);
/* The value of the variable, which names the place itself; else that place below the hub's folder:
 * HF_HOME, else XDG_CACHE_HOME/huggingface, else ~/.cache/huggingface. NULL: none is set. */
char *hub_home(const char *variable, const char *below);

#endif
