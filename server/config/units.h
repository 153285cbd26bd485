/* Numbers with a unit, as the values of parleyd's options are written. */
#ifndef SERVER_CONFIG_UNITS_H
#define SERVER_CONFIG_UNITS_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* A unit of a number: "M", 1 << 20. The last unit of a list has the name NULL. */
struct config_unit {
    const char *name;
    uint64_t factor;
};

extern const struct config_unit config_counts[], config_sizes[], config_times[], config_ms_in_us[];

/* Reads a number with one of the units. INVALID where the text is anything else, and above max. */
enum status config_number(uint64_t *out, const char *text, const struct config_unit *units,
                          uint64_t max, struct error *err) MUST_CHECK;
/* Reads such a number that is not 0. */
enum status config_size(size_t *out, const char *text, const struct config_unit *units, size_t max,
                        struct error *err) MUST_CHECK;

#endif
