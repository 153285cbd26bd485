#include "client/cli/bench/require.h"

#include <string.h>

#include "base/number.h"
#include "client/cli/bench/metric.h"

enum status requirement_parse(struct requirement *out, const char *text, struct error *err)
{
    const char *whole = text;
    size_t len, at, n;
    const struct figures none = {0};
    double ignored;

    text += strspn(text, " ");
    at = len = strcspn(text, "<>");
    *out = (struct requirement){.is_ceiling = text[at] == '<'};
    while (len > 0 && text[len - 1] == ' ')
        len--;
    if (text[at] == '\0' || len == 0 || len >= sizeof(out->name))
        return error_set(err, STATUS_INVALID, "'%s' is not a condition such as 'p99_ttft_ms<200'",
                         whole);
    memcpy(out->name, text, len);
    at++;
    out->may_be_equal = text[at] == '=';
    at += out->may_be_equal;
    n = number_take_real(&out->bound, text + at);
    at += n;
    if (n == 0 || text[at + strspn(text + at, " ")] != '\0')
        return error_set(err, STATUS_INVALID, "'%s' does not end in a number", whole);
    if (!metric_read(&ignored, &none, out->name))
        return error_set(
            err, STATUS_INVALID,
            "there is no figure '%s'; 'man parley' lists the figures, such as p99_ttft_ms",
            out->name);
    return STATUS_OK;
}

bool requirement_holds(const struct requirement *r, const struct figures *f, double *ret_is)
{
    double is;

    (void)metric_read(&is, f, r->name); /* parsing has checked the name */
    *ret_is = is;
    if (r->may_be_equal && is == r->bound)
        return true;
    return r->is_ceiling ? is < r->bound : is > r->bound; /* false for NaN */
}
