#include "agents/lm/tokenizer/charsmap.h"

#include <stdlib.h>
#include <string.h>
#include <unigbrk.h>

#include "base/alloc.h"
#include "base/utf8.h"

enum { SHORT_GRAPHEME = 6 }; /* bytes */

enum status charsmap_open(struct charsmap *out, const uint8_t *data, size_t size_bytes,
                          struct error *err)
{
    struct charsmap m = {0};
    uint32_t units_bytes = 0;

    if (size_bytes > sizeof(units_bytes))
        memcpy(&units_bytes, data, sizeof(units_bytes)); /* the host is little-endian */
    if (units_bytes == 0 || units_bytes % sizeof(*m.units) != 0 ||
        units_bytes >= size_bytes - sizeof(units_bytes) || data[size_bytes - 1] != 0)
        return error_set(err, STATUS_INVALID, "the table of characters is cut short");
    m.n_units = units_bytes / sizeof(*m.units);
    m.n_bytes = size_bytes - sizeof(units_bytes) - units_bytes;
    m.units = try_alloc(m.n_units, sizeof(*m.units));
    m.texts = try_alloc(m.n_bytes, 1);
    if (m.units == NULL || m.texts == NULL) {
        charsmap_close(&m);
        return error_no_memory(err, size_bytes, "a table of characters");
    }
    memcpy(m.units, data + sizeof(units_bytes), units_bytes);
    memcpy(m.texts, data + sizeof(units_bytes) + units_bytes, m.n_bytes);
    *out = m;
    return STATUS_OK;
}

void charsmap_close(struct charsmap *m)
{
    free(m->units);
    free(m->texts);
    *m = (struct charsmap){0};
}

/* Of a unit of the array: where its children are, relative to it. */
static uint32_t children_of(uint32_t unit)
{
    return unit >> 10 << ((unit & 1u << 9) >> 6);
}

/* The length of the longest text, or the shortest one, that the table replaces at the begin of
 * text; 0: none. *ret_text is what replaces it. */
static size_t charsmap_find(const struct charsmap *m, const char *text, size_t len,
                            bool is_shortest, const char **ret_text)
{
    size_t at = 0, found = 0;

    if (m->n_units == 0)
        return 0;
    at = children_of(m->units[0]);
    for (size_t i = 0; i < len && text[i] != '\0' && !(is_shortest && found > 0); i++) {
        uint32_t unit;

        at ^= (unsigned char)text[i];
        if (at >= m->n_units)
            break;
        unit = m->units[at];
        if ((unit & (1u << 31 | 0xffu)) != (unsigned char)text[i])
            break;
        at ^= children_of(unit);
        if ((unit >> 8 & 1) != 0 && at < m->n_units) {
            const size_t value = m->units[at] & ~(1u << 31);

            if (value < m->n_bytes) {
                *ret_text = m->texts + value;
                found = i + 1;
            }
        }
    }
    return found;
}

/* Appends text as the table rewrites it. */
static enum status rewrite_characters(const struct charsmap *m, const char *text, size_t len,
                                      struct buf *out, struct error *err)
{
    for (size_t at = 0; at < len;) {
        const char *put = text + at;
        size_t n_bytes = charsmap_find(m, put, len - at, false, &put), n_put;
        uint32_t c;

        if (n_bytes > 0)
            n_put = strlen(put);
        else
            n_put = n_bytes = utf8_next(text + at, len - at, &c);
        if (n_put > 0 && buf_append(out, put, n_put) != STATUS_OK)
            return error_no_memory(err, n_put, "a text");
        at += n_bytes;
    }
    return STATUS_OK;
}

/* Appends a cluster of characters as PyPI's tokenizers rewrite it: where it is short, what the
 * table replaces at its begin takes the place of all of it. */
static enum status rewrite_grapheme(const struct charsmap *m, const char *text, size_t len,
                                    struct buf *out, struct error *err)
{
    const char *put = text;
    size_t n_bytes;
    uint32_t c;

    if (len < SHORT_GRAPHEME && charsmap_find(m, text, len, true, &put) > 0)
        return buf_append(out, put, strlen(put)) == STATUS_OK ? STATUS_OK
                                                              : error_no_memory(err, len, "a text");
    for (size_t at = 0; at < len; at += n_bytes) {
        size_t n_put;

        put = text + at;
        n_bytes = n_put = utf8_next(put, len - at, &c);
        if (charsmap_find(m, put, n_bytes, true, &put) > 0)
            n_put = strlen(put);
        if (n_put > 0 && buf_append(out, put, n_put) != STATUS_OK)
            return error_no_memory(err, n_put, "a text");
    }
    return STATUS_OK;
}

static enum status rewrite_graphemes(const struct charsmap *m, const char *text, size_t len,
                                     struct buf *out, struct error *err)
{
    const uint8_t *at = (const uint8_t *)text, *end = at + len;
    enum status rc = STATUS_OK;

    while (rc == STATUS_OK && at < end) {
        const uint8_t *next = u8_grapheme_next(at, end);

        rc = rewrite_grapheme(m, (const char *)at, (size_t)(next - at), out, err);
        at = next;
    }
    return rc;
}

enum status charsmap_rewrite(const struct charsmap *m, const char *text, size_t len,
                             bool by_grapheme, struct buf *out, struct error *err)
{
    return by_grapheme ? rewrite_graphemes(m, text, len, out, err)
                       : rewrite_characters(m, text, len, out, err);
}
