/* Fields that other servers know and that would change the reply, or its form, but are unsupported
 * here: silently ignoring one would look like a bad model. Values that mean "off", or that describe
 * what happens anyway, are accepted. */
#include <stdlib.h>
#include <string.h>

#include "server/api/openai/request.h"

enum {
    CHAT = REQUEST_CHAT,
    COMPLETION = REQUEST_COMPLETION,
    RESPONSES = REQUEST_RESPONSES,
    ALL = CHAT | COMPLETION | RESPONSES,
};

/* --- values that mean "off"; null always does --- */

static bool is_false(const json_t *value)
{
    return json_is_false(value);
}

static bool is_true(const json_t *value)
{
    return json_is_true(value);
}

static bool request_unmet_is_text(const json_t *value, const char *text)
{
    return json_is_string(value) && strcmp(json_string_value(value), text) == 0;
}

/* false, 0, "", [], {} */
static bool request_unmet_is_empty(const json_t *value)
{
    return json_is_false(value) || request_unmet_is_text(value, "") ||
           (json_is_number(value) && json_number_value(value) == 0) ||
           (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0);
}

static bool is_no_bound(const json_t *value)
{
    return json_is_integer(value) && json_integer_value(value) == -1;
}

static bool is_disabled(const json_t *value)
{
    return request_unmet_is_text(value, "disabled");
}

static bool is_all_text(const json_t *value)
{
    for (size_t i = 0; i < json_array_size(value); i++) {
        if (!request_unmet_is_text(json_array_get(value, i), "text"))
            return false;
    }
    return json_is_array(value);
}

/* Other members name items that replies never have. */
static bool is_without_logprobs(const json_t *value)
{
    for (size_t i = 0; i < json_array_size(value); i++) {
        if (request_unmet_is_text(json_array_get(value, i), "message.output_text.logprobs"))
            return false;
    }
    return json_is_array(value);
}

/* --- */

#define NO_LOGPROBS "is not supported here: /v1/chat/completions has logprobs"

/* Sorted by strcmp. */
static const struct unmet {
    const char *name;
    unsigned apis;
    bool (*is_off)(const json_t *value);
    const char *says;
} unmet[] = {
    {"add_generation_prompt", CHAT, is_true, "must be true: a reply is a message of its own"},
    {"add_special_tokens", CHAT, is_false, "must be false: the chat template has them"},
    {"allowed_token_ids", ALL, request_unmet_is_empty, "is not supported: use logit_bias"},
    {"audio", CHAT, request_unmet_is_empty, "is not supported: replies are text"},
    {"bad_words", ALL, request_unmet_is_empty, "is not supported: use logit_bias"},
    {"chat_template", CHAT | RESPONSES, request_unmet_is_empty,
     "is not supported: the model's own is used"},
    {"continue_final_message", CHAT | RESPONSES, request_unmet_is_empty,
     "is not supported: a reply is a message of its own"},
    {"conversation", RESPONSES, request_unmet_is_empty,
     "is not supported: use previous_response_id"},
    {"documents", CHAT | RESPONSES, request_unmet_is_empty,
     "is not supported: put them into a message"},
    {"echo", CHAT, request_unmet_is_empty, "is not supported: put the message before the reply"},
    {"include", RESPONSES, is_without_logprobs, NO_LOGPROBS},
    {"include_stop_str_in_output", ALL, request_unmet_is_empty,
     "is not supported: add the text to the reply"},
    {"logits_processors", ALL, request_unmet_is_empty, "is not supported: use logit_bias"},
    {"mirostat", ALL, request_unmet_is_empty,
     "is not supported: use temperature, top_k, top_p and min_p"},
    {"modalities", CHAT, is_all_text, "may have text alone"},
    {"n_predict", ALL, is_no_bound, "is not supported: use max_tokens"},
    {"n_probs", ALL, request_unmet_is_empty, "is not supported: use logprobs"},
    {"prompt", RESPONSES, request_unmet_is_empty, "is not supported: no prompts are stored"},
    {"prompt_embeds", COMPLETION, request_unmet_is_empty,
     "is not supported: a prompt is text or token ids"},
    {"prompt_logprobs", RESPONSES, is_false, NO_LOGPROBS},
    {"return_token_ids", ALL, request_unmet_is_empty, "is not supported: /tokenize gives ids"},
    {"return_tokens_as_token_ids", ALL, request_unmet_is_empty,
     "is not supported: tokens are given as text"},
    {"skip_special_tokens", ALL, is_true, "must be true: replies have none"},
    {"stop_token_ids", ALL, request_unmet_is_empty, "is not supported: use stop"},
    {"top_logprobs", RESPONSES, request_unmet_is_empty, NO_LOGPROBS},
    {"truncate_prompt_tokens", ALL, request_unmet_is_empty,
     "is not supported: a prompt is read whole"},
    {"truncation", RESPONSES, is_disabled, "must be disabled: a prompt is read whole"},
    {"use_beam_search", ALL, request_unmet_is_empty, "is not supported: replies are sampled"},
    {"web_search_options", CHAT, is_false, "is not supported: nothing is searched"},
};

/* As strcmp, but inlined: most names differ in their first letters. */
static int request_unmet_by_name(const void *key, const void *row)
{
    const unsigned char *a = key, *b = (const unsigned char *)((const struct unmet *)row)->name;

    while (*a != '\0' && *a == *b) {
        a++;
        b++;
    }
    return *a - *b;
}

/* Iterates over the body's fields, because they are fewer than the table's. */
enum status request_refuse_unmet(const json_t *body, enum request_api api, struct error *err)
{
    json_t *b = (json_t *)body; /* jansson's iterators change nothing */

    for (void *at = json_object_iter(b); at != NULL; at = json_object_iter_next(b, at)) {
        const json_t *value = json_object_iter_value(at);
        const struct unmet *u =
            bsearch(json_object_iter_key(at), unmet, sizeof(unmet) / sizeof(unmet[0]),
                    sizeof(unmet[0]), request_unmet_by_name);

        if (u != NULL && (u->apis & api) != 0 && !json_is_null(value) && !u->is_off(value))
            return error_field(err, u->name, "%s", u->says);
    }
    return STATUS_OK;
}
