/* Ctrl-C as an event that a poll can wait for, instead of the end of the program. */
#ifndef CLI_OUTPUT_INTERRUPT_H
#define CLI_OUTPUT_INTERRUPT_H

#include <stdbool.h>

/* Makes each following Ctrl-C such an event. The program aborts if the kernel gives no descriptor.
 */
void interrupt_catch(void);
/* Makes each following Ctrl-C end the program again. */
void interrupt_release(void);
/* Returns a descriptor that is readable from a Ctrl-C until interrupt_take. Before interrupt_catch
 * the descriptor is -1, which poll ignores. */
int interrupt_fd(void);
/* Returns whether there was a Ctrl-C since the last call, and forgets the Ctrl-C. */
bool interrupt_take(void);
/* Sleeps for ms milliseconds. False: a Ctrl-C ended the sleep; interrupt_take still reports it. */
bool interrupt_sleep(unsigned ms);

#endif
