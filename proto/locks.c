#include "proto/locks.h"

#include <stddef.h>

/* absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle). It has no name in C, and another one
 * in other versions; where it is missing, nothing changes. */
enum { ON_CYCLE_IGNORE = 0 };
void set_detection(int mode) __asm__(
    "_ZN4absl7debian329SetMutexDeadlockDetectionModeENS0_15OnDeadlockCycleE")
    __attribute__((weak, visibility("default")));

bool locks_unchecked(void)
{
    if (set_detection != NULL)
        set_detection(ON_CYCLE_IGNORE);
    return set_detection != NULL;
}
