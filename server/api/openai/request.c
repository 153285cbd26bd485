/* Reads the requests of chat completions, completions and responses by one table each. Fields that
 * the response repeats are kept as JSON. */
#include "server/api/openai/request.h"

#include <stdlib.h>
#include <string.h>

#include "server/api/known_fields.h"
#include "server/conversation/conversation.h"
#include "server/json/field_table.h"
#include "server/json/fields.h"

enum { COMPLETION_DEFAULT_TOKENS = 16, COMPLETION_MAX_TOPS = 20 };

/* --- what the APIs know --- */

/* What the tables fill; the rest of the request is read from these. */
struct openai_body {
    struct responses_request r;
    const json_t *messages, *input, *metadata, *conversation, *reasoning, *text, *stream_options,
        *response_format, *include, *ids, *suffix;
    const char *reasoning_format, *truncation;
    const char *no_effect; /* of fields that are known, and change nothing */
    uint32_t ignored;
    uint32_t best_of;
    bool has_best_of, continues;
};

static bool is_all_text(const json_t *value)
{
    for (size_t i = 0; i < json_array_size(value); i++) {
        if (!field_is_text(json_array_get(value, i), "text"))
            return false;
    }
    return json_is_array(value);
}

static bool includes(const json_t *list, const char *what)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (field_is_text(json_array_get(list, i), what))
            return true;
    return false;
}

#define TO(member) offsetof(struct openai_body, member)
#define NO_IDS "is not supported here: /v1/chat/completions has it"
#define NO_LENGTH "is not supported: use max_tokens"
#define NO_BEST "must be 1: use n, and choose among the replies"
#define NO_PROMPTS "is not supported here: /v1/chat/completions has prompt_logprobs"

/* Refused are fields that other servers know and that would change the reply, or its form. Beside
 * the tables, sampling (foreign_fields.c has others' parameters), constraints, tools, the
 * template's variables and prompt_logprobs have readers of their own. */
/* clang-format off */
#define REFUSED(name, off, why) {name, FIELD_ANY, .refused = (why), .is_off = field_is_##off}
static const struct field_row every_rows[] = {
    {"model", FIELD_TEXT, .to = TO(r.base.model)},
    {"stream", FIELD_BOOL, .to = TO(r.base.stream)},
};

static const struct field_row chat_rows[] = {
    REFUSED("add_special_tokens", false, "must be false: the chat template has them"),
    REFUSED("audio", empty, "is not supported: replies are text"),
    REFUSED("best_of", one, NO_BEST),
    {"continue_final_message", FIELD_BOOL, .to = TO(continues)},
    REFUSED("echo", empty, "is not supported: put the message before the reply"),
    {"logprobs", FIELD_BOOL, .to = TO(r.base.want_logprobs)},
    REFUSED("max_output_tokens", empty, NO_LENGTH),
    {"messages", FIELD_LIST, .to = TO(messages)},
    {"modalities", FIELD_ANY, .refused = "may have text alone", .is_off = is_all_text},
    {"n", FIELD_WHOLE, .to = TO(r.base.n), .least = 1, .most = REQUEST_MAX_CHOICES},
    {"parse_special", FIELD_BOOL, .refused = "must be false: messages are text", .is_off = field_is_false},
    {"prompt_token_ids", FIELD_ANY, .to = TO(ids)},
    {"reasoning", FIELD_OBJECT, .to = TO(reasoning)}, /* OpenRouter's spelling */
    {"reasoning_format", FIELD_TEXT, .to = TO(reasoning_format)},
    {"response_format", FIELD_ANY, .to = TO(response_format)},
    {"return_token_ids", FIELD_BOOL, .to = TO(r.base.wants_ids)},
    {"return_tokens_as_token_ids", FIELD_BOOL, .to = TO(r.base.names_ids)},
    {"stream_options", FIELD_OBJECT, .to = TO(stream_options)},
    {"top_logprobs", FIELD_WHOLE, .to = TO(r.base.n_top), .least = 0, .most = SAMPLING_MAX_LOGPROBS},
    REFUSED("web_search_options", false, "is not supported: nothing is searched"),
};

static const struct field_row completion_rows[] = {
    {"best_of", FIELD_WHOLE, .to = TO(best_of), .least = 1, .most = REQUEST_MAX_CHOICES, .given = TO(has_best_of)},
    {"echo", FIELD_BOOL, .to = TO(r.base.echo)},
    {"logprobs", FIELD_WHOLE, .to = TO(r.base.n_top), .least = 0, .most = COMPLETION_MAX_TOPS, .given = TO(r.base.want_logprobs)},
    REFUSED("max_completion_tokens", empty, NO_LENGTH),
    REFUSED("max_output_tokens", empty, NO_LENGTH),
    {"n", FIELD_WHOLE, .to = TO(r.base.n), .least = 1, .most = REQUEST_MAX_CHOICES},
    REFUSED("prompt_token_ids", empty, "is not supported here: prompt takes ids"),
    {"response_format", FIELD_ANY, .to = TO(response_format)},
    {"return_token_ids", FIELD_BOOL, .to = TO(r.base.wants_ids)},
    {"return_tokens_as_token_ids", FIELD_BOOL, .to = TO(r.base.names_ids)},
    {"stream_options", FIELD_OBJECT, .to = TO(stream_options)},
    {"suffix", FIELD_ANY, .to = TO(suffix)},
};

static const struct field_row responses_rows[] = {
    {"background", FIELD_BOOL, .to = TO(r.base.is_background)},
    REFUSED("best_of", one, NO_BEST),
    {"conversation", FIELD_ANY, .to = TO(conversation)},
    {"include", FIELD_LIST, .to = TO(include)},
    {"input", FIELD_ANY, .to = TO(input)},
    {"instructions", FIELD_TEXT, .to = TO(r.instructions)},
    REFUSED("max_completion_tokens", empty, "is not supported: use max_output_tokens"),
    {"max_tool_calls", FIELD_WHOLE, .to = TO(ignored), .least = 1, .most = UINT32_MAX}, /* of tools that run elsewhere */
    {"metadata", FIELD_OBJECT, .to = TO(metadata)},
    REFUSED("n", one, "must be 1: a response has one reply"),
    {"previous_response_id", FIELD_TEXT, .to = TO(r.previous)},
    REFUSED("prompt", empty, "is not supported: no prompts are stored"),
    {"prompt_cache_key", FIELD_TEXT, .to = TO(no_effect)},
    {"prompt_cache_retention", FIELD_TEXT, .to = TO(no_effect)},
    REFUSED("prompt_logprobs", false, NO_PROMPTS),
    REFUSED("prompt_token_ids", empty, NO_IDS),
    {"reasoning", FIELD_OBJECT, .to = TO(reasoning)},
    {"return_token_ids", FIELD_BOOL, .to = TO(r.base.wants_ids)},
    REFUSED("return_tokens_as_token_ids", false, NO_IDS),
    {"safety_identifier", FIELD_TEXT, .to = TO(no_effect)},
    {"store", FIELD_BOOL, .to = TO(r.store)},
    {"stream_options", FIELD_OBJECT, .to = TO(stream_options)}, /* there is always usage */
    {"text", FIELD_OBJECT, .to = TO(text)},
    {"top_logprobs", FIELD_WHOLE, .to = TO(r.base.n_top), .least = 0, .most = SAMPLING_MAX_LOGPROBS},
    {"truncation", FIELD_TEXT, .to = TO(truncation)},
    {"user", FIELD_TEXT, .to = TO(no_effect)},
};

static const struct field_row stream_rows[] = {
    {"continuous_usage_stats", FIELD_BOOL, .to = TO(r.base.continuous_usage)},
    {"include_usage", FIELD_BOOL, .to = TO(r.base.include_usage)},
};
/* clang-format on */

static const struct field_table of_every = FIELD_TABLE(every_rows),
                                of_chat = FIELD_TABLE(chat_rows),
                                of_completion = FIELD_TABLE(completion_rows),
                                of_responses = FIELD_TABLE(responses_rows),
                                of_stream = FIELD_TABLE(stream_rows);

static enum status openai_body_read(struct openai_body *out, const struct field_table *own,
                                    const json_t *body, struct error *err)
{
    *out = (struct openai_body){.r = {.base = {.model = "", .n = 1}, .store = true}};
    if (field_table_read(&of_every, out, body, err) != STATUS_OK ||
        field_table_read(own, out, body, err) != STATUS_OK)
        return err->status;
    return field_table_read(&of_stream, out, out->stream_options, err);
}

/* The members that the API does not know. What readers add to the body comes later. */
static enum status openai_body_list_others(const char **out, const struct openai_body *given,
                                           const struct field_table *own, enum field_owner api,
                                           const json_t *body, struct arena *arena,
                                           struct error *err)
{
    const struct known_object objects[] = {
        {.object = body,
         .path = "",
         .has_sampling = true,
         .has_foreign = true,
         .tables = {&of_every, own}},
        {.object = given->stream_options, .path = "stream_options.", .tables = {&of_stream}},
        {.object = given->reasoning, .path = "reasoning."},
        {.object = given->text, .path = "text."},
        {.object = field(body, "structured_outputs"), .path = "structured_outputs."},
        {.object = field(body, "thinking"), .path = "thinking."},
    };

    return known_fields_list_others(out, objects, sizeof(objects) / sizeof(objects[0]), api, arena,
                                    err);
}

/* vLLM's field; false is none. */
static enum status take_prompt_logprobs(struct request *r, const json_t *body, struct error *err)
{
    int64_t n = 0;

    if (json_is_false(field(body, "prompt_logprobs")))
        return STATUS_OK;
    if (field_whole(&n, &r->has_prompt_logprobs, body, "prompt_logprobs", 0, SAMPLING_MAX_LOGPROBS,
                    err) != STATUS_OK)
        return err->status;
    if (r->has_prompt_logprobs && r->stream)
        return error_field(err, "prompt_logprobs", "has no place in a stream");
    r->n_prompt_top = (uint32_t)n;
    return STATUS_OK;
}

/* {"effort", "summary", "max_tokens"}; a summary is the thoughts themselves. */
static enum status take_reasoning(struct request *out, const json_t *body, const json_t *reasoning,
                                  struct arena *arena, struct error *err)
{
    struct thinking_request asked = {0};

    if (request_effort(&asked, field(reasoning, "effort"), "reasoning.effort", err) != STATUS_OK)
        return err->status;
    if (request_budget(&asked, reasoning, "max_tokens", err) != STATUS_OK)
        return field_inside(err, "reasoning");
    return request_variables(out, body, &asked, arena, err);
}

static const struct field_name names_of_chat[] = {
    {"messages[0].text", "messages[0].content"}, {"max_tokens", "max_completion_tokens"}, {0}};
static const struct field_name names_of_old_chat[] = {{"messages[0].text", "messages[0].content"},
                                                      {0}};
static const struct field_name names_of_responses[] = {
    {"max_tokens", "max_output_tokens"}, {"messages", "input"}, {"messages[0].text", "input"}, {0}};

/* Takes vLLM's two fields out of the body: elsewhere they are refused. */
static enum status take_continues(const struct openai_body *given, const json_t *body,
                                  struct error *err)
{
    const json_t *starts = field(body, "add_generation_prompt");

    if (!given->continues)
        return STATUS_OK;
    if (json_is_true(starts))
        return error_field(err, "continue_final_message",
                           "cannot be combined with add_generation_prompt");
    (void)json_object_del((json_t *)body, "continue_final_message"); /* it is there */
    if (json_is_false(starts))
        (void)json_object_del((json_t *)body, "add_generation_prompt");
    return STATUS_OK;
}

/* Whether the reply goes on from the last message: by vLLM's field of the request, or by Mistral's
 * and DeepSeek's of the message. */
static enum status take_begun(struct prompt *p, const struct openai_body *given, struct error *err)
{
    const size_t n = json_array_size(given->messages);
    const json_t *last = n == 0 ? NULL : json_array_get(given->messages, n - 1);

    if (given->continues && !request_ends_with_reply(p))
        return error_field(err, "continue_final_message",
                           "needs a last message of the assistant's");
    p->is_begun =
        given->continues || (request_ends_with_reply(p) && json_is_true(field(last, "prefix")));
    return STATUS_OK;
}

enum status request_chat(struct request *out, const json_t *body, struct arena *arena,
                         struct error *err)
{
    struct openai_body given;
    struct request *r = &given.r.base;
    const char *others;

    if (openai_body_read(&given, &of_chat, body, err) != STATUS_OK ||
        openai_body_list_others(&others, &given, &of_chat, FIELDS_OF_CHAT, body, arena, err) !=
            STATUS_OK ||
        take_continues(&given, body, err) != STATUS_OK ||
        request_sampling(&r->overrides, body, "max_completion_tokens", arena, err) != STATUS_OK ||
        request_constraint(r, body, given.response_format, "response_format", arena, err) !=
            STATUS_OK ||
        request_tools(r, body, TOOLS_OF_CHAT, arena, err) != STATUS_OK ||
        take_reasoning(r, body, given.reasoning, arena, err) != STATUS_OK ||
        take_prompt_logprobs(r, body, err) != STATUS_OK)
        return err->status;
    if (r->n_top > 0 && !r->want_logprobs)
        return error_field(err, "top_logprobs", "needs logprobs to be true");
    if (given.messages == NULL && given.ids == NULL)
        return error_field(err, "messages", "is missing");
    if (given.ids != NULL && json_array_size(given.messages) > 0)
        return error_field(err, "prompt_token_ids",
                           "is the whole prompt: send it without messages, or with an empty list");
    /* Thoughts come apart, or as llama-server's "none" has it, in the text. */
    r->keeps_thoughts =
        given.reasoning_format != NULL && strcmp(given.reasoning_format, "none") == 0;
    r->n_prompts = 1;
    r->prompts = arena_alloc(arena, 1, sizeof(r->prompts[0]));
    if (r->prompts == NULL)
        return error_no_memory(err, 0, "the request");
    if (given.ids != NULL
            ? request_chat_ids(r->prompts, given.ids, "prompt_token_ids", arena, err) != STATUS_OK
            : request_messages(r->prompts, given.messages, "messages", arena, err) != STATUS_OK)
        return err->status;
    if (take_begun(r->prompts, &given, err) != STATUS_OK)
        return err->status;
    r->names = field(body, "max_completion_tokens") != NULL ? names_of_chat : names_of_old_chat;
    if (request_leave_out(r, others, arena, err) != STATUS_OK)
        return err->status;
    *out = *r;
    return STATUS_OK;
}

/* max_tokens of 0: results of the prompt alone, no reply. */
static enum status take_no_reply(struct request *r, const json_t *body, struct error *err)
{
    const json_t *most = field(body, "max_tokens");

    if (most == NULL || json_number_value(most) != 0)
        return STATUS_OK;
    if (!r->echo && !r->has_prompt_logprobs)
        return error_field(err, "max_tokens", "is 0, which needs echo or prompt_logprobs");
    r->no_reply = true;
    r->overrides.values.max_tokens = 1;
    return STATUS_OK;
}

enum status request_completion(struct request *out, const json_t *body, struct arena *arena,
                               struct error *err)
{
    struct raw_rules rules = {.parses_control = true};
    struct openai_body given;
    struct request *r = &given.r.base;
    const char *others;

    if (openai_body_read(&given, &of_completion, body, err) != STATUS_OK ||
        openai_body_list_others(&others, &given, &of_completion, FIELDS_OF_COMPLETIONS, body, arena,
                                err) != STATUS_OK ||
        request_sampling(&r->overrides, body, "max_tokens", arena, err) != STATUS_OK ||
        request_constraint(r, body, given.response_format, "response_format", arena, err) !=
            STATUS_OK)
        return err->status;
    if (given.has_best_of && given.best_of != r->n)
        return error_field(err, "best_of", "must be as large as n, which is %u", r->n);
    if (take_prompt_logprobs(r, body, err) != STATUS_OK ||
        take_no_reply(r, body, err) != STATUS_OK ||
        request_raw_rules(&rules, body, err) != STATUS_OK ||
        request_prompts(r, field(body, "prompt"), &rules, arena, err) != STATUS_OK ||
        request_fill_in(r, given.suffix, arena, err) != STATUS_OK)
        return err->status;
    if (r->echo && r->prompts[0].raw.fills_in)
        return error_field(err, "echo", "cannot be combined with suffix");
    if ((r->overrides.given & SAMPLING_MAX_TOKENS) == 0) {
        r->overrides.given |= SAMPLING_MAX_TOKENS;
        r->overrides.values.max_tokens = COMPLETION_DEFAULT_TOKENS;
    }
    if (r->n * r->n_prompts > REQUEST_MAX_CHOICES)
        return error_field(err, "n", "times the prompts is %zu, at most %d are allowed",
                           r->n * r->n_prompts, REQUEST_MAX_CHOICES);
    if (request_leave_out(r, others, arena, err) != STATUS_OK)
        return err->status;
    *out = *r;
    return STATUS_OK;
}

/* Takes a text, or a list of messages. */
static enum status openai_request_take_input(struct prompt *out, const json_t *body,
                                             const json_t *input, struct arena *arena,
                                             struct error *err)
{
    struct message *message;
    json_t *messages;

    if (input == NULL)
        return error_field(err, "input", "is missing");
    if (json_is_array(input)) {
        if (request_items(&messages, input, "input", err) != STATUS_OK)
            return err->status;
        /* The body owns them, since the request borrows it. */
        if (json_object_set_new((json_t *)body, "input as messages", messages) != 0)
            return error_no_memory(err, 0, "the request");
        return request_messages(out, messages, "input", arena, err);
    }
    if (!json_is_string(input))
        return field_wrong(err, "input", "a string or a list of messages", input);
    message = arena_alloc(arena, 1, sizeof(*message));
    if (message == NULL)
        return error_no_memory(err, 0, "the request");
    *message = (struct message){
        .role = ROLE_USER, .text = json_string_value(input), .len = json_string_length(input)};
    *out = (struct prompt){.messages = message, .n_messages = 1};
    return STATUS_OK;
}

enum status request_metadata(const struct pair **out, size_t *ret_n, const json_t *metadata,
                             struct arena *arena, struct error *err)
{
    json_t *m = (json_t *)metadata; /* jansson's iterators change nothing */
    struct pair *pairs;
    size_t n = 0;

    if (json_object_size(m) > METADATA_MAX_PAIRS)
        return error_field(err, "metadata", "has %zu pairs, at most %d are allowed",
                           json_object_size(m), METADATA_MAX_PAIRS);
    pairs = arena_alloc(arena, json_object_size(m), sizeof(pairs[0]));
    if (pairs == NULL)
        return error_no_memory(err, 0, "the request");
    for (void *at = json_object_iter(m); at != NULL; at = json_object_iter_next(m, at), n++) {
        const json_t *value = json_object_iter_value(at);

        if (!json_is_string(value))
            return field_wrong(err, "metadata", "an object of strings", value);
        if (!field_is_plain_text(value))
            return error_field(err, "metadata", "has the character U+0000");
        pairs[n] =
            (struct pair){.key = json_object_iter_key(at), .value = json_string_value(value)};
    }
    *out = pairs;
    *ret_n = n;
    return STATUS_OK;
}

const char *request_conversation(const json_t *value)
{
    return json_string_value(json_is_object(value) ? json_object_get(value, "id") : value);
}

/* JSON in the arena. */
static enum status keep_json_text(const char **out, json_t *value, struct arena *arena,
                                  struct error *err)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY);

    *out = text == NULL ? NULL : arena_strndup(arena, text, strlen(text));
    free(text);
    return *out != NULL ? STATUS_OK : error_no_memory(err, 0, "the request");
}

/* Tools and their choice as the response repeats them. */
static enum status take_echo(struct responses_request *out, const json_t *body, struct arena *arena,
                             struct error *err)
{
    const json_t *choice = field(body, "tool_choice");
    json_t *tools = json_deep_copy(field(body, "tools")), *tool;
    enum status rc;
    size_t i;

    json_array_foreach(tools, i, tool)
    {
        if (json_object_get(tool, "description") == NULL)
            (void)json_object_set_new(tool, "description", json_null()); /* or it stays out */
        if (json_object_get(tool, "parameters") == NULL)
            (void)json_object_set_new(tool, "parameters", json_null());
        if (json_object_get(tool, "strict") == NULL)
            (void)json_object_set_new(tool, "strict", json_false());
    }
    out->tools = "[]";
    out->choice = json_array_size(tools) > 0 ? "\"auto\"" : "\"none\"";
    rc = tools == NULL ? STATUS_OK : keep_json_text(&out->tools, tools, arena, err);
    json_decref(tools);
    if (rc == STATUS_OK && choice != NULL)
        rc = keep_json_text(&out->choice, (json_t *)choice, arena, err); /* it changes nothing */
    return rc;
}

/* A text's format as the response repeats it. */
static enum status take_text_echo(const char **out, const json_t *text, struct arena *arena,
                                  struct error *err)
{
    json_t *copy = json_copy((json_t *)text); /* it changes nothing */
    enum status rc = STATUS_OK;

    if (copy != NULL && field(copy, "format") == NULL &&
        json_object_set_new(copy, "format", json_pack("{s:s}", "type", "text")) != 0)
        rc = error_no_memory(err, 0, "the request");
    if (rc == STATUS_OK && text != NULL)
        rc = copy == NULL ? error_no_memory(err, 0, "the request")
                          : keep_json_text(out, copy, arena, err);
    json_decref(copy);
    return rc;
}

static enum status take_echoes(struct responses_request *out, const json_t *body,
                               const json_t *reasoning, const json_t *text, struct arena *arena,
                               struct error *err)
{
    static const char *const names[N_RESPONSE_ECHOES] = {
        [ECHO_MAX_TOOL_CALLS] = "max_tool_calls",
        [ECHO_PROMPT_CACHE_KEY] = "prompt_cache_key",
        [ECHO_PROMPT_CACHE_RETENTION] = "prompt_cache_retention",
        [ECHO_SAFETY_IDENTIFIER] = "safety_identifier",
        [ECHO_TOP_LOGPROBS] = "top_logprobs",
        [ECHO_TRUNCATION] = "truncation",
        [ECHO_USER] = "user",
    };
    const json_t *summary = field(reasoning, "summary");

    for (size_t i = 0; i < N_RESPONSE_ECHOES; i++) {
        const json_t *value = names[i] == NULL ? NULL : field(body, names[i]);

        if (value != NULL && keep_json_text(&out->echo[i], (json_t *)value, arena, err) !=
                                 STATUS_OK) /* it changes nothing */
            return err->status;
    }
    if (summary != NULL && !json_is_string(summary))
        return field_wrong(err, "reasoning.summary", "a string", summary);
    if (summary != NULL && keep_json_text(&out->echo[ECHO_REASONING_SUMMARY], (json_t *)summary,
                                          arena, err) != STATUS_OK)
        return err->status;
    return take_text_echo(&out->echo[ECHO_TEXT], text, arena, err);
}

/* A part that no response here can have, as results of a tool that is left out, adds nothing. */
static enum status take_include(const json_t *list, struct error *err)
{
    static const char *const parts[] = {
        "code_interpreter_call.outputs",  "computer_call_output.output.image_url",
        "file_search_call.results",       "message.input_image.image_url",
        "message.output_text.logprobs",   "reasoning.encrypted_content",
        "web_search_call.action.sources", "web_search_call.results"};

    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *value = json_array_get(list, i);
        bool is_known = false;

        if (!json_is_string(value))
            return field_wrong(err, "include", "a list of strings", value);
        for (size_t k = 0; !is_known && k < sizeof(parts) / sizeof(parts[0]); k++)
            is_known = field_is_text(value, parts[k]);
        if (!is_known)
            return error_field(err, "include",
                               "has '%.60s', and no response has such a part: "
                               "reasoning.encrypted_content and message.output_text.logprobs "
                               "are given",
                               json_string_value(value));
    }
    return STATUS_OK;
}

/* What a response has beside its text, and whether the history may be cut. */
static enum status responses_take_terms(struct openai_body *given, const json_t *body,
                                        struct arena *arena, struct error *err)
{
    struct responses_request *r = &given->r;
    const char *truncation = given->truncation == NULL ? "disabled" : given->truncation;

    if (take_include(given->include, err) != STATUS_OK)
        return err->status;
    r->truncates = strcmp(truncation, "auto") == 0;
    if (!r->truncates && strcmp(truncation, "disabled") != 0)
        return error_field(err, "truncation", "is '%.40s', it must be auto or disabled",
                           truncation);
    r->gives_thoughts = includes(given->include, "reasoning.encrypted_content");
    r->gives_logprobs = includes(given->include, "message.output_text.logprobs");
    r->base.want_logprobs = r->gives_logprobs;
    if (r->base.n_top > 0 && !r->gives_logprobs)
        return error_field(err, "top_logprobs",
                           "needs include to have message.output_text.logprobs");
    return take_echoes(r, body, given->reasoning, given->text, arena, err);
}

enum status request_responses(struct responses_request *out, const json_t *body,
                              struct arena *arena, struct error *err)
{
    struct openai_body given;
    struct responses_request *r = &given.r;
    const char *others;

    if (openai_body_read(&given, &of_responses, body, err) != STATUS_OK ||
        openai_body_list_others(&others, &given, &of_responses, FIELDS_OF_RESPONSES, body, arena,
                                err) != STATUS_OK)
        return err->status;
    r->base.n_prompts = 1;
    r->base.prompts = arena_alloc(arena, 1, sizeof(r->base.prompts[0]));
    if (r->base.prompts == NULL)
        return error_no_memory(err, 0, "the request");
    if (request_metadata(&r->metadata, &r->n_metadata, given.metadata, arena, err) != STATUS_OK ||
        request_tools(&r->base, body, TOOLS_OF_RESPONSES, arena, err) != STATUS_OK ||
        take_echo(r, body, arena, err) != STATUS_OK ||
        responses_take_terms(&given, body, arena, err) != STATUS_OK ||
        take_reasoning(&r->base, body, given.reasoning, arena, err) != STATUS_OK ||
        request_sampling(&r->base.overrides, body, "max_output_tokens", arena, err) != STATUS_OK ||
        openai_request_take_input(r->base.prompts, body, given.input, arena, err) != STATUS_OK ||
        request_constraint(&r->base, body, field(given.text, "format"), "text.format", arena,
                           err) != STATUS_OK)
        return err->status;
    r->base.names = names_of_responses;
    r->conversation = request_conversation(given.conversation);
    if (given.conversation != NULL && r->conversation == NULL)
        return field_wrong(err, "conversation", "an id, or an object with an id",
                           given.conversation);
    if (r->conversation != NULL && r->previous != NULL)
        return error_field(err, "conversation",
                           "and previous_response_id exclude each other: give one of them");
    if (r->base.is_background && !r->store)
        return error_field(err, "background", "needs store: the response is read later");
    if (request_leave_out(&r->base, others, arena, err) != STATUS_OK)
        return err->status;
    *out = *r;
    return STATUS_OK;
}
