#include "server/config/units.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/number.h"

/* Names the largest value, in the largest unit that it is a whole number of. */
static enum status too_much(struct error *err, const char *text, const struct config_unit *units,
                            uint64_t max)
{
    const struct config_unit *unit = units;

    for (; units->name != NULL; units++)
        if (max % units->factor == 0 && (units->factor > unit->factor || max % unit->factor != 0))
            unit = units;
    return error_set(err, STATUS_INVALID, "'%.60s' is too much, it must be at most %" PRIu64 "%s",
                     text, max / unit->factor, unit->name);
}

static enum status no_unit(struct error *err, const char *text, const struct config_unit *units)
{
    char names[64] = "";

    for (size_t len = 0; units->name != NULL && len < sizeof(names); units++)
        if (*units->name != '\0')
            len += (size_t)snprintf(names + len, sizeof(names) - len, "%s%s", len == 0 ? "" : ", ",
                                    units->name);
    if (*names == '\0')
        return error_set(err, STATUS_INVALID, "'%.60s' is not a whole number, which has no unit",
                         text);
    return error_set(err, STATUS_INVALID, "'%.60s' has no unit that is known: %s", text, names);
}

enum status config_number(uint64_t *out, const char *text, const struct config_unit *units,
                          uint64_t max, struct error *err)
{
    const struct config_unit *const all = units;
    uint64_t n;
    const size_t len = number_take(&n, text, SIZE_MAX, UINT64_MAX);

    if (len == 0 && *text >= '0' && *text <= '9')
        return too_much(err, text, all, max);
    if (len == 0)
        return error_set(err, STATUS_INVALID, "'%.60s' is not a number", text);
    for (; units->name != NULL; units++) {
        uint64_t value;

        if (strcmp(text + len, units->name) != 0)
            continue;
        if (__builtin_mul_overflow(n, units->factor, &value) || value > max)
            return too_much(err, text, all, max);
        *out = value;
        return STATUS_OK;
    }
    return no_unit(err, text, all);
}

const struct config_unit config_counts[] = {{"", 1}, {NULL, 0}};
const struct config_unit config_sizes[] = {
    {"", 1}, {"K", 1 << 10}, {"M", 1 << 20}, {"G", 1 << 30}, {NULL, 0},
};
const struct config_unit config_times[] = {
    {"s", 1000}, {"", 1000}, {"ms", 1}, {"m", 60000}, {"h", 3600000}, {NULL, 0},
};
const struct config_unit config_ms_in_us[] = {{"", 1000}, {NULL, 0}};

enum status config_size(size_t *out, const char *text, const struct config_unit *units, size_t max,
                        struct error *err)
{
    uint64_t value = 0;
    enum status rc = config_number(&value, text, units, max, err);

    if (rc != STATUS_OK)
        return rc;
    if (value == 0)
        return error_set(err, STATUS_INVALID, "must be above 0");
    *out = (size_t)value;
    return STATUS_OK;
}
