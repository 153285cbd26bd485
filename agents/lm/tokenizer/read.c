#include "agents/lm/tokenizer/read.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/utf8.h"
#include "compute/gguf/gguf.h"

enum { ALPHABET_END = 324, SHOWN_MAX = 40 };

static const char tokens_key[] = "tokenizer.ggml.tokens";
static const char types_key[] = "tokenizer.ggml.token_type";
static const char merges_key[] = "tokenizer.ggml.merges";

/* Keys whose token ends a turn, and the texts of control tokens that do. */
static const char *const end_keys[] = {
    "tokenizer.ggml.eos_token_id",
    "tokenizer.ggml.eot_token_id",
    "tokenizer.ggml.eom_token_id",
};
static const char *const end_texts[] = {
    "<|im_end|>",      "<|eot_id|>", "<|eom_id|>",    "<|endoftext|>", "<|end|>",
    "<|end_of_text|>", "<EOT>",      "<end_of_turn>", "<|end_turn|>",  "</s>",
};

/* The byte alphabet of GPT-2: printable bytes of Latin-1 stand for themselves, the others for the
 * characters from U+0100 on, in order. */
static void fill_alphabet(int16_t byte_of[ALPHABET_END])
{
    int next = 256;

    for (int i = 0; i < ALPHABET_END; i++)
        byte_of[i] = -1;
    for (int b = 0; b < VOCAB_BYTES; b++) {
        bool is_printable =
            (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);

        byte_of[is_printable ? b : next++] = (int16_t)b;
    }
    assert(next == ALPHABET_END);
}

/* Decodes text in the byte alphabet to bytes; false if a character is not in the alphabet. out has
 * room for len. */
static bool vocab_read_decode(const int16_t byte_of[ALPHABET_END], const char *text, size_t len,
                              char *out, size_t *ret_len)
{
    size_t n = 0;

    while (len > 0) {
        uint32_t c;
        size_t n_bytes = utf8_decode(text, len, &c);

        if (n_bytes == 0 || c >= ALPHABET_END || byte_of[c] < 0)
            return false;
        out[n++] = (char)byte_of[c];
        text += n_bytes;
        len -= n_bytes;
    }
    *ret_len = n;
    return true;
}

static enum status read_type(const struct gguf *g, size_t i, uint8_t *ret_type, struct error *err)
{
    int64_t type;

    if (gguf_array_i64(g, types_key, i, &type, err) != STATUS_OK)
        return err->status;
    if (type < TOKEN_NORMAL || type > TOKEN_BYTE)
        return error_set(err, STATUS_DATA_LOSS, "%s: %s: entry %zu is %lld, which is no type",
                         gguf_path(g), types_key, i, (long long)type);
    *ret_type = (uint8_t)type;
    return STATUS_OK;
}

/* Counts the tokens and their bytes, and allocates. */
static enum status size_tokens(struct vocab *v, struct gguf *g, bool *ret_has_types,
                               struct error *err)
{
    size_t n_types = 0, n_slots = 16, total = 0;
    enum status rc;

    if (gguf_array_len(g, tokens_key, &v->n, err) != STATUS_OK)
        return err->status;
    rc = gguf_array_len(g, types_key, &n_types, err);
    if (rc != STATUS_OK && rc != STATUS_NOT_FOUND)
        return rc;
    *ret_has_types = rc == STATUS_OK;
    if (*ret_has_types && n_types != v->n)
        return error_set(err, STATUS_DATA_LOSS, "%s: %s has %zu entries, %s has %zu", gguf_path(g),
                         tokens_key, v->n, types_key, n_types);
    if (v->n == 0 || v->n > INT32_MAX / 4)
        return error_set(err, STATUS_DATA_LOSS, "%s: %s has %zu entries", gguf_path(g), tokens_key,
                         v->n);
    for (size_t i = 0; i < v->n; i++) {
        const char *text;
        size_t len;

        if (gguf_array_text(g, tokens_key, i, &text, &len, err) != STATUS_OK)
            return err->status;
        if (len > UINT32_MAX - total)
            return error_set(err, STATUS_UNIMPLEMENTED, "%s: %s is larger than 4 GiB", gguf_path(g),
                             tokens_key);
        total += len;
    }
    while (n_slots < 2 * v->n)
        n_slots *= 2;
    v->lookup_mask = n_slots - 1;
    v->bytes = try_alloc(total + 1, 1);
    v->starts = try_alloc(v->n + 1, sizeof *v->starts);
    v->types = try_alloc(v->n, sizeof *v->types);
    v->is_stop_token = try_alloc(v->n, sizeof *v->is_stop_token);
    v->lookup = try_alloc(n_slots, sizeof *v->lookup);
    if (v->bytes == NULL || v->starts == NULL || v->types == NULL || v->is_stop_token == NULL ||
        v->lookup == NULL)
        return error_no_memory(err, total + n_slots * sizeof *v->lookup, tokens_key);
    return STATUS_OK;
}

static enum status read_tokens(struct vocab *v, struct gguf *g, const int16_t byte_of[ALPHABET_END],
                               struct error *err)
{
    uint32_t end = 0;
    bool has_types = false;

    if (size_tokens(v, g, &has_types, err) != STATUS_OK)
        return err->status;
    for (size_t i = 0; i < v->n; i++) {
        uint8_t type = TOKEN_NORMAL;
        const char *text;
        int32_t *slot;
        size_t len;

        if (has_types && read_type(g, i, &type, err) != STATUS_OK)
            return err->status;
        if (gguf_array_text(g, tokens_key, i, &text, &len, err) != STATUS_OK)
            return err->status;
        v->types[i] = type;
        if (type != TOKEN_NORMAL)
            memcpy(v->bytes + end, text, len);
        else if (!vocab_read_decode(byte_of, text, len, v->bytes + end, &len))
            return error_set(err, STATUS_DATA_LOSS,
                             "%s: %s: entry %zu, '%.*s', is not in the byte alphabet", gguf_path(g),
                             tokens_key, i, (int)(len < SHOWN_MAX ? len : SHOWN_MAX), text);
        end += (uint32_t)len;
        v->starts[i + 1] = end;
        if (type != TOKEN_NORMAL || len == 0)
            continue;
        slot = vocab_slot(v, v->bytes + v->starts[i], len);
        if (*slot == 0)
            *slot = (int32_t)i + 1;
    }
    for (int b = 0; b < VOCAB_BYTES; b++)
        v->byte_ids[b] = vocab_find(v, &(char){(char)b}, 1);
    return STATUS_OK;
}

/* A merge is two tokens with a space between them; the byte alphabet has no space. */
static enum status read_merge(struct vocab *v, const int16_t byte_of[ALPHABET_END],
                              const char *text, size_t len, struct buf *bytes, struct error *err)
{
    const char *space = len == 0 ? NULL : memchr(text + 1, ' ', len - 1);
    size_t left_len, right_len;
    int32_t left, right, result;

    if (space == NULL)
        return error_set(err, STATUS_DATA_LOSS, "has no space");
    buf_clear(bytes);
    if (buf_append(bytes, text, len) != STATUS_OK)
        return error_no_memory(err, len, "a merge");
    if (!vocab_read_decode(byte_of, text, (size_t)(space - text), bytes->data, &left_len) ||
        !vocab_read_decode(byte_of, space + 1, len - (size_t)(space - text) - 1,
                           bytes->data + left_len, &right_len))
        return error_set(err, STATUS_DATA_LOSS, "is not in the byte alphabet");
    left = vocab_find(v, bytes->data, left_len);
    right = vocab_find(v, bytes->data + left_len, right_len);
    result = vocab_find(v, bytes->data, left_len + right_len);
    if (left < 0 || right < 0)
        return error_set(err, STATUS_DATA_LOSS, "joins what is no token");
    if (result < 0)
        return error_set(err, STATUS_DATA_LOSS, "gives what is no token");
    merges_add(&v->merges, left, right, result);
    return STATUS_OK;
}

static enum status read_merges(struct vocab *v, struct gguf *g, const int16_t byte_of[ALPHABET_END],
                               struct error *err)
{
    struct buf bytes;
    enum status rc;
    size_t n;

    if (gguf_array_len(g, merges_key, &n, err) != STATUS_OK ||
        merges_open(&v->merges, n, err) != STATUS_OK)
        return err->status;
    buf_init(&bytes, SIZE_MAX);
    rc = STATUS_OK;
    for (size_t i = 0; i < n && rc == STATUS_OK; i++) {
        const char *text;
        size_t len;

        rc = gguf_array_text(g, merges_key, i, &text, &len, err);
        if (rc != STATUS_OK)
            break;
        rc = read_merge(v, byte_of, text, len, &bytes, err);
        if (rc != STATUS_OK)
            (void)error_prefix(err, "%s: %s: entry %zu, '%.*s'", gguf_path(g), merges_key, i,
                               (int)(len < SHOWN_MAX ? len : SHOWN_MAX), text);
    }
    buf_deinit(&bytes);
    return rc;
}

/* -1 if the file has no such key. */
static enum status read_id(const struct vocab *v, const struct gguf *g, const char *key,
                           int32_t *ret_id, struct error *err)
{
    uint64_t id;
    enum status rc = gguf_get_u64(g, key, &id, err);

    *ret_id = -1;
    if (rc == STATUS_NOT_FOUND)
        return STATUS_OK;
    if (rc != STATUS_OK)
        return rc;
    if (id == UINT32_MAX) /* how some converters write "none" */
        return STATUS_OK;
    if (id >= v->n)
        return error_set(err, STATUS_DATA_LOSS, "%s: %s is %llu, the vocabulary has %zu tokens",
                         gguf_path(g), key, (unsigned long long)id, v->n);
    *ret_id = (int32_t)id;
    return STATUS_OK;
}

static enum status find_ends(struct vocab *v, const struct gguf *g, struct error *err)
{
    size_t n = 0;

    for (size_t i = 0; i < sizeof end_keys / sizeof end_keys[0]; i++) {
        int32_t id;

        if (read_id(v, g, end_keys[i], &id, err) != STATUS_OK)
            return err->status;
        if (id >= 0)
            v->is_stop_token[id] = true;
        if (i == 0)
            v->eos = id;
    }
    for (size_t i = 0; i < sizeof end_texts / sizeof end_texts[0]; i++) {
        int32_t id = vocab_find_control(v, end_texts[i]);

        if (id >= 0)
            v->is_stop_token[id] = true;
    }
    for (size_t i = 0; i < v->n; i++)
        n += v->is_stop_token[i];
    v->stop_tokens = try_alloc(n + 1, sizeof *v->stop_tokens);
    if (v->stop_tokens == NULL)
        return error_no_memory(err, (n + 1) * sizeof *v->stop_tokens, "end tokens");
    for (size_t i = 0; i < v->n; i++)
        if (v->is_stop_token[i])
            v->stop_tokens[v->n_stop_tokens++] = (int32_t)i;
    return STATUS_OK;
}

static bool is_defined(int type)
{
    return type == TOKEN_USER_DEFINED;
}

static bool is_special(int type)
{
    return type == TOKEN_USER_DEFINED || type == TOKEN_CONTROL || type == TOKEN_UNKNOWN;
}

static enum status read_specials(struct vocab *v, struct error *err)
{
    if (specials_open(&v->defined, v, is_defined, err) != STATUS_OK)
        return err->status;
    return specials_open(&v->specials, v, is_special, err);
}

static enum status open_pretokenizer(struct vocab *v, const struct gguf *g, struct error *err)
{
    const char *text;
    enum status rc;
    size_t len;

    if (gguf_get_text(g, "tokenizer.ggml.model", &text, &len, err) != STATUS_OK)
        return err->status;
    if (len != 4 || memcmp(text, "gpt2", 4) != 0)
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "%s: tokenizer '%.*s' is unknown; known: gpt2 (byte-level BPE)",
                         gguf_path(g), (int)(len < SHOWN_MAX ? len : SHOWN_MAX), text);
    rc = gguf_get_text(g, "tokenizer.ggml.pre", &text, &len, err);
    if (rc == STATUS_NOT_FOUND) {
        text = "default";
        len = strlen(text);
        rc = STATUS_OK;
    }
    if (rc != STATUS_OK)
        return rc;
    if (pretokenizer_open(&v->pretokenizer, text, len, err) != STATUS_OK)
        return error_prefix(err, "%s", gguf_path(g));
    return STATUS_OK;
}

static enum status read_bos(struct vocab *v, const struct gguf *g, struct error *err)
{
    enum status rc = read_id(v, g, "tokenizer.ggml.bos_token_id", &v->bos, err);

    if (rc != STATUS_OK)
        return rc;
    rc = gguf_get_bool(g, "tokenizer.ggml.add_bos_token", &v->adds_bos, err);
    if (rc == STATUS_NOT_FOUND) {
        v->adds_bos = pretokenizer_adds_bos(v->pretokenizer);
        rc = STATUS_OK;
    }
    v->adds_bos = v->adds_bos && v->bos >= 0;
    return rc;
}

enum status vocab_read(struct vocab *v, struct gguf *g, struct error *err)
{
    int16_t byte_of[ALPHABET_END];

    fill_alphabet(byte_of);
    if (open_pretokenizer(v, g, err) != STATUS_OK || read_tokens(v, g, byte_of, err) != STATUS_OK ||
        read_merges(v, g, byte_of, err) != STATUS_OK || read_bos(v, g, err) != STATUS_OK ||
        find_ends(v, g, err) != STATUS_OK)
        return err->status;
    return read_specials(v, err);
}
