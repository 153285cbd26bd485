#include "agents/lm/tokenizer/specials.h"

#include <stdlib.h>
#include <string.h>

#include "agents/lm/tokenizer/table.h"
#include "base/alloc.h"

static int by_bytes(const void *a, const void *b, void *arg)
{
    const struct vocab *v = arg;
    int32_t left = *(const int32_t *)a, right = *(const int32_t *)b;
    size_t left_len, right_len;
    const char *left_bytes = vocab_token_bytes(v, left, &left_len);
    const char *right_bytes = vocab_token_bytes(v, right, &right_len);
    int order = memcmp(left_bytes, right_bytes, left_len < right_len ? left_len : right_len);

    if (order != 0)
        return order;
    if (left_len != right_len)
        return left_len < right_len ? -1 : 1;
    return left < right ? -1 : 1;
}

enum status specials_open(struct specials *out, const struct vocab *v, bool (*is_member)(int type),
                          struct error *err)
{
    struct specials s = {0};
    size_t n = 0;

    for (size_t i = 0; i < v->n; i++)
        n += is_member(v->types[i]);
    s.ids = try_alloc(n + 1, sizeof(*s.ids));
    if (s.ids == NULL)
        return error_no_memory(err, (n + 1) * sizeof(*s.ids), "special tokens");
    for (size_t i = 0; i < v->n; i++) {
        size_t len;
        const char *bytes = vocab_token_bytes(v, (int32_t)i, &len);

        if (!is_member(v->types[i]) || len == 0)
            continue;
        s.ids[s.n++] = (int32_t)i;
        s.begins[(unsigned char)bytes[0]] = true;
    }
    qsort_r(s.ids, s.n, sizeof(*s.ids), by_bytes, (void *)v);
    *out = s;
    return STATUS_OK;
}

void specials_close(struct specials *s)
{
    free(s->ids);
    *s = (struct specials){0};
}

/* Byte `at` of a token; -1 after its end, which sorts before all bytes. */
static int byte_at(const struct vocab *v, int32_t id, size_t at)
{
    size_t len;
    const char *bytes = vocab_token_bytes(v, id, &len);

    return at < len ? (unsigned char)bytes[at] : -1;
}

/* The first of ids [from, end), which agree up to byte `at`, whose byte there is at least `byte`.
 */
static size_t specials_bound(const struct specials *s, const struct vocab *v, size_t from,
                             size_t end, size_t at, int byte)
{
    while (from < end) {
        size_t middle = from + (end - from) / 2;

        if (byte_at(v, s->ids[middle], at) < byte)
            from = middle + 1;
        else
            end = middle;
    }
    return from;
}

/* The longest token that text begins with, -1 if there is none. */
static int32_t specials_at(const struct specials *s, const struct vocab *v, const char *text,
                           size_t len)
{
    size_t from = 0, end = s->n;
    int32_t longest = -1;

    for (size_t at = 0; from < end; at++) {
        int byte = at < len ? (unsigned char)text[at] : VOCAB_BYTES;

        if (at > 0 && byte_at(v, s->ids[from], at) < 0)
            longest = s->ids[from];
        from = specials_bound(s, v, from, end, at, byte);
        end = specials_bound(s, v, from, end, at, byte + 1);
    }
    return longest;
}

bool specials_has(const struct specials *s, const struct vocab *v, const char *bytes, size_t len)
{
    int32_t id = len == 0 ? -1 : specials_at(s, v, bytes, len);
    size_t token_len;

    if (id < 0)
        return false;
    (void)vocab_token_bytes(v, id, &token_len);
    return token_len == len;
}

size_t specials_find(const struct specials *s, const struct vocab *v, const char *text, size_t len,
                     size_t from, int32_t *ret_id)
{
    if (s->n == 0)
        return len;
    for (size_t at = from; at < len; at++) {
        int32_t id =
            s->begins[(unsigned char)text[at]] ? specials_at(s, v, text + at, len - at) : -1;

        if (id < 0)
            continue;
        *ret_id = id;
        return at;
    }
    return len;
}
