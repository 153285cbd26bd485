#include "base/number.h"

#include <math.h>
#include <stdlib.h>

size_t number_take(uint64_t *out, const char *text, size_t len, uint64_t max)
{
    uint64_t number = 0;
    size_t n;

    for (n = 0; n < len && text[n] >= '0' && text[n] <= '9'; n++) {
        const uint64_t digit = (uint64_t)(text[n] - '0');

        if (digit > max || number > (max - digit) / 10)
            return 0;
        number = number * 10 + digit;
    }
    if (n > 0)
        *out = number;
    return n;
}

bool number_read(uint64_t *out, const char *text, uint64_t max)
{
    uint64_t number;
    const size_t n = number_take(&number, text, SIZE_MAX, max);

    if (n == 0 || text[n] != '\0')
        return false;
    *out = number;
    return true;
}

size_t number_take_real(double *out, const char *text)
{
    char *end;
    const double number = strtod(text, &end);

    if (end == text || !isfinite(number))
        return 0;
    *out = number;
    return (size_t)(end - text);
}

bool number_read_real(double *out, const char *text)
{
    double number;
    const size_t n = number_take_real(&number, text);

    if (n == 0 || text[n] != '\0')
        return false;
    *out = number;
    return true;
}
