/* Paths that are made by printf's rules. */
#ifndef BASE_FETCH_HUB_PATH_H
#define BASE_FETCH_HUB_PATH_H

#include "base/status.h"

/* The text is for the caller to free. */
char *hub_path(const char *format, ...) PRINTF_LIKE(1, 2);

#endif
