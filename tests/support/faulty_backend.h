/* ref, each of whose operators may fail as a device does: later, and told by sync. A failed
 * operator leaves its output as it was. Each operator and each sync is a fault point
 * (base/alloc.h). */
#ifndef TESTS_SUPPORT_FAULTY_BACKEND_H
#define TESTS_SUPPORT_FAULTY_BACKEND_H

#include <stdbool.h>
#include <stddef.h>

#include "compute/backend.h"

extern const struct backend_type faulty_backend;

/* What sync returns after a fault. INTERNAL: it does so until the device is opened anew, before
 * which all that was opened on it has to be closed (asserted). */
extern enum status faulty_status;
extern size_t faulty_n_opened;
extern bool faulty_was_fast; /* the one opened last: with fast math, which changes nothing */
/* The device is not there: opening it is UNAVAILABLE. */
extern bool faulty_cannot_open;

#endif
