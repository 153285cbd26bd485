#include "agents/lm/tokenizer/detokenizer.h"

#include <string.h>

#include "base/utf8.h"

void detokenizer_init(struct detokenizer *w, const struct vocab *v, const struct sampling *s,
                      size_t limit_bytes)
{
    *w = (struct detokenizer){.vocab = v, .sampling = s};
    buf_init(&w->held, limit_bytes);
}

void detokenizer_deinit(struct detokenizer *w)
{
    buf_deinit(&w->held);
}

/* The longest stop text that ends at end, NULL if none does. */
static const struct text *stop_at(const struct detokenizer *w, size_t end)
{
    const struct sampling *s = w->sampling;
    const struct text *longest = NULL;

    for (size_t i = 0; i < s->n_stops; i++) {
        const struct text *stop = &s->stops[i];

        if (stop->len <= end && (longest == NULL || stop->len > longest->len) &&
            memcmp(w->held.data + end - stop->len, stop->text, stop->len) == 0)
            longest = stop;
    }
    return longest;
}

/* How many of the last bytes held could be the beginning of a stop text. */
static size_t beginning_len(const struct detokenizer *w)
{
    const struct sampling *s = w->sampling;
    size_t longest = 0;

    for (size_t i = 0; i < s->n_stops; i++) {
        const struct text *stop = &s->stops[i];
        size_t len = stop->len - 1 < w->held.len ? stop->len - 1 : w->held.len;

        for (; len > longest; len--)
            if (memcmp(w->held.data + w->held.len - len, stop->text, len) == 0)
                longest = len;
    }
    return longest;
}

/* Shows the first len bytes held. */
static enum status detokenizer_show(struct detokenizer *w, size_t len, struct buf *text,
                                    struct error *err)
{
    size_t before = text->len, from = 0, at = 0;
    enum status rc = STATUS_OK;

    while (at < len && rc == STATUS_OK) {
        uint32_t c;
        size_t n = utf8_decode(w->held.data + at, len - at, &c);

        if (n > 0) {
            at += n;
            continue;
        }
        rc = buf_append(text, w->held.data + from, at - from);
        if (rc == STATUS_OK)
            rc = buf_append_text(text, "\xEF\xBF\xBD");
        at += utf8_next(w->held.data + at, len - at, &c);
        from = at;
    }
    if (rc == STATUS_OK)
        rc = buf_append(text, w->held.data + from, at - from);
    if (rc == STATUS_OK) {
        buf_consume(&w->held, len);
        return STATUS_OK;
    }
    if (text->data != NULL) {
        text->len = before;
        text->data[before] = '\0';
    }
    if (!text->is_full)
        return error_no_memory(err, len, "a reply's text");
    return error_because(err, STATUS_RANGE, REASON_REPLY_TOO_LONG, NULL,
                         "the reply's text is longer than %zu bytes", text->limit_bytes);
}

static bool detokenizer_shows(const struct detokenizer *w, int32_t id)
{
    for (size_t i = 0; i < w->n_shown; i++)
        if (w->shown[i] == id)
            return true;
    return false;
}

enum status detokenizer_add(struct detokenizer *w, int32_t id, struct buf *text, bool *ret_stopped,
                            struct error *err)
{
    size_t before = w->held.len, len;
    const char *bytes;
    enum status rc;

    if (vocab_bytes(w->vocab, id, detokenizer_shows(w, id), &bytes, &len, err) != STATUS_OK)
        return err->status;
    if (buf_append(&w->held, bytes, len) != STATUS_OK)
        return error_no_memory(err, len, "a reply's text");
    w->n_tokens++;
    *ret_stopped = false;
    if (w->n_tokens >= w->sampling->min_tokens) {
        for (size_t end = before + 1; end <= w->held.len; end++) {
            const struct text *stop = stop_at(w, end);

            if (stop == NULL)
                continue;
            rc = detokenizer_show(w, end - stop->len, text, err);
            if (rc == STATUS_OK) {
                buf_clear(&w->held);
                *ret_stopped = true;
            }
            return rc;
        }
    }
    len = w->held.len - beginning_len(w);
    return detokenizer_show(w, utf8_complete_len(w->held.data, len), text, err);
}

enum status detokenizer_end(struct detokenizer *w, struct buf *text, struct error *err)
{
    return detokenizer_show(w, w->held.len, text, err);
}
