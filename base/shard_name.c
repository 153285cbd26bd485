#include "base/shard_name.h"

#include <string.h>

#include "base/number.h"

enum { N_DIGITS = 5, MARK_LEN = 1 + N_DIGITS + 4 + N_DIGITS }; /* -00001-of-00003 */

static bool take_shard_digits(unsigned *out, const char *at)
{
    uint64_t v;

    if (number_take(&v, at, N_DIGITS, UINT32_MAX) != N_DIGITS)
        return false;
    *out = (unsigned)v;
    return true;
}

bool shard_name_parse(struct shard_name *out, const char *name, const char *ending)
{
    size_t len = strlen(name), n_end = strlen(ending);
    const char *mark;
    struct shard_name s;

    if (len <= n_end + MARK_LEN || strcmp(name + len - n_end, ending) != 0)
        return false;
    s.prefix_len = len - n_end - MARK_LEN;
    mark = name + s.prefix_len;
    if (mark[0] != '-' || memcmp(mark + 1 + N_DIGITS, "-of-", 4) != 0 ||
        !take_shard_digits(&s.number, mark + 1) ||
        !take_shard_digits(&s.n, mark + MARK_LEN - N_DIGITS) || s.number == 0 || s.number > s.n)
        return false;
    *out = s;
    return true;
}
