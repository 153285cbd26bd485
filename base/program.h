/* Finds files by their place relative to the running program. */
#ifndef BASE_PROGRAM_H
#define BASE_PROGRAM_H

#include <limits.h>
#include <stdbool.h>

/* Makes the path of place, which is relative to the program's folder; false when it cannot be
 * read. */
bool program_beside(char out[PATH_MAX], const char *place);

#endif
