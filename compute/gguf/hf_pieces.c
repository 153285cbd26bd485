/* The tokenizers of encoders in a tokenizer.json: BERT's WordPiece, and SentencePiece's unigram
 * model, with what their normalizers and pre_tokenizers do to text. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/base64.h"
#include "compute/gguf/hf_parts.h"

enum { PIECES_SHOWN_MAX = 60, WORD_CHARS = 100, TYPE_NORMAL = 1 };

static const char pieces_blank[] = "\xE2\x96\x81"; /* U+2581, which stands for a space */

static bool is_step_of(const json_t *step, const char *type)
{
    return strcmp(hf_json_text(step, "type"), type) == 0;
}

/* Refuses a step by its type. */
static enum status refuse_step(const char *what, const json_t *step, struct error *err)
{
    return error_set(err, STATUS_UNIMPLEMENTED,
                     "its %s of type '%.*s' is not supported; convert the model to GGUF", what,
                     PIECES_SHOWN_MAX, hf_json_text(step, "type"));
}

/* --- WordPiece --- */

static enum status read_word_pieces(struct hf_splitting *s, const json_t *tokenizer,
                                    struct error *err)
{
    const json_t *model = hf_json_object(tokenizer, "model");
    const json_t *normalizer = hf_json_object(tokenizer, "normalizer");
    const json_t *pre = hf_json_object(tokenizer, "pre_tokenizer");
    const json_t *strips = json_object_get(normalizer, "strip_accents");
    const json_t *most = json_object_get(model, "max_input_chars_per_word");

    if (!is_step_of(normalizer, "BertNormalizer") || !hf_json_is_true(normalizer, "clean_text") ||
        !hf_json_is_true(normalizer, "handle_chinese_chars"))
        return refuse_step("normalizer", normalizer, err);
    if (!is_step_of(pre, "BertPreTokenizer"))
        return refuse_step("pre_tokenizer", pre, err);
    if (strcmp(hf_json_text(model, "continuing_subword_prefix"), "##") != 0 ||
        (most != NULL && json_integer_value(most) != WORD_CHARS))
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "its WordPiece has a continuing_subword_prefix other than ##, or a "
                         "max_input_chars_per_word other than %d; convert the model to GGUF",
                         WORD_CHARS);
    s->model = "bert";
    s->pieces = HF_WORDS;
    s->folds_case = hf_json_is_true(normalizer, "lowercase");
    s->strips_accents = json_is_boolean(strips) ? json_is_true(strips) : s->folds_case;
    return STATUS_OK;
}

/* --- unigrams --- */

/* Whether a step makes one space of several. */
static bool squeezes(const json_t *step)
{
    const char *regex = hf_json_text(hf_json_object(step, "pattern"), "Regex");
    const char *content = hf_json_text(step, "content");

    return is_step_of(step, "Replace") && strcmp(regex, " {2,}") == 0 &&
           (strcmp(content, " ") == 0 || strcmp(content, pieces_blank) == 0);
}

static bool note_normalizer(struct hf_splitting *s, const json_t *step)
{
    const char *map = hf_json_text(step, "precompiled_charsmap");

    if (is_step_of(step, "Precompiled")) {
        if (s->charsmap != NULL)
            return false;
        s->charsmap = *map != '\0' ? map : NULL;
        return true;
    }
    if (is_step_of(step, "Strip")) {
        s->trims_left = hf_json_is_true(step, "strip_left");
        s->trims_right = hf_json_is_true(step, "strip_right");
        return true;
    }
    s->removes_spaces = s->removes_spaces || squeezes(step);
    return squeezes(step);
}

static bool note_pre_tokenizer(struct hf_splitting *s, const json_t *step)
{
    const char *scheme = hf_json_text(step, "prepend_scheme");

    if (is_step_of(step, "WhitespaceSplit")) {
        s->removes_spaces = s->trims_left = s->trims_right = true;
        s->cuts_at_white_space = true;
        return true;
    }
    if (!is_step_of(step, "Metaspace") ||
        strcmp(hf_json_text(step, "replacement"), pieces_blank) != 0)
        return false;
    if (*scheme == '\0')
        scheme = json_is_false(json_object_get(step, "add_prefix_space")) ? "never" : "always";
    s->only_first = strcmp(scheme, "first") == 0;
    s->adds_space = s->only_first || strcmp(scheme, "always") == 0;
    return !json_is_false(json_object_get(step, "split"));
}

static enum status each_step(struct hf_splitting *s, const json_t *tokenizer, const char *name,
                             const char *list, bool (*note)(struct hf_splitting *s, const json_t *),
                             struct error *err)
{
    const json_t *one = hf_json_object(tokenizer, name), *steps = json_object_get(one, list), *step;
    size_t i;

    if (one == NULL)
        return STATUS_OK;
    if (steps == NULL)
        return note(s, one) ? STATUS_OK : refuse_step(name, one, err);
    json_array_foreach(steps, i, step) if (!note(s, step)) return refuse_step(name, step, err);
    return STATUS_OK;
}

static enum status read_unigram_steps(struct hf_splitting *s, const json_t *tokenizer,
                                      struct error *err)
{
    const json_t *model = hf_json_object(tokenizer, "model");

    if (hf_json_is_true(model, "byte_fallback") ||
        !json_is_integer(json_object_get(model, "unk_id")))
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "its unigram model has byte_fallback, or no unk_id; convert the model to "
                         "GGUF");
    s->model = "t5";
    s->pieces = HF_UNIGRAMS;
    if (each_step(s, tokenizer, "normalizer", "normalizers", note_normalizer, err) != STATUS_OK)
        return err->status;
    return each_step(s, tokenizer, "pre_tokenizer", "pretokenizers", note_pre_tokenizer, err);
}

enum status hf_pieces_read(struct hf_splitting *out, const json_t *tokenizer, struct error *err)
{
    struct hf_splitting s = {0};
    const bool is_words = is_step_of(hf_json_object(tokenizer, "model"), "WordPiece");
    enum status rc =
        is_words ? read_word_pieces(&s, tokenizer, err) : read_unigram_steps(&s, tokenizer, err);

    if (rc == STATUS_OK)
        *out = s;
    return rc;
}

/* --- keys --- */

static enum status write_charsmap(struct hf_keys *keys, const char *map, struct error *err)
{
    const size_t len = strlen(map);
    uint8_t *bytes = try_alloc(base64_max_bytes(len), 1);
    size_t n = 0;
    enum status rc = STATUS_OK;

    if (bytes == NULL)
        return error_no_memory(err, len, "its precompiled_charsmap");
    if (!base64_decode(bytes, &n, map, len))
        rc = error_set(err, STATUS_DATA_LOSS, "its precompiled_charsmap is no base64");
    if (rc == STATUS_OK)
        hf_key_numbers(keys, "tokenizer.ggml.precompiled_charsmap", n);
    for (size_t i = 0; rc == STATUS_OK && i < n; i++)
        hf_item_number(keys, bytes[i]);
    free(bytes);
    return rc;
}

/* Ids behind the list, of added tokens, have no score. */
static void write_scores(struct hf_keys *keys, const json_t *vocab, size_t n)
{
    hf_key_floats(keys, "tokenizer.ggml.scores", n);
    for (size_t i = 0; i < n; i++)
        hf_item_float(keys, json_number_value(json_array_get(json_array_get(vocab, i), 1)));
}

enum status hf_pieces_write(struct hf_keys *keys, const struct hf_splitting *s,
                            const json_t *tokenizer, size_t n_tokens, struct error *err)
{
    const json_t *model = hf_json_object(tokenizer, "model");

    if (s->pieces == HF_WORDS) {
        hf_key_bool(keys, "tokenizer.parley.lowercase", s->folds_case);
        hf_key_bool(keys, "tokenizer.parley.strip_accents", s->strips_accents);
        return STATUS_OK;
    }
    hf_key_bool(keys, "tokenizer.ggml.add_space_prefix", s->adds_space);
    hf_key_bool(keys, "tokenizer.parley.space_prefix_once", s->only_first);
    hf_key_bool(keys, "tokenizer.ggml.remove_extra_whitespaces", s->removes_spaces);
    hf_key_bool(keys, "tokenizer.parley.trim_left", s->trims_left);
    hf_key_bool(keys, "tokenizer.parley.trim_right", s->trims_right);
    hf_key_bool(keys, "tokenizer.parley.split_white_space", s->cuts_at_white_space);
    hf_key_bool(keys, "tokenizer.parley.map_graphemes", true);
    hf_key_u64(keys, "tokenizer.ggml.unknown_token_id",
               (uint64_t)json_integer_value(json_object_get(model, "unk_id")));
    write_scores(keys, json_object_get(model, "vocab"), n_tokens);
    return s->charsmap != NULL ? write_charsmap(keys, s->charsmap, err) : STATUS_OK;
}
