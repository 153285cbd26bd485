/* Ctrl-C as an event that a poll can wait for, instead of the end of the program. */
#ifndef CLI_OUTPUT_INTERRUPT_H
#define CLI_OUTPUT_INTERRUPT_H

#include <stdbool.h>

/* From now on. Aborts when the kernel gives no descriptor. */
void interrupt_catch(void);
/* A Ctrl-C ends the program again. */
void interrupt_release(void);
/* Readable from a Ctrl-C until it is taken. -1 before interrupt_catch: poll ignores that. */
int interrupt_fd(void);
/* True if there was one since the last call. */
bool interrupt_take(void);
/* Sleeps; false when a Ctrl-C, which is not taken, ended the sleep. */
bool interrupt_sleep(unsigned ms);

#endif
