/* Encodes text: special tokens are found first, and the text between them is encoded by the
 * vocabulary's kind. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <uninorm.h>

#include "agents/lm/tokenizer/bpe.h"
#include "agents/lm/tokenizer/specials.h"
#include "agents/lm/tokenizer/spelling.h"
#include "agents/lm/tokenizer/spm.h"
#include "agents/lm/tokenizer/table.h"
#include "agents/lm/tokenizer/ugm.h"
#include "agents/lm/tokenizer/vocab.h"
#include "agents/lm/tokenizer/wpm.h"
#include "base/alloc.h"
#include "base/utf8.h"

struct encoding {
    const struct vocab *v;
    struct buf *out;
    struct error *err;
    struct bpe_work bpe;
    struct spm_work spm;
    struct buf plain; /* the current text with spaces for U+2581 */
    bool may_prefix;  /* the next text stands where a space is put before text */
};

static enum status encoding_no_room(const struct encoding *e, size_t len)
{
    return error_no_memory(e->err, len, "a text");
}

static enum status encoding_too_long(const struct encoding *e, size_t len)
{
    return error_because(e->err, STATUS_RANGE, REASON_CONTEXT_EXCEEDED, NULL,
                         "a text of %zu bytes is too long to be encoded", len);
}

static bool begins_with_blank(const char *text, size_t len)
{
    static const char blank[] = "\xE2\x96\x81"; /* U+2581 */

    return text[0] == ' ' ||
           (len >= sizeof(blank) - 1 && memcmp(text, blank, sizeof(blank) - 1) == 0);
}

/* U+2581 stands for a space in these vocabularies, so it cannot be told from one in text. */
static enum status encoding_text_escaped(struct encoding *e, const char *text, size_t len)
{
    const bool has_prefix = e->v->has_space_prefix && e->may_prefix &&
                            !(e->v->prefixes_missing && begins_with_blank(text, len));

    buf_clear(&e->plain);
    if (has_prefix && buf_append(&e->plain, " ", 1) != STATUS_OK)
        return encoding_no_room(e, 1);
    if (buf_append(&e->plain, text, len) != STATUS_OK)
        return encoding_no_room(e, len);
    len = spelling_unescape(e->plain.data, e->plain.len, e->plain.data);
    if (e->v->kind == VOCAB_SPM)
        return spm_encode(&e->spm, e->v, e->plain.data, len, e->out, e->err);
    return bpe_encode(&e->bpe, e->v, e->plain.data, len, e->out, e->err);
}

static enum status encoding_text_split(struct encoding *e, const char *text, size_t len)
{
    enum status rc;

    if (e->v->kind == VOCAB_BYTES_BPE)
        rc = bpe_encode(&e->bpe, e->v, text, len, e->out, e->err);
    else if (e->v->kind == VOCAB_WPM)
        rc = wpm_encode(e->v, text, len, e->out, e->err);
    else if (e->v->kind == VOCAB_UGM)
        rc = ugm_encode(e->v, text, len, e->v->has_space_prefix && e->may_prefix, e->out, e->err);
    else
        rc = encoding_text_escaped(e, text, len);
    e->may_prefix = false;
    return rc;
}

static bool is_ascii(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] >= 0x80)
            return false;
    return true;
}

/* Composes text (Unicode's NFC) where the vocabulary's tokenizer.json asks for it; ASCII is
 * composed already. GGUF files do not say so, and llama.cpp does not compose. */
static enum status encoding_text(struct encoding *e, const char *text, size_t len)
{
    uint8_t *composed;
    size_t n_bytes;
    enum status rc;

    if (!e->v->is_nfc || is_ascii(text, len))
        return encoding_text_split(e, text, len);
    composed = u8_normalize(UNINORM_NFC, (const uint8_t *)text, len, NULL, &n_bytes);
    if (composed == NULL)
        return encoding_no_room(e, len);
    rc = n_bytes > INT32_MAX ? encoding_too_long(e, n_bytes)
                             : encoding_text_split(e, (const char *)composed, n_bytes);
    free(composed);
    return rc;
}

static enum status encoding_special(struct encoding *e, int32_t id)
{
    e->may_prefix = !e->v->prefixes_once;
    return vocab_append_ids(e->out, &id, 1, e->err);
}

static void encoding_deinit(struct encoding *e)
{
    bpe_work_deinit(&e->bpe);
    spm_work_deinit(&e->spm);
    buf_deinit(&e->plain);
}

/* Unicode's White_Space. */
static bool is_white_space(uint32_t c)
{
    return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
           c == 0x205F || c == 0x3000;
}

/* Where text [from, end) ends without the white space at its end. */
static size_t trimmed_end(const char *text, size_t from, size_t end)
{
    size_t kept = from;

    while (from < end) {
        uint32_t c;

        from += utf8_next(text + from, end - from, &c);
        if (!is_white_space(c))
            kept = from;
    }
    return kept;
}

/* Where the white space at the begin of text [from, len) ends. */
static size_t trimmed_begin(const char *text, size_t from, size_t len)
{
    while (from < len) {
        uint32_t c;
        size_t n_bytes = utf8_next(text + from, len - from, &c);

        if (!is_white_space(c))
            break;
        from += n_bytes;
    }
    return from;
}

static int trim_of(const struct vocab *v, int32_t id)
{
    return id < 0 || v->trims == NULL ? TRIM_NONE : v->trims[id];
}

/* Encodes text of one trust: first the special tokens are found, then the text between them is
 * encoded. */
static enum status encoding_region(struct encoding *e, const struct specials *s, const char *text,
                                   size_t len)
{
    const struct vocab *v = e->v;
    enum status rc = STATUS_OK;

    for (size_t done = 0; rc == STATUS_OK && done < len;) {
        int32_t id = -1;
        size_t n_bytes = 0, at = specials_find(s, v, text, len, done, &id);

        size_t end = trim_of(v, id) & TRIM_BEFORE ? trimmed_end(text, done, at) : at;

        if (end > done)
            rc = encoding_text(e, text + done, end - done);
        if (rc == STATUS_OK && id >= 0)
            rc = encoding_special(e, id);
        if (id >= 0)
            (void)vocab_token_bytes(v, id, &n_bytes);
        done = at + n_bytes;
        if (trim_of(v, id) & TRIM_BEHIND)
            done = trimmed_begin(text, done, len);
    }
    return rc;
}

size_t vocab_find_special(const struct vocab *v, const char *text, size_t len, size_t from,
                          size_t *ret_end)
{
    int32_t id = -1;
    size_t n_bytes = 0, at = specials_find(&v->specials, v, text, len, from, &id);

    if (id >= 0)
        (void)vocab_token_bytes(v, id, &n_bytes);
    *ret_end = at + n_bytes;
    if (trim_of(v, id) & TRIM_BEFORE)
        at = trimmed_end(text, from, at);
    if (trim_of(v, id) & TRIM_BEHIND)
        *ret_end = trimmed_begin(text, *ret_end, len);
    return at;
}

/* Adjacent spans of one trust are encoded as one text. */
static enum status encoding_spans(struct encoding *e, const char *text,
                                  const struct text_span *spans, size_t n_spans)
{
    const struct specials *now = &e->v->defined;
    size_t from = 0, end = 0;

    for (size_t i = 0; i < n_spans; i++) {
        const struct specials *next = spans[i].is_trusted ? &e->v->specials : &e->v->defined;

        if (spans[i].end == end)
            continue;
        if (next != now) {
            if (encoding_region(e, now, text + from, end - from) != STATUS_OK)
                return e->err->status;
            from = end;
        }
        now = next;
        end = spans[i].end;
    }
    return encoding_region(e, now, text + from, end - from);
}

static void check_spans(const struct text_span *spans, size_t n_spans, size_t len)
{
    size_t from = 0;

    for (size_t i = 0; i < n_spans; i++) {
        assert(spans[i].end >= from);
        from = spans[i].end;
    }
    assert(from == len);
}

enum status vocab_encode_spans(const struct vocab *v, const char *text, size_t len,
                               const struct text_span *spans, size_t n_spans, bool at_start,
                               struct buf *ids, struct error *err)
{
    struct encoding e = {.v = v, .out = ids, .err = err, .may_prefix = at_start};
    size_t before = ids->len;
    enum status rc;

    check_spans(spans, n_spans, len);
    if (len > INT32_MAX)
        return encoding_too_long(&e, len);
    if (!utf8_is_valid(text, len))
        return error_set(err, STATUS_INVALID, "the text is not UTF-8");
    buf_init(&e.plain, SIZE_MAX);
    rc = encoding_spans(&e, text, spans, n_spans);
    if (rc != STATUS_OK && ids->data != NULL) {
        ids->len = before;
        ids->data[before] = '\0';
    }
    encoding_deinit(&e);
    return rc;
}

enum status vocab_encode(const struct vocab *v, const char *text, size_t len, struct buf *ids,
                         struct error *err)
{
    const struct text_span span = {len, false};

    return vocab_encode_spans(v, text, len, &span, 1, true, ids, err);
}
