#include "agents/lm/tokenizer/bpe.h"

#include <stdlib.h>

#include "agents/lm/tokenizer/table.h"
#include "base/alloc.h"
#include "base/utf8.h"

struct bpe_run {
    const struct vocab *v;
    struct bpe_work *w;
    struct buf *out;
    struct error *err;
};

void bpe_work_deinit(struct bpe_work *w)
{
    merge_work_deinit(&w->merging);
    free(w->ids);
    *w = (struct bpe_work){0};
}

static enum status bpe_make_room(struct bpe_work *w, size_t n, struct error *err)
{
    size_t cap = w->cap == 0 ? 128 : w->cap;

    if (n <= w->cap)
        return STATUS_OK;
    while (cap < n)
        cap *= 2;
    free(w->ids);
    w->cap = 0;
    w->ids = try_alloc(cap, sizeof(*w->ids));
    if (w->ids == NULL)
        return error_no_memory(err, cap * sizeof(*w->ids), "a long word");
    w->cap = cap;
    return STATUS_OK;
}

static size_t bpe_put_bytes(const struct vocab *v, const char *bytes, size_t n, int32_t *ids)
{
    for (size_t i = 0; i < n; i++)
        ids[i] = v->byte_ids[(unsigned char)bytes[i]];
    return n;
}

/* A character that is no token becomes the tokens of its bytes. */
static size_t bpe_put_characters(const struct vocab *v, const char *text, size_t len, int32_t *ids)
{
    size_t n = 0;

    while (len > 0) {
        uint32_t c;
        size_t n_bytes = utf8_next(text, len, &c);
        int32_t id = vocab_find(v, text, n_bytes);

        if (id >= 0)
            ids[n++] = id;
        else
            n += bpe_put_bytes(v, text, n_bytes, ids + n);
        text += n_bytes;
        len -= n_bytes;
    }
    return n;
}

/* Whether a word that is a token is that token, whatever merges say. */
static bool bpe_prefers_whole(const struct vocab *v, const char *word)
{
    return v->prefers_whole || (v->kind == VOCAB_GEMMA4 && word[0] == '\n');
}

static enum status encode_piece(void *arg, const char *word, size_t len)
{
    struct bpe_run *r = arg;
    const struct vocab *v = r->v;
    int32_t *ids;
    size_t n, n_known = 0;

    if (bpe_prefers_whole(v, word)) {
        int32_t id = vocab_find(v, word, len);

        if (id >= 0)
            return vocab_append_ids(r->out, &id, 1, r->err);
    }
    if (bpe_make_room(r->w, len, r->err) != STATUS_OK)
        return r->err->status;
    ids = r->w->ids;
    n = v->kind == VOCAB_BYTES_BPE ? bpe_put_bytes(v, word, len, ids)
                                   : bpe_put_characters(v, word, len, ids);
    if (merges_apply(&v->merges, &r->w->merging, ids, n, &n, r->err) != STATUS_OK)
        return r->err->status;
    /* Bytes without a token, which kept their neighbours from merging, are left out. */
    for (size_t i = 0; i < n; i++)
        if (ids[i] >= 0)
            ids[n_known++] = ids[i];
    return vocab_append_ids(r->out, ids, n_known, r->err);
}

enum status bpe_encode(struct bpe_work *w, const struct vocab *v, const char *text, size_t len,
                       struct buf *ids, struct error *err)
{
    struct bpe_run r = {v, w, ids, err};

    return pretokenizer_run(v->pretokenizer, text, len, encode_piece, &r, err);
}
