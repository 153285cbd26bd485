/* Where the running program lies, and what was put beside it. */
#ifndef BASE_PROGRAM_H
#define BASE_PROGRAM_H

#include <limits.h>
#include <stdbool.h>

/* The path of the place, relative to the program's folder; false when nothing is there to be read.
 */
bool program_beside(char out[PATH_MAX], const char *place);

#endif
