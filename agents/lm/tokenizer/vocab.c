#include "agents/lm/tokenizer/vocab.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "agents/lm/tokenizer/read.h"
#include "agents/lm/tokenizer/table.h"
#include "base/alloc.h"
#include "base/utf8.h"

enum status vocab_open(struct vocab **out, struct gguf *g, struct error *err)
{
    struct vocab *v = try_alloc(1, sizeof *v);
    enum status rc;

    if (v == NULL)
        return error_no_memory(err, sizeof *v, "a vocabulary");
    rc = vocab_read(v, g, err);
    if (rc != STATUS_OK)
        goto out;
    *out = v;
    v = NULL; /* owned by the caller */
out:
    vocab_close(v);
    return rc;
}

void vocab_close(struct vocab *v)
{
    if (v == NULL)
        return;
    pretokenizer_close(v->pretokenizer);
    merges_close(&v->merges);
    free(v->lookup);
    specials_close(&v->defined);
    specials_close(&v->specials);
    free(v->stop_tokens);
    free(v->is_stop_token);
    free(v->types);
    free(v->starts);
    free(v->bytes);
    free(v);
}

size_t vocab_n_tokens(const struct vocab *v)
{
    return v->n;
}

int32_t vocab_bos(const struct vocab *v)
{
    return v->bos;
}

int32_t vocab_eos(const struct vocab *v)
{
    return v->eos;
}

bool vocab_adds_bos(const struct vocab *v)
{
    return v->adds_bos;
}

static bool has_id(const struct vocab *v, int32_t id)
{
    return id >= 0 && (size_t)id < v->n;
}

bool vocab_is_stop_token(const struct vocab *v, int32_t id)
{
    return has_id(v, id) && v->is_stop_token[id];
}

const int32_t *vocab_stop_tokens(const struct vocab *v, size_t *ret_n)
{
    *ret_n = v->n_stop_tokens;
    return v->stop_tokens;
}

bool vocab_is_control(const struct vocab *v, int32_t id)
{
    return has_id(v, id) && (v->types[id] == TOKEN_CONTROL || v->types[id] == TOKEN_UNKNOWN);
}

int32_t vocab_control(const struct vocab *v, const char *text)
{
    return vocab_find_control(v, text);
}

enum status vocab_bytes(const struct vocab *v, int32_t id, bool with_control,
                        const char **ret_bytes, size_t *ret_len, struct error *err)
{
    if (!has_id(v, id))
        return error_set(err, STATUS_INVALID, "token %d is not of the vocabulary, which has %zu",
                         id, v->n);
    *ret_bytes = vocab_token_bytes(v, id, ret_len);
    if (vocab_is_control(v, id) && !with_control)
        *ret_len = 0;
    return STATUS_OK;
}

struct encoding {
    const struct vocab *v;
    struct buf *out;
    struct error *err;
    struct merge_work work;
    int32_t *ids; /* [cap] of the current piece */
    size_t cap;
};

static enum status encoding_put(struct encoding *e, const int32_t *ids, size_t n)
{
    if (buf_append(e->out, ids, n * sizeof *ids) == STATUS_OK)
        return STATUS_OK;
    if (!e->out->is_full)
        return error_no_memory(e->err, n * sizeof *ids, "tokens");
    return error_because(e->err, STATUS_RANGE, REASON_CONTEXT_EXCEEDED, NULL,
                         "the text has more than %zu tokens", e->out->limit_bytes / sizeof *ids);
}

static enum status encoding_make_room(struct encoding *e, size_t n)
{
    size_t cap = e->cap == 0 ? 128 : e->cap;

    if (n <= e->cap)
        return STATUS_OK;
    while (cap < n)
        cap *= 2;
    free(e->ids);
    e->cap = 0;
    e->ids = try_alloc(cap, sizeof *e->ids);
    if (e->ids == NULL)
        return error_no_memory(e->err, cap * sizeof *e->ids, "a long word");
    e->cap = cap;
    return STATUS_OK;
}

static enum status encode_piece(void *arg, const char *piece, size_t len)
{
    struct encoding *e = arg;
    const struct vocab *v = e->v;
    size_t n, n_known = 0;

    if (pretokenizer_prefers_whole(v->pretokenizer)) {
        int32_t id = vocab_find(v, piece, len);

        if (id >= 0)
            return encoding_put(e, &id, 1);
    }
    if (encoding_make_room(e, len) != STATUS_OK)
        return e->err->status;
    for (size_t i = 0; i < len; i++)
        e->ids[i] = v->byte_ids[(unsigned char)piece[i]];
    if (merges_apply(&v->merges, &e->work, e->ids, len, &n, e->err) != STATUS_OK)
        return e->err->status;
    for (size_t i = 0; i < n;
         i++) /* drops bytes without a token, which kept their neighbours from merging */
        if (e->ids[i] >= 0)
            e->ids[n_known++] = e->ids[i];
    return encoding_put(e, e->ids, n_known);
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
            rc = pretokenizer_run(v->pretokenizer, text + done, at - done, encode_piece, e, e->err);
        if (rc == STATUS_OK && id >= 0)
            rc = encoding_put(e, &id, 1);
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
    struct encoding e = {.v = v, .out = ids, .err = err};
    size_t before = ids->len;
    enum status rc;

    (void)at_start; /* byte-level BPE has no space prefix */
    check_spans(spans, n_spans, len);
    if (len > INT32_MAX)
        return error_because(err, STATUS_RANGE, REASON_CONTEXT_EXCEEDED, NULL,
                             "text of %zu bytes is more than can be encoded", len);
    if (!utf8_is_valid(text, len))
        return error_set(err, STATUS_INVALID, "the text is not UTF-8");
    rc = encoding_spans(&e, text, spans, n_spans);
    if (rc != STATUS_OK && ids->data != NULL) {
        ids->len = before;
        ids->data[before] = '\0';
    }
    merge_work_deinit(&e.work);
    free(e.ids);
    return rc;
}

enum status vocab_encode(const struct vocab *v, const char *text, size_t len, struct buf *ids,
                         struct error *err)
{
    const struct text_span span = {len, false};

    return vocab_encode_spans(v, text, len, &span, 1, true, ids, err);
}
