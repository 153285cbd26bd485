/* What a tokenizer.json does to text before it merges, as GGUF names it: the normalizer, the
 * pre_tokenizer and the kind of BPE. */
#include <string.h>

#include "compute/gguf/hf_parts.h"

enum { STEPS_MAX = 5, SPLIT_SHOWN_MAX = 60 };

static const char blank[] = "\xE2\x96\x81"; /* U+2581, which stands for a space */

#define SHORT_FORM "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define TAIL "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define SPLIT_GPT4(digits) \
    SHORT_FORM "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" TAIL
#define SPLIT_GPT2 \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define SPLIT_CASED(ending, digits)                                                               \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" ending "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER \
    "*" ending "|" digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" TAIL
#define SPLIT_QWEN35                                    \
    SHORT_FORM "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+" \
               "|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" TAIL
#define SPLIT_DEEPSEEK3                                                                           \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\" \
    "p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*" TAIL

/* The steps of byte-level BPE, as expressions. Digits is \p{N}, ByteLevel's own is GPT-2's. */
static const struct hf_split {
    const char *name; /* tokenizer.ggml.pre */
    const char *steps[STEPS_MAX];
} splits[] = {
    {"llama-bpe", {SPLIT_GPT4("\\p{N}{1,3}")}},
    {"qwen2", {SPLIT_GPT4("\\p{N}")}},
    {"qwen35", {SPLIT_QWEN35}},
    {"tekken", {SPLIT_CASED("", "\\p{N}")}},
    {"gpt-4o", {SPLIT_CASED(SHORT_FORM "?", "\\p{N}{1,3}")}},
    {"deepseek-v3", {"\\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+", SPLIT_DEEPSEEK3}},
    {"deepseek-coder",
     {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", "[一-龥ࠀ-一가-\uD7FF]+", "\\p{N}"}},
    {"smollm", {"\\p{N}", SPLIT_GPT2}},
    {"gpt-2", {SPLIT_GPT2}},
};

/* What the steps of a file ask for. */
struct hf_asked {
    const char *steps[STEPS_MAX];
    size_t n_steps;
    bool keeps_matches_alone; /* what the expression does not match is dropped */
    bool is_byte_level;
    bool is_nfc;
    bool replaces_spaces; /* by U+2581 */
    bool cuts_at_spaces;
    bool adds_space, only_first, only_missing;
};

static bool asked_add(struct hf_asked *a, const char *regex)
{
    if (a->n_steps == STEPS_MAX || a->is_byte_level)
        return false;
    a->steps[a->n_steps++] = regex;
    return true;
}

static bool asked_split(struct hf_asked *a, const json_t *step)
{
    const json_t *pattern = hf_json_object(step, "pattern");
    const char *behavior = hf_json_text(step, "behavior"), *regex = hf_json_text(pattern, "Regex");

    /* Gemma's: the normalizer has left no space to split at. */
    if (strcmp(hf_json_text(pattern, "String"), " ") == 0)
        return a->replaces_spaces;
    if (hf_json_is_true(step, "invert") && strcmp(behavior, "Removed") == 0)
        a->keeps_matches_alone = true;
    else if (hf_json_is_true(step, "invert") || strcmp(behavior, "Isolated") != 0)
        return false;
    return *regex != '\0' && asked_add(a, regex);
}

static bool asked_byte_level(struct hf_asked *a, const json_t *step)
{
    if (hf_json_is_true(step, "add_prefix_space"))
        return false;
    if (!json_is_false(json_object_get(step, "use_regex")) && !asked_add(a, SPLIT_GPT2))
        return false;
    a->is_byte_level = true;
    return true;
}

/* Older files say add_prefix_space, which is true if absent, in place of a scheme. */
static bool asked_metaspace(struct hf_asked *a, const json_t *step)
{
    const json_t *scheme = json_object_get(step, "prepend_scheme");
    const char *name = json_string_value(scheme);

    if (a->adds_space || strcmp(hf_json_text(step, "replacement"), blank) != 0)
        return false;
    if (name == NULL)
        name = json_is_false(json_object_get(step, "add_prefix_space")) ? "never" : "always";
    a->replaces_spaces = true;
    a->cuts_at_spaces = !json_is_false(json_object_get(step, "split"));
    a->only_missing = true;
    a->only_first = strcmp(name, "first") == 0;
    a->adds_space = a->only_first || strcmp(name, "always") == 0;
    return a->adds_space || strcmp(name, "never") == 0;
}

static bool asked_pre_tokenize(struct hf_asked *a, const json_t *step)
{
    const char *type = hf_json_text(step, "type");

    if (strcmp(type, "Split") == 0)
        return asked_split(a, step);
    if (strcmp(type, "Digits") == 0)
        return hf_json_is_true(step, "individual_digits") && asked_add(a, "\\p{N}");
    if (strcmp(type, "ByteLevel") == 0)
        return asked_byte_level(a, step);
    return strcmp(type, "Metaspace") == 0 && asked_metaspace(a, step);
}

static bool asked_normalize(struct hf_asked *a, const json_t *step)
{
    const char *type = hf_json_text(step, "type");

    if (strcmp(type, "Prepend") == 0) {
        a->adds_space = true;
        return strcmp(hf_json_text(step, "prepend"), blank) == 0;
    }
    if (strcmp(type, "Replace") == 0) {
        a->replaces_spaces = true;
        return strcmp(hf_json_text(hf_json_object(step, "pattern"), "String"), " ") == 0 &&
               strcmp(hf_json_text(step, "content"), blank) == 0;
    }
    /* The character that takes a space's place is composed with none, so the order is the same. */
    a->is_nfc = a->is_nfc || strcmp(type, "NFC") == 0;
    return strcmp(type, "NFC") == 0;
}

/* All steps of a Sequence, or the one that stands alone. False for one that is not known. */
static bool asked_each(struct hf_asked *a, const json_t *one, const char *list,
                       bool (*note)(struct hf_asked *a, const json_t *step))
{
    const json_t *steps = json_object_get(one, list), *step;
    size_t i;

    if (one == NULL)
        return true;
    if (steps == NULL)
        return note(a, one);
    json_array_foreach(steps, i, step) if (!note(a, step)) return false;
    return true;
}

static bool has_same_steps(const struct hf_split *split, const struct hf_asked *a)
{
    for (size_t i = 0; i < STEPS_MAX; i++) {
        const char *ours = split->steps[i], *theirs = i < a->n_steps ? a->steps[i] : NULL;

        if (ours == NULL || theirs == NULL)
            return ours == theirs;
        if (strcmp(ours, theirs) != 0)
            return false;
    }
    return true;
}

/* The expressions that stand alone match all of a text: whether the rest is kept is the same. */
static const char *find_split(const struct hf_asked *a)
{
    if (!a->is_byte_level || a->replaces_spaces || a->adds_space ||
        (a->keeps_matches_alone && a->n_steps != 1))
        return NULL;
    for (size_t i = 0; i < sizeof(splits) / sizeof(splits[0]); i++)
        if (has_same_steps(&splits[i], a))
            return splits[i].name;
    return NULL;
}

static enum status check_bpe(const json_t *model, struct error *err)
{
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    const char *type = hf_json_text(model, "type");

    if (strcmp(type, "BPE") != 0)
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "a model of type '%.*s' is not supported; convert the model to GGUF",
                         SPLIT_SHOWN_MAX, type);
    for (size_t i = 0; i < sizeof(affixes) / sizeof(affixes[0]); i++)
        if (*hf_json_text(model, affixes[i]) != '\0')
            return error_set(err, STATUS_UNIMPLEMENTED, "its model has a %s; convert it to GGUF",
                             affixes[i]);
    return STATUS_OK;
}

enum status hf_splitting_read(struct hf_splitting *out, const json_t *tokenizer, struct error *err)
{
    const json_t *model = hf_json_object(tokenizer, "model");
    const json_t *normalizer = hf_json_object(tokenizer, "normalizer");
    const json_t *pre = hf_json_object(tokenizer, "pre_tokenizer");
    struct hf_asked a = {0};
    struct hf_splitting s = {.model = "gpt2",
                             .ignores_merges = hf_json_is_true(model, "ignore_merges")};

    if (strcmp(hf_json_text(model, "type"), "WordPiece") == 0 ||
        strcmp(hf_json_text(model, "type"), "Unigram") == 0)
        return hf_pieces_read(out, tokenizer, err);
    if (check_bpe(model, err) != STATUS_OK)
        return err->status;
    if (!asked_each(&a, normalizer, "normalizers", asked_normalize))
        return error_set(
            err, STATUS_UNIMPLEMENTED,
            "its normalizer of type '%.*s' is not supported; convert the model to GGUF",
            SPLIT_SHOWN_MAX, hf_json_text(normalizer, "type"));
    s.is_nfc = a.is_nfc;
    if (asked_each(&a, pre, "pretokenizers", asked_pre_tokenize)) {
        s.is_text = hf_json_is_true(model, "byte_fallback") && a.replaces_spaces && a.n_steps == 0;
        s.pre = find_split(&a);
    }
    if (s.is_text) {
        s.model = "text-bpe";
        s.pre = a.cuts_at_spaces ? "spaces" : "whole";
        s.adds_space = a.adds_space;
        s.only_first = a.only_first;
        s.only_missing = a.only_missing;
    }
    if (s.pre == NULL)
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "its pre_tokenizer is not supported (%.*s); convert the model to GGUF",
                         SPLIT_SHOWN_MAX, a.n_steps == 0 ? "no Split" : a.steps[a.n_steps - 1]);
    *out = s;
    return STATUS_OK;
}
