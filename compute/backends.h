/* The backends of this build, by name. */
#ifndef COMPUTE_BACKENDS_H
#define COMPUTE_BACKENDS_H

#include <stddef.h>

#include "base/status.h"
#include "compute/backend/backend.h"

/* The default first; NULL after the last. */
const struct backend_type *backend_type_at(size_t i);

/* Opens the backend of that name ("ref", "cpu", …); the text of NOT_FOUND lists the names. */
enum status backend_open(struct backend **out, const char *name,
                         const struct backend_config *config, struct error *err) MUST_CHECK;

#endif
