#include "agents/lm/tokenizer/vocab.h"

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
    free(v->defined);
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

/* The longest user-defined token that text begins with, -1 if there is none. */
static int32_t defined_at(const struct vocab *v, const char *text, size_t len)
{
    if (!v->begins_defined[(unsigned char)text[0]])
        return -1;
    for (size_t i = 0; i < v->n_defined; i++) {
        size_t token_len;
        const char *token = vocab_token_bytes(v, v->defined[i], &token_len);

        if (token_len <= len && memcmp(token, text, token_len) == 0)
            return v->defined[i];
    }
    return -1;
}

static enum status encoding_encode(struct encoding *e, const char *text, size_t len)
{
    const struct vocab *v = e->v;
    enum status rc = STATUS_OK;
    size_t at = 0, done = 0;

    while (v->n_defined > 0 && at < len && rc == STATUS_OK) {
        int32_t id = defined_at(v, text + at, len - at);
        size_t token_len;

        if (id < 0) {
            at++;
            continue;
        }
        (void)vocab_token_bytes(v, id, &token_len);
        rc = pretokenizer_run(v->pretokenizer, text + done, at - done, encode_piece, e, e->err);
        if (rc == STATUS_OK)
            rc = encoding_put(e, &id, 1);
        at += token_len;
        done = at;
    }
    if (rc == STATUS_OK)
        rc = pretokenizer_run(v->pretokenizer, text + done, len - done, encode_piece, e, e->err);
    return rc;
}

enum status vocab_encode(const struct vocab *v, const char *text, size_t len, struct buf *ids,
                         struct error *err)
{
    struct encoding e = {.v = v, .out = ids, .err = err};
    size_t before = ids->len;
    enum status rc;

    if (len > INT32_MAX)
        return error_because(err, STATUS_RANGE, REASON_CONTEXT_EXCEEDED, NULL,
                             "text of %zu bytes is more than can be encoded", len);
    if (!utf8_is_valid(text, len))
        return error_set(err, STATUS_INVALID, "the text is not UTF-8");
    rc = encoding_encode(&e, text, len);
    if (rc != STATUS_OK && ids->data != NULL) {
        ids->len = before;
        ids->data[before] = '\0';
    }
    merge_work_deinit(&e.work);
    free(e.ids);
    return rc;
}
