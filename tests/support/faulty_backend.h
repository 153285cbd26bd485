/* The backend ref with operators that may fail as a device's do: later, reported by sync. A failed
 * operator leaves its output unchanged. Each operator and each sync is a fault point
 * (base/alloc.h). */
#ifndef TESTS_SUPPORT_FAULTY_BACKEND_H
#define TESTS_SUPPORT_FAULTY_BACKEND_H

#include <stdbool.h>
#include <stddef.h>

#include "compute/backend/backend.h"

extern const struct backend_type faulty_backend;

/* What sync returns after a fault. INTERNAL: sync fails until the device is opened again, before
 * which all that was opened on it must be closed (asserted). */
extern enum status faulty_status;
extern size_t faulty_n_opened;
extern bool
    faulty_was_fast; /* whether the last one was opened with fast math, which has no effect */
/* Opening the device fails with UNAVAILABLE. */
extern bool faulty_cannot_open;

#endif
