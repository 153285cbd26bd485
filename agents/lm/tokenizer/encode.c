/* Encodes text: special tokens are found first, and the text between them is encoded by the
 * vocabulary's kind. */
#include <assert.h>
#include <stdlib.h>

#include "agents/lm/tokenizer/bpe.h"
#include "agents/lm/tokenizer/spelling.h"
#include "agents/lm/tokenizer/spm.h"
#include "agents/lm/tokenizer/table.h"
#include "agents/lm/tokenizer/vocab.h"
#include "base/alloc.h"
#include "base/utf8.h"

struct encoding {
    const struct vocab *v;
    struct buf *out;
    struct error *err;
    struct bpe_work bpe;
    struct spm_work spm;
    struct buf plain;       /* the current text with spaces for U+2581 */
    bool begins_or_follows; /* the next text begins the prompt or follows a special token */
};

static enum status encoding_no_room(const struct encoding *e, size_t len)
{
    return error_no_memory(e->err, len, "a text");
}

/* U+2581 stands for a space in these vocabularies, so it cannot be told from one in text. */
static enum status encoding_text_escaped(struct encoding *e, const char *text, size_t len)
{
    const bool has_prefix = e->v->has_space_prefix && e->begins_or_follows;

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

static enum status encoding_text(struct encoding *e, const char *text, size_t len)
{
    enum status rc = e->v->kind == VOCAB_BYTES_BPE
                         ? bpe_encode(&e->bpe, e->v, text, len, e->out, e->err)
                         : encoding_text_escaped(e, text, len);

    e->begins_or_follows = false;
    return rc;
}

static enum status encoding_special(struct encoding *e, int32_t id)
{
    e->begins_or_follows = true;
    return vocab_append_ids(e->out, &id, 1, e->err);
}

static void encoding_deinit(struct encoding *e)
{
    bpe_work_deinit(&e->bpe);
    spm_work_deinit(&e->spm);
    buf_deinit(&e->plain);
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

        if (at > done)
            rc = encoding_text(e, text + done, at - done);
        if (rc == STATUS_OK && id >= 0)
            rc = encoding_special(e, id);
        if (id >= 0)
            (void)vocab_token_bytes(v, id, &n_bytes);
        done = at + n_bytes;
    }
    return rc;
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
    struct encoding e = {.v = v, .out = ids, .err = err, .begins_or_follows = at_start};
    size_t before = ids->len;
    enum status rc;

    check_spans(spans, n_spans, len);
    if (len > INT32_MAX)
        return error_because(err, STATUS_RANGE, REASON_CONTEXT_EXCEEDED, NULL,
                             "text of %zu bytes is more than can be encoded", len);
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
