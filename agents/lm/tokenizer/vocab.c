#include "agents/lm/tokenizer/vocab.h"

#include <stdlib.h>

#include "agents/lm/tokenizer/read.h"
#include "agents/lm/tokenizer/specials.h"
#include "agents/lm/tokenizer/table.h"
#include "base/alloc.h"

enum status vocab_open(struct vocab **out, struct gguf *g, struct error *err)
{
    struct vocab *v = try_alloc(1, sizeof(*v));
    enum status rc;

    if (v == NULL)
        return error_no_memory(err, sizeof(*v), "a vocabulary");
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
    free(v->ranks);
    free(v->scores);
    charsmap_close(&v->charsmap);
    specials_close(&v->defined);
    specials_close(&v->specials);
    free(v->stop_tokens);
    free(v->unused);
    free(v->is_stop_token);
    free(v->types);
    free(v->trims);
    free(v->starts);
    free(v->bytes);
    free(v);
}

size_t vocab_n_tokens(const struct vocab *v)
{
    return v->n;
}

const int32_t *vocab_unused(const struct vocab *v, size_t *ret_n)
{
    *ret_n = v->n_unused;
    return v->unused;
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

bool vocab_adds_eos(const struct vocab *v)
{
    return v->adds_eos;
}

enum status vocab_encode_pair(const struct vocab *v, const char *text, size_t len,
                              const char *second, size_t second_len, struct buf *ids,
                              size_t *ret_n_first, struct error *err)
{
    const int32_t end = v->separator >= 0 ? v->separator : v->eos;
    enum status rc = vocab_append_ids(ids, &v->bos, v->bos >= 0, err);

    if (rc == STATUS_OK)
        rc = vocab_encode(v, text, len, ids, err);
    if (rc == STATUS_OK)
        rc = vocab_append_ids(ids, &end, end >= 0, err);
    if (rc == STATUS_OK && second != NULL && v->kind == VOCAB_UGM)
        rc = vocab_append_ids(ids, &end, end >= 0, err);
    *ret_n_first = ids->len / sizeof(int32_t);
    if (rc == STATUS_OK && second != NULL)
        rc = vocab_encode(v, second, second_len, ids, err);
    return rc == STATUS_OK && second != NULL ? vocab_append_ids(ids, &end, end >= 0, err) : rc;
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

bool vocab_fill_in(const struct vocab *v, struct fill_in_tokens *out)
{
    *out = v->fill_in;
    return out->prefix >= 0 && out->suffix >= 0 && out->middle >= 0;
}

int32_t vocab_control(const struct vocab *v, const char *text)
{
    return vocab_find_control(v, text);
}

enum status vocab_bytes(const struct vocab *v, int32_t id, bool with_control,
                        const char **ret_bytes, size_t *ret_len, struct error *err)
{
    if (!has_id(v, id))
        return error_set(err, STATUS_INVALID,
                         "token %d is not in the vocabulary, which has %zu tokens", id, v->n);
    *ret_bytes = vocab_token_bytes(v, id, ret_len);
    if (vocab_is_control(v, id) && !with_control)
        *ret_len = 0;
    return STATUS_OK;
}

/* Whether the text of ids [n] begins with the space that encoding puts there. A bos may stand
 * before it. */
static bool has_prefix(const struct vocab *v, const int32_t *ids, size_t n, size_t *ret_at)
{
    *ret_at = n > 1 && v->adds_bos && ids[0] == v->bos;
    return v->has_space_prefix && *ret_at < n && !vocab_is_control(v, ids[*ret_at]);
}

enum status vocab_decode(const struct vocab *v, const int32_t *ids, size_t n, struct buf *text,
                         struct error *err)
{
    size_t prefix_at;
    bool is_prefixed = has_prefix(v, ids, n, &prefix_at);

    for (size_t i = 0; i < n; i++) {
        const char *bytes = NULL;
        size_t len = 0;
        enum status rc = vocab_bytes(v, ids[i], true, &bytes, &len, err);

        if (rc != STATUS_OK)
            return rc;
        if (is_prefixed && i == prefix_at && len > 0 && bytes[0] == ' ') {
            bytes++;
            len--;
        }
        if (buf_append(text, bytes, len) != STATUS_OK)
            return error_no_memory(err, len, "text");
    }
    return STATUS_OK;
}
