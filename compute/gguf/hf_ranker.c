/* Folders of models that rank, and what tells whether they are asked as Qwen3-Reranker is. */
#include <string.h>

#include "compute/gguf/hf_parts.h"

static const char judge[] = "Qwen3-Reranker", title[] = "\n# Qwen3-Reranker";

bool hf_ranks(const json_t *config)
{
    static const char end[] = "ForSequenceClassification";
    const json_t *first = json_array_get(json_object_get(config, "architectures"), 0);
    const char *name = json_is_string(first) ? json_string_value(first) : "";
    const size_t len = strlen(name);

    return len >= sizeof(end) - 1 && strcmp(name + len - (sizeof(end) - 1), end) == 0;
}

enum status hf_ranker_read(struct hf_model *m, const json_t *config, const json_t *pooling,
                           struct error *err)
{
    const bool scores_logits = json_object_get(pooling, "true_token_id") != NULL;

    m->is_ranker = scores_logits || hf_ranks(config);
    if (!m->is_ranker || strcmp(m->family->architecture, "qwen3") == 0)
        return STATUS_OK;
    return error_set(err, STATUS_UNIMPLEMENTED,
                     "%s is supported only for a model of type 'qwen3', whose prompt is known, and "
                     "for encoders",
                     scores_logits ? "a score by logits (1_LogitScore)" : "a head that scores");
}

/* The keys between the lines "---" that a model card begins with. */
static size_t card_keys_len(const char *card)
{
    static const char line[] = "---", between[] = "\n---";
    const size_t n = sizeof(line) - 1;
    const bool has_keys =
        strncmp(card, line, n) == 0 && card[n + (card[n] == '\r' ? 1 : 0)] == '\n';
    const char *end = has_keys ? strstr(card + n, between) : NULL;

    return end == NULL ? 0 : (size_t)(end - card);
}

/* vLLM's notes of a conversion, and the name that transformers has for it. */
static bool config_says_judge(const json_t *config)
{
    const json_t *tokens = json_object_get(config, "classifier_from_token"), *token;
    bool is_yes = hf_json_is_true(config, "is_original_qwen3_reranker");
    size_t i;

    json_array_foreach(tokens, i, token) is_yes =
        is_yes || (json_is_string(token) && strcmp(json_string_value(token), "yes") == 0);
    return is_yes || strcasestr(hf_json_text(config, "_name_or_path"), judge) != NULL;
}

/* The names that folders and model cards have for it. */
static bool label_says_judge(const char *name, const char *card)
{
    return strcasestr(name, judge) != NULL || strncmp(card, title + 1, strlen(title + 1)) == 0 ||
           strstr(card, title) != NULL ||
           memmem(card, card_keys_len(card), judge, sizeof(judge) - 1) != NULL;
}

/* transformers scores a classifier's text by the last token that is not this one. */
static void write_pad(struct hf_keys *keys, const json_t *config)
{
    const json_t *id = json_object_get(config, "pad_token_id");

    if (hf_ranks(config) && json_is_integer(id) && json_integer_value(id) >= 0)
        hf_key_u64(keys, "parley.rank.pad_token_id", (uint64_t)json_integer_value(id));
}

void hf_ranker_write_template(struct hf_keys *keys, const json_t *sentence)
{
    const json_t *arguments =
        hf_json_object(hf_json_object(sentence, "processing_kwargs"), "chat_template");

    if (hf_json_is_true(arguments, "add_generation_prompt"))
        hf_key_bool(keys, "parley.rank.add_generation_prompt", true);
}

void hf_ranker_write(const struct hf_model *m, struct hf_keys *keys, const json_t *config,
                     const char *name, const char *card)
{
    bool is_told; /* by a file that is the model's */

    if (!m->is_ranker)
        return;
    write_pad(keys, config);
    is_told = !hf_ranks(config) || config_says_judge(config);
    if (!is_told && !label_says_judge(name, card))
        return;
    if (!is_told)
        hf_key_bool(keys, "parley.rank.is_label_prompt", true);
    hf_key_texts(keys, ".classifier.output_labels", 1);
    hf_item_text(keys, "yes", 3);
}
