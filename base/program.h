/* The running program: its standard files, and files by their place relative to it. */
#ifndef BASE_PROGRAM_H
#define BASE_PROGRAM_H

#include <limits.h>
#include <stdbool.h>

/* Makes the path of place, which is relative to the program's folder; false when it cannot be
 * read. */
bool program_beside(char out[PATH_MAX], const char *place);

/* Has descriptors 0, 1 and 2 be taken where the caller of the program has closed them: else the
 * first files and sockets that are opened get these numbers, and what is printed goes there. A read
 * of 0 and a write to 1 and 2 fail. */
void program_take_standard_files(void);
/* Has a program call it before the constructors of its libraries, some of which open files. */
#define PROGRAM_TAKES_STANDARD_FILES                                                           \
    __attribute__((section(".preinit_array"), used)) static void (*const take_standard_files)( \
        void) = program_take_standard_files

#endif
