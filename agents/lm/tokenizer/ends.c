#include "agents/lm/tokenizer/ends.h"

#include <stdint.h>
#include <string.h>

#include "base/alloc.h"

static const char *const end_texts[] = {
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<\uFF5Cend\u2581of\u2581sentence\uFF5C>",
    "[e~[",
};

/* A key whose token ends a turn, and the texts of control tokens that stand for it if it is absent.
 * Tokens of texts with a gap are among them: a reply that begins another text is over. */
struct end_key {
    const char *key;
    const char *texts[6]; /* NULL ends the list */
};

enum { END_OF_SEQUENCE, END_BY_REPOSITORY = 4, END_BY_FILE }; /* in end_keys */

static const struct end_key end_keys[] = {
    {"tokenizer.ggml.eos_token_id", {0}},
    {"tokenizer.ggml.eot_token_id", {0}},
    {"tokenizer.ggml.eom_token_id", {0}},
    {"tokenizer.ggml.fim_pad_token_id", {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>"}},
    [END_BY_REPOSITORY] = {"tokenizer.ggml.fim_rep_token_id",
                           {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"}},
    [END_BY_FILE] = {"tokenizer.ggml.fim_sep_token_id", {"<|file_sep|>"}},
};

/* The keys of the tokens for filling in, an older name of each, and the texts of control tokens
 * that stand for it if both are absent. */
struct fill_in_key {
    const char *keys[2];
    const char *texts[8]; /* NULL ends the list */
};

static const struct fill_in_key fill_in_prefix = {
    {"tokenizer.ggml.fim_pre_token_id", "tokenizer.ggml.prefix_token_id"},
    {"<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<\uFF5Cfim\u2581begin\uFF5C>", "<PRE>",
     "\u2581<PRE>", "<|code_prefix|>"}};
static const struct fill_in_key fill_in_suffix = {
    {"tokenizer.ggml.fim_suf_token_id", "tokenizer.ggml.suffix_token_id"},
    {"<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<\uFF5Cfim\u2581hole\uFF5C>", "<SUF>",
     "\u2581<SUF>", "<|code_suffix|>"}};
static const struct fill_in_key fill_in_middle = {
    {"tokenizer.ggml.fim_mid_token_id", "tokenizer.ggml.middle_token_id"},
    {"<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<\uFF5Cfim\u2581end\uFF5C>", "<MID>",
     "\u2581<MID>", "<|code_middle|>"}};

bool ends_is_end_text(const char *text, size_t len)
{
    if (len == 0 || strchr("<[_", text[0]) == NULL) /* few tokens begin with these characters */
        return false;
    for (size_t i = 0; i < sizeof(end_texts) / sizeof(end_texts[0]); i++)
        if (strlen(end_texts[i]) == len && memcmp(end_texts[i], text, len) == 0)
            return true;
    return false;
}

enum status ends_read_id(const struct vocab *v, const struct gguf *g, const char *key,
                         int32_t if_absent, int32_t *ret_id, struct error *err)
{
    uint64_t id;
    enum status rc = gguf_get_u64(g, key, &id, err);

    *ret_id = -1;
    if (rc == STATUS_NOT_FOUND) {
        if (if_absent >= 0 && (size_t)if_absent < v->n)
            *ret_id = if_absent;
        return STATUS_OK;
    }
    if (rc != STATUS_OK)
        return rc;
    if (id == UINT32_MAX) /* some converters write this for "none" */
        return STATUS_OK;
    if (id >= v->n)
        return error_set(err, STATUS_DATA_LOSS,
                         "%s: %s is %llu, but the vocabulary has only %zu tokens", gguf_path(g),
                         key, (unsigned long long)id, v->n);
    *ret_id = (int32_t)id;
    return STATUS_OK;
}

static void ends_set_text(struct vocab *v, const char *text, bool is_end)
{
    int32_t id = vocab_find_control(v, text);

    if (id >= 0)
        v->is_stop_token[id] = is_end;
}

static bool ends_has(const struct vocab *v, const char *text)
{
    return vocab_find_control(v, text) >= 0;
}

/* Texts that are no end beside others: <|end|> ends a message of harmony, not the turn, and gemma4
 * has </s> for something else. */
static void ends_except(struct vocab *v)
{
    const bool has_return = ends_has(v, "<|return|>") || ends_has(v, "<|flush|>");
    const bool has_call = ends_has(v, "<|call|>") || ends_has(v, "<|calls|>");

    if (has_return && has_call)
        ends_set_text(v, "<|end|>", false);
    if (ends_has(v, "<|tool_response>"))
        ends_set_text(v, "</s>", false);
}

static enum status ends_read_key(struct vocab *v, const struct gguf *g, const struct end_key *k,
                                 int32_t if_absent, int32_t *ret_id, struct error *err)
{
    enum status rc = ends_read_id(v, g, k->key, if_absent, ret_id, err);

    if (rc != STATUS_OK)
        return rc;
    for (size_t i = 0; *ret_id < 0 && k->texts[i] != NULL; i++)
        *ret_id = vocab_find_control(v, k->texts[i]);
    if (*ret_id >= 0)
        v->is_stop_token[*ret_id] = true;
    return STATUS_OK;
}

static enum status ends_read_fill_in(int32_t *ret_id, const struct vocab *v, const struct gguf *g,
                                     const struct fill_in_key *k, struct error *err)
{
    *ret_id = -1;
    for (size_t i = 0; *ret_id < 0 && i < 2; i++)
        if (ends_read_id(v, g, k->keys[i], -1, ret_id, err) != STATUS_OK)
            return err->status;
    for (size_t i = 0; *ret_id < 0 && k->texts[i] != NULL; i++)
        *ret_id = vocab_find_control(v, k->texts[i]);
    return STATUS_OK;
}

static enum status ends_list(struct vocab *v, struct error *err)
{
    size_t n = 0;

    for (size_t i = 0; i < v->n; i++)
        n += v->is_stop_token[i];
    v->stop_tokens = try_alloc(n + 1, sizeof(*v->stop_tokens));
    if (v->stop_tokens == NULL)
        return error_no_memory(err, (n + 1) * sizeof(*v->stop_tokens), "end tokens");
    for (size_t i = 0; i < v->n; i++)
        if (v->is_stop_token[i])
            v->stop_tokens[v->n_stop_tokens++] = (int32_t)i;
    return STATUS_OK;
}

enum status ends_read(struct vocab *v, const struct gguf *g, struct error *err)
{
    for (size_t i = 0; i < sizeof(end_texts) / sizeof(end_texts[0]); i++)
        ends_set_text(v, end_texts[i], true);
    ends_except(v);
    for (size_t i = 0; i < sizeof(end_keys) / sizeof(end_keys[0]); i++) {
        int32_t if_absent = i == END_OF_SEQUENCE && v->kind == VOCAB_SPM ? 2 : -1, id;

        if (ends_read_key(v, g, &end_keys[i], if_absent, &id, err) != STATUS_OK)
            return err->status;
        if (i == END_OF_SEQUENCE)
            v->eos = id;
        if (i == END_BY_REPOSITORY)
            v->fill_in.repository = id;
        if (i == END_BY_FILE)
            v->fill_in.file = id;
    }
    if (ends_read_fill_in(&v->fill_in.prefix, v, g, &fill_in_prefix, err) != STATUS_OK ||
        ends_read_fill_in(&v->fill_in.suffix, v, g, &fill_in_suffix, err) != STATUS_OK ||
        ends_read_fill_in(&v->fill_in.middle, v, g, &fill_in_middle, err) != STATUS_OK)
        return err->status;
    return ends_list(v, err);
}
