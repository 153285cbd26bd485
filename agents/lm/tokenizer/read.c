/* Reads a file's tokens, their types, the special ones, and the merges or scores, and checks each
 * list against the others. What the file leaves out is decided by the kind of its tokenizer. */
#include "agents/lm/tokenizer/read.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "agents/lm/tokenizer/ends.h"
#include "agents/lm/tokenizer/specials.h"
#include "agents/lm/tokenizer/spelling.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "compute/gguf/gguf.h"

enum { SHOWN_MAX = 40 };

static const char tokens_key[] = "tokenizer.ggml.tokens";
static const char types_key[] = "tokenizer.ggml.token_type";
static const char scores_key[] = "tokenizer.ggml.scores";
static const char merges_key[] = "tokenizer.ggml.merges";
static const char trims_key[] = "tokenizer.parley.trims"; /* ours: hf_tokenizer.c writes it */

static enum status read_rule(bool *out, const struct gguf *g, const char *key, bool if_absent,
                             struct error *err)
{
    enum status rc = gguf_get_bool(g, key, out, err);

    if (rc != STATUS_NOT_FOUND)
        return rc;
    *out = if_absent;
    return STATUS_OK;
}

static enum status read_type(const struct gguf *g, size_t i, uint8_t *ret_type, struct error *err)
{
    int64_t type;

    if (gguf_array_i64(g, types_key, i, &type, err) != STATUS_OK)
        return err->status;
    if (type < TOKEN_NORMAL || type > TOKEN_BYTE)
        return error_set(err, STATUS_DATA_LOSS,
                         "%s: %s: entry %zu is %lld, which is not a token type", gguf_path(g),
                         types_key, i, (long long)type);
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
    v->starts = try_alloc(v->n + 1, sizeof(*v->starts));
    v->types = try_alloc(v->n, sizeof(*v->types));
    v->is_stop_token = try_alloc(v->n, sizeof(*v->is_stop_token));
    v->lookup = try_alloc(n_slots, sizeof(*v->lookup));
    if (v->bytes == NULL || v->starts == NULL || v->types == NULL || v->is_stop_token == NULL ||
        v->lookup == NULL)
        return error_no_memory(err, total + n_slots * sizeof(*v->lookup), tokens_key);
    return STATUS_OK;
}

/* The type that counts: tokens that end turns are control tokens. Without types all are normal. */
static enum status read_type_of(const struct gguf *g, bool has_types, size_t i, const char *text,
                                size_t len, uint8_t *ret_type, struct error *err)
{
    *ret_type = TOKEN_NORMAL;
    if (!has_types)
        return STATUS_OK;
    if (read_type(g, i, ret_type, err) != STATUS_OK)
        return err->status;
    if (ends_is_end_text(text, len))
        *ret_type = TOKEN_CONTROL;
    return STATUS_OK;
}

/* The bytes that token i stands for; *ret_is_found: by these bytes it is found in text. */
static enum status read_bytes(struct vocab *v, const struct gguf *g,
                              const struct spelling *spelling, size_t i, const char *text,
                              size_t len, bool *ret_is_found, struct error *err)
{
    char *bytes = v->bytes + v->starts[i];
    size_t n = len;

    if (v->types[i] == TOKEN_NORMAL && v->kind == VOCAB_WPM) {
        n = spelling_unescape_first(text, len, bytes);
    } else if (v->types[i] == TOKEN_NORMAL) {
        if (!spelling_decode(spelling, text, len, bytes, &n))
            return error_set(err, STATUS_DATA_LOSS,
                             "%s: %s: entry %zu, '%.*s', is not in the byte alphabet", gguf_path(g),
                             tokens_key, i, (int)(len < SHOWN_MAX ? len : SHOWN_MAX), text);
    } else if (v->types[i] == TOKEN_BYTE && v->kind != VOCAB_BYTES_BPE) {
        int byte = spelling_byte(text, len);

        if (byte < 0)
            return error_set(err, STATUS_DATA_LOSS, "%s: %s: entry %zu, '%.*s', is not a byte",
                             gguf_path(g), tokens_key, i, (int)(len < SHOWN_MAX ? len : SHOWN_MAX),
                             text);
        bytes[0] = (char)byte;
        n = 1;
        v->byte_ids[byte] = (int32_t)i;
    } else {
        memcpy(bytes, text, len);
    }
    v->starts[i + 1] = v->starts[i] + (uint32_t)n;
    /* In text a space is written U+2581: a token with a space of its own is never found. */
    *ret_is_found = v->types[i] == TOKEN_NORMAL && n > 0 &&
                    (v->kind == VOCAB_BYTES_BPE || memchr(text, ' ', len) == NULL);
    return STATUS_OK;
}

static enum status read_token(struct vocab *v, struct gguf *g, const struct spelling *spelling,
                              bool has_types, size_t i, struct error *err)
{
    const char *text;
    bool is_found = false;
    int32_t *slot;
    size_t len;

    if (gguf_array_text(g, tokens_key, i, &text, &len, err) != STATUS_OK ||
        read_type_of(g, has_types, i, text, len, &v->types[i], err) != STATUS_OK ||
        read_bytes(v, g, spelling, i, text, len, &is_found, err) != STATUS_OK)
        return err->status;
    if (!is_found)
        return STATUS_OK;
    len = v->starts[i + 1] - v->starts[i];
    v->longest = len > v->longest ? len : v->longest;
    slot = vocab_slot(v, v->bytes + v->starts[i], len);
    if (*slot == 0)
        *slot = (int32_t)i + 1;
    return STATUS_OK;
}

static enum status read_tokens(struct vocab *v, struct gguf *g, const struct spelling *spelling,
                               struct error *err)
{
    bool has_types = false;

    if (size_tokens(v, g, &has_types, err) != STATUS_OK)
        return err->status;
    for (int b = 0; b < VOCAB_BYTES; b++)
        v->byte_ids[b] = -1;
    for (size_t i = 0; i < v->n; i++)
        if (read_token(v, g, spelling, has_types, i, err) != STATUS_OK)
            return err->status;
    for (int b = 0; v->kind == VOCAB_BYTES_BPE && b < VOCAB_BYTES; b++)
        v->byte_ids[b] = vocab_find(v, &(char){(char)b}, 1);
    return STATUS_OK;
}

static enum status read_unused(struct vocab *v, struct error *err)
{
    size_t n = 0;

    for (size_t i = 0; i < v->n; i++)
        n += v->types[i] == TOKEN_UNUSED;
    v->unused = try_alloc(n + 1, sizeof(*v->unused));
    if (v->unused == NULL)
        return error_no_memory(err, n * sizeof(*v->unused), types_key);
    for (size_t i = 0; i < v->n; i++)
        if (v->types[i] == TOKEN_UNUSED)
            v->unused[v->n_unused++] = (int32_t)i;
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

/* Higher scores have lower ranks. */
static uint32_t rank_of_score(float score)
{
    uint32_t bits;

    score += 0.0f; /* -0 equals 0 */
    memcpy(&bits, &score, sizeof(bits));
    return bits >> 31 != 0 ? bits : ~(bits | 1u << 31);
}

static enum status read_scores(struct vocab *v, const struct gguf *g, struct error *err)
{
    size_t n;

    if (gguf_array_len(g, scores_key, &n, err) != STATUS_OK)
        return err->status;
    if (n != v->n)
        return error_set(err, STATUS_DATA_LOSS, "%s: %s has %zu entries, %s has %zu", gguf_path(g),
                         tokens_key, v->n, scores_key, n);
    v->ranks = try_alloc(n, sizeof(*v->ranks));
    v->scores = v->kind == VOCAB_UGM ? try_alloc(n, sizeof(*v->scores)) : NULL;
    if (v->ranks == NULL || (v->kind == VOCAB_UGM && v->scores == NULL))
        return error_no_memory(err, n * sizeof(*v->ranks), scores_key);
    for (size_t i = 0; i < n; i++) {
        double score;

        if (gguf_array_f64(g, scores_key, i, &score, err) != STATUS_OK)
            return err->status;
        if (!isfinite(score))
            return error_set(err, STATUS_DATA_LOSS, "%s: %s: entry %zu is not a finite number",
                             gguf_path(g), scores_key, i);
        v->ranks[i] = rank_of_score((float)score);
        if (v->scores == NULL)
            continue;
        v->scores[i] = (float)score;
        if (v->types[i] == TOKEN_NORMAL && score < v->least_score)
            v->least_score = score;
    }
    return STATUS_OK;
}

/* An array of bytes, signed or not. */
static enum status read_charsmap(struct vocab *v, const struct gguf *g, struct error *err)
{
    static const char key[] = "tokenizer.ggml.precompiled_charsmap";
    uint8_t *bytes;
    size_t n;
    enum status rc = gguf_array_len(g, key, &n, err);

    if (rc != STATUS_OK || n == 0)
        return rc == STATUS_NOT_FOUND ? STATUS_OK : rc;
    bytes = try_alloc(n, 1);
    if (bytes == NULL)
        return error_no_memory(err, n, key);
    for (size_t i = 0; rc == STATUS_OK && i < n; i++) {
        int64_t byte = 0;

        rc = gguf_array_i64(g, key, i, &byte, err);
        bytes[i] = (uint8_t)byte;
    }
    if (rc == STATUS_OK && charsmap_open(&v->charsmap, bytes, n, err) != STATUS_OK)
        rc = error_set(err, STATUS_DATA_LOSS, "%s: %s is cut short", gguf_path(g), key);
    free(bytes);
    return rc;
}

static enum status read_unigrams(struct vocab *v, const struct gguf *g, struct error *err)
{
    if (read_scores(v, g, err) != STATUS_OK || read_charsmap(v, g, err) != STATUS_OK)
        return err->status;
    if (read_rule(&v->removes_spaces, g, "tokenizer.ggml.remove_extra_whitespaces", true, err) !=
            STATUS_OK ||
        read_rule(&v->trims_left, g, "tokenizer.parley.trim_left", v->removes_spaces, err) !=
            STATUS_OK ||
        read_rule(&v->trims_right, g, "tokenizer.parley.trim_right", v->removes_spaces, err) !=
            STATUS_OK)
        return err->status;
    if (read_rule(&v->maps_graphemes, g, "tokenizer.parley.map_graphemes", false, err) != STATUS_OK)
        return err->status;
    return read_rule(&v->cuts_at_white_space, g, "tokenizer.parley.split_white_space", false, err);
}

/* Whether a token of words has a capital letter: such a vocabulary tells cases apart. */
static bool has_capitals(const struct vocab *v)
{
    for (size_t i = 0; i < v->n; i++) {
        size_t len;
        const char *text = vocab_token_bytes(v, (int32_t)i, &len);

        for (size_t k = 0; v->types[i] == TOKEN_NORMAL && k < len; k++)
            if (text[k] >= 'A' && text[k] <= 'Z')
                return true;
    }
    return false;
}

/* GGUF files do not say what is done to letters; folders of safetensors do. */
static enum status read_words(struct vocab *v, const struct gguf *g, struct error *err)
{
    if (read_rule(&v->folds_case, g, "tokenizer.parley.lowercase", !has_capitals(v), err) !=
        STATUS_OK)
        return err->status;
    return read_rule(&v->strips_accents, g, "tokenizer.parley.strip_accents", v->folds_case, err);
}

/* A merge is two tokens with a space between them; the byte alphabet has no space. */
static enum status read_merge(struct vocab *v, const struct spelling *spelling, const char *text,
                              size_t len, struct buf *bytes, struct error *err)
{
    const char *space = len == 0 ? NULL : memchr(text + 1, ' ', len - 1);
    size_t left_len, right_len;
    int32_t left, right, result;

    if (space == NULL)
        return error_set(err, STATUS_DATA_LOSS, "has no space");
    buf_clear(bytes);
    if (buf_append(bytes, text, len) != STATUS_OK)
        return error_no_memory(err, len, "a merge");
    if (!spelling_decode(spelling, text, (size_t)(space - text), bytes->data, &left_len) ||
        !spelling_decode(spelling, space + 1, len - (size_t)(space - text) - 1,
                         bytes->data + left_len, &right_len))
        return error_set(err, STATUS_DATA_LOSS, "is not in the byte alphabet");
    left = vocab_find(v, bytes->data, left_len);
    right = vocab_find(v, bytes->data + left_len, right_len);
    result = vocab_find(v, bytes->data, left_len + right_len);
    if (left >= 0 && right >= 0 && result >= 0) {
        merges_add(&v->merges, left, right, result);
        return STATUS_OK;
    }
    /* Text never becomes a control token, and user-defined ones are found before text is merged. */
    if (specials_has(&v->specials, v, bytes->data, left_len) ||
        specials_has(&v->specials, v, bytes->data + left_len, right_len) ||
        specials_has(&v->specials, v, bytes->data, left_len + right_len))
        return STATUS_OK;
    return error_set(err, STATUS_DATA_LOSS,
                     left < 0 || right < 0 ? "joins a text that is not a token"
                                           : "makes a text that is not a token");
}

static enum status read_merges(struct vocab *v, struct gguf *g, const struct spelling *spelling,
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
        rc = read_merge(v, spelling, text, len, &bytes, err);
        if (rc != STATUS_OK)
            (void)error_prefix(err, "%s: %s: entry %zu, '%.*s'", gguf_path(g), merges_key, i,
                               (int)(len < SHOWN_MAX ? len : SHOWN_MAX), text);
    }
    buf_deinit(&bytes);
    return rc;
}

static enum status read_pieces(struct vocab *v, struct gguf *g, const struct spelling *spelling,
                               struct error *err)
{
    switch (v->kind) {
    case VOCAB_SPM:
        return read_scores(v, g, err);
    case VOCAB_UGM:
        return read_unigrams(v, g, err);
    case VOCAB_WPM:
        return read_words(v, g, err);
    default:
        return read_merges(v, g, spelling, err);
    }
}

/* The kinds by the value of tokenizer.ggml.model. */
static const struct {
    const char *name;
    enum vocab_kind kind;
} kinds[] = {
    {"gpt2", VOCAB_BYTES_BPE}, {"llama", VOCAB_SPM},
    {"gemma4", VOCAB_GEMMA4},  {"bert", VOCAB_WPM},
    {"t5", VOCAB_UGM},         {"text-bpe", VOCAB_TEXT_BPE}}; /* ours: hf_tokenizer.c writes it */

static enum status read_model_kind(struct vocab *v, const struct gguf *g, struct error *err)
{
    const char *text;
    size_t len;

    if (gguf_get_text(g, "tokenizer.ggml.model", &text, &len, err) != STATUS_OK)
        return err->status;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (strlen(kinds[i].name) == len && memcmp(kinds[i].name, text, len) == 0) {
            v->kind = kinds[i].kind;
            return STATUS_OK;
        }
    return error_set(err, STATUS_UNIMPLEMENTED,
                     "%s: tokenizer '%.*s' is unknown; known: gpt2 (byte-level BPE), llama (SPM), "
                     "gemma4 (BPE), bert (WordPiece), t5 (unigram)",
                     gguf_path(g), (int)(len < SHOWN_MAX ? len : SHOWN_MAX), text);
}

static enum status open_pretokenizer(struct vocab *v, const struct gguf *g, struct error *err)
{
    const char *text = "gemma4";
    enum status rc = STATUS_NOT_FOUND;
    size_t len;

    if (v->kind == VOCAB_SPM || v->kind == VOCAB_WPM || v->kind == VOCAB_UGM)
        return STATUS_OK;
    if (v->kind != VOCAB_GEMMA4) {
        text = v->kind == VOCAB_BYTES_BPE ? "default" : "whole";
        rc = gguf_get_text(g, "tokenizer.ggml.pre", &text, &len, err);
    }
    if (rc == STATUS_NOT_FOUND)
        len = strlen(text);
    else if (rc != STATUS_OK)
        return rc;
    if (pretokenizer_open(&v->pretokenizer, text, len, err) != STATUS_OK)
        return error_prefix(err, "%s", gguf_path(g));
    return STATUS_OK;
}

/* Whether prompts begin with bos if the file does not say. */
static bool adds_bos_by_kind(const struct vocab *v)
{
    return v->pretokenizer == NULL || pretokenizer_adds_bos(v->pretokenizer);
}

/* The token between two texts, and those that begin and end each. Encoders' files name them by what
 * BERT calls them, one of them with a letter too few. */
static enum status read_separator(struct vocab *v, const struct gguf *g, struct error *err)
{
    const bool is_wpm = v->kind == VOCAB_WPM;
    int32_t cls;

    if (ends_read_id(v, g, "tokenizer.ggml.seperator_token_id",
                     is_wpm ? vocab_find_control(v, "[SEP]") : -1, &v->separator, err) != 0 ||
        ends_read_id(v, g, "tokenizer.ggml.cls_token_id",
                     is_wpm ? vocab_find_control(v, "[CLS]") : -1, &cls, err) != 0)
        return err->status;
    if (cls >= 0 && (is_wpm || v->bos < 0))
        v->bos = cls;
    return read_rule(&v->adds_eos, g, "tokenizer.ggml.add_eos_token", false, err);
}

static int32_t unknown_if_absent(const struct vocab *v)
{
    if (v->kind == VOCAB_SPM)
        return 0;
    if (v->kind == VOCAB_WPM)
        return vocab_find_control(v, "[UNK]");
    return v->kind == VOCAB_UGM ? vocab_find_control(v, "<unk>") : -1;
}

static enum status read_bos(struct vocab *v, const struct gguf *g, struct error *err)
{
    const bool is_spm = v->kind == VOCAB_SPM;
    enum status rc;

    if (ends_read_id(v, g, "tokenizer.ggml.bos_token_id", is_spm ? 1 : -1, &v->bos, err) != 0 ||
        ends_read_id(v, g, "tokenizer.ggml.unknown_token_id", unknown_if_absent(v), &v->unknown,
                     err) != 0 ||
        read_separator(v, g, err) != STATUS_OK)
        return err->status;
    if (v->kind == VOCAB_UGM && v->unknown < 0)
        return error_set(err, STATUS_DATA_LOSS, "%s: tokenizer.ggml.unknown_token_id is missing",
                         gguf_path(g));
    rc = gguf_get_bool(g, "tokenizer.ggml.add_bos_token", &v->adds_bos, err);
    if (rc != STATUS_OK && rc != STATUS_NOT_FOUND)
        return rc;
    if (rc == STATUS_NOT_FOUND || v->kind == VOCAB_GEMMA4)
        v->adds_bos = adds_bos_by_kind(v);
    v->adds_bos = v->adds_bos && v->bos >= 0;
    return STATUS_OK;
}

static enum status read_whole_words(struct vocab *v, const struct gguf *g, struct error *err)
{
    if (v->kind == VOCAB_BYTES_BPE || v->kind == VOCAB_TEXT_BPE)
        return read_rule(&v->prefers_whole, g, "tokenizer.parley.ignore_merges",
                         pretokenizer_prefers_whole(v->pretokenizer), err);
    return STATUS_OK;
}

static enum status read_prefix(struct vocab *v, const struct gguf *g, struct error *err)
{
    if (v->kind != VOCAB_SPM && v->kind != VOCAB_TEXT_BPE && v->kind != VOCAB_UGM)
        return STATUS_OK;
    if (read_rule(&v->has_space_prefix, g, "tokenizer.ggml.add_space_prefix",
                  v->kind != VOCAB_TEXT_BPE, err) != STATUS_OK ||
        read_rule(&v->prefixes_once, g, "tokenizer.parley.space_prefix_once", false, err) !=
            STATUS_OK)
        return err->status;
    return read_rule(&v->prefixes_missing, g, "tokenizer.parley.space_prefix_missing", false, err);
}

static enum status open_trims(struct vocab *v, struct error *err)
{
    v->trims = try_alloc(v->n, sizeof(*v->trims));
    return v->trims != NULL ? STATUS_OK : error_no_memory(err, v->n, trims_key);
}

static bool is_text(const char *a, size_t len, const char *b)
{
    return strlen(b) == len && memcmp(a, b, len) == 0;
}

/* Phi-3's files do not say that its special tokens take the white space behind them. As in
 * llama.cpp the model's name tells. */
static enum status trims_by_name(struct vocab *v, const struct gguf *g, struct error *err)
{
    char lower[64] = "";
    const char *name;
    size_t len;

    if (v->kind != VOCAB_SPM || gguf_get_text(g, "general.name", &name, &len, err) != STATUS_OK)
        return STATUS_OK;
    for (size_t i = 0; i < len && i < sizeof(lower) - 1; i++)
        lower[i] = (char)(name[i] >= 'A' && name[i] <= 'Z' ? name[i] - 'A' + 'a' : name[i]);
    if (strstr(lower, "phi-3") == NULL && strstr(lower, "phi3") == NULL)
        return STATUS_OK;
    if (open_trims(v, err) != STATUS_OK)
        return err->status;
    for (size_t i = 0; i < v->n; i++) {
        const char *text = vocab_token_bytes(v, (int32_t)i, &len);

        if (is_special(v->types[i]) && !is_text(text, len, "<unk>") && !is_text(text, len, "<s>") &&
            !is_text(text, len, "<|endoftext|>"))
            v->trims[i] = TRIM_BEHIND;
    }
    return STATUS_OK;
}

static enum status read_trims(struct vocab *v, const struct gguf *g, struct error *err)
{
    size_t n;
    enum status rc = gguf_array_len(g, trims_key, &n, err);

    if (rc == STATUS_NOT_FOUND)
        return trims_by_name(v, g, err);
    if (rc == STATUS_OK && n != v->n)
        return error_set(err, STATUS_DATA_LOSS, "%s: %s has %zu entries, %s has %zu", gguf_path(g),
                         tokens_key, v->n, trims_key, n);
    if (rc != STATUS_OK || open_trims(v, err) != STATUS_OK)
        return err->status;
    for (size_t i = 0; i < n; i++) {
        int64_t trim;

        if (gguf_array_i64(g, trims_key, i, &trim, err) != STATUS_OK)
            return err->status;
        v->trims[i] = (uint8_t)(trim & (TRIM_BEFORE | TRIM_BEHIND));
    }
    return STATUS_OK;
}

enum status vocab_read(struct vocab *v, struct gguf *g, struct error *err)
{
    struct spelling spelling;
    enum status rc;

    if (read_model_kind(v, g, err) != STATUS_OK || open_pretokenizer(v, g, err) != STATUS_OK)
        return err->status;
    spelling_init(&spelling, v->kind == VOCAB_BYTES_BPE);
    if (read_tokens(v, g, &spelling, err) != STATUS_OK || read_unused(v, err) != STATUS_OK ||
        read_specials(v, err) != STATUS_OK)
        return err->status;
    rc = read_pieces(v, g, &spelling, err);
    if (rc != STATUS_OK || read_prefix(v, g, err) != STATUS_OK ||
        read_rule(&v->is_nfc, g, "tokenizer.parley.nfc", false, err) != STATUS_OK ||
        read_whole_words(v, g, err) != STATUS_OK || read_bos(v, g, err) != STATUS_OK ||
        ends_read(v, g, err) != STATUS_OK)
        return err->status;
    return read_trims(v, g, err);
}
