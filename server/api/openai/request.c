#include "server/api/openai/request.h"

#include <stdlib.h>
#include <string.h>

#include "server/conversation/conversation.h"
#include "server/json/fields.h"

enum { COMPLETION_DEFAULT_TOKENS = 16, COMPLETION_MAX_TOPS = 20 };

/* How thoughts come: apart, or as llama-server's "none" has it, in the text. */
static enum status take_thoughts(struct request *out, const json_t *body, struct error *err)
{
    const char *format = "auto";

    if (field_text(&format, body, "reasoning_format", err) != STATUS_OK)
        return err->status;
    out->keeps_thoughts = strcmp(format, "none") == 0;
    return STATUS_OK;
}

static enum status take_stream(struct request *out, const json_t *body, struct error *err)
{
    const json_t *options = NULL;

    if (field_bool(&out->stream, body, "stream", err) != STATUS_OK ||
        field_object(&options, body, "stream_options", err) != STATUS_OK)
        return err->status;
    if (options == NULL)
        return STATUS_OK;
    if (field_bool(&out->include_usage, options, "include_usage", err) != STATUS_OK ||
        field_bool(&out->continuous_usage, options, "continuous_usage_stats", err) != STATUS_OK)
        return err->status;
    return STATUS_OK;
}

/* The common fields of chat and completions. */
static enum status take_common(struct request *out, const json_t *body, const char *max_field,
                               struct arena *arena, struct error *err)
{
    int64_t n = 1;

    *out = (struct request){.model = ""};
    if (field_text(&out->model, body, "model", err) != STATUS_OK ||
        field_whole(&n, NULL, body, "n", 1, REQUEST_MAX_CHOICES, err) != STATUS_OK ||
        take_stream(out, body, err) != STATUS_OK ||
        request_sampling(&out->overrides, body, max_field, arena, err) != STATUS_OK ||
        request_constraint(out, body, field(body, "response_format"), "response_format", arena,
                           err) != STATUS_OK)
        return err->status;
    out->n = (uint32_t)n;
    return STATUS_OK;
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

enum status request_chat(struct request *out, const json_t *body, struct arena *arena,
                         struct error *err)
{
    const json_t *messages = NULL;
    bool has_top = false;
    int64_t n_top = 0;
    struct request r;

    if (take_common(&r, body, "max_completion_tokens", arena, err) != STATUS_OK ||
        request_tools(&r, body, TOOLS_OF_CHAT, arena, err) != STATUS_OK ||
        take_thoughts(&r, body, err) != STATUS_OK ||
        request_variables(&r, body, NULL, arena, err) != STATUS_OK ||
        request_refuse_unmet(body, REQUEST_CHAT, err) != STATUS_OK ||
        take_prompt_logprobs(&r, body, err) != STATUS_OK ||
        field_bool(&r.want_logprobs, body, "logprobs", err) != STATUS_OK ||
        field_whole(&n_top, &has_top, body, "top_logprobs", 0, SAMPLING_MAX_LOGPROBS, err) !=
            STATUS_OK ||
        field_array(&messages, body, "messages", err) != STATUS_OK)
        return err->status;
    if (has_top && n_top > 0 && !r.want_logprobs)
        return error_field(err, "top_logprobs", "needs logprobs to be true");
    r.n_top = (uint32_t)n_top;
    if (messages == NULL)
        return error_field(err, "messages", "is missing");
    r.n_prompts = 1;
    r.prompts = arena_alloc(arena, 1, sizeof(r.prompts[0]));
    if (r.prompts == NULL)
        return error_no_memory(err, 0, "the request");
    if (request_messages(r.prompts, messages, "messages", arena, err) != STATUS_OK)
        return err->status;
    *out = r;
    return STATUS_OK;
}

static enum status refuse_completion(const json_t *body, const struct request *r, struct error *err)
{
    const char *suffix = "";
    bool add_special = true;
    int64_t best_of = r->n;

    if (field_text(&suffix, body, "suffix", err) != STATUS_OK ||
        field_bool(&add_special, body, "add_special_tokens", err) != STATUS_OK ||
        field_whole(&best_of, NULL, body, "best_of", 1, REQUEST_MAX_CHOICES, err) != STATUS_OK)
        return err->status;
    if (suffix[0] != '\0')
        return error_field(err, "suffix", "is not supported: a reply has nothing behind it");
    if (!add_special)
        return error_field(err, "add_special_tokens", "must be true: send token ids to have none");
    if (best_of != r->n)
        return error_field(err, "best_of", "must be as large as n, which is %u", r->n);
    return STATUS_OK;
}

/* max_tokens of 0: results of the prompt alone, no reply. */
static enum status take_no_reply(struct request *r, struct error *err)
{
    struct sampling_overrides *o = &r->overrides;

    if ((o->given & SAMPLING_MAX_TOKENS) == 0 || o->values.max_tokens > 0)
        return STATUS_OK;
    if (!r->echo && !r->has_prompt_logprobs)
        return error_field(err, "max_tokens", "is 0, which needs echo or prompt_logprobs");
    r->no_reply = true;
    o->values.max_tokens = 1;
    return STATUS_OK;
}

enum status request_completion(struct request *out, const json_t *body, struct arena *arena,
                               struct error *err)
{
    int64_t n_top = 0;
    struct request r;

    if (take_common(&r, body, "max_tokens", arena, err) != STATUS_OK ||
        refuse_completion(body, &r, err) != STATUS_OK ||
        request_refuse_unmet(body, REQUEST_COMPLETION, err) != STATUS_OK ||
        field_bool(&r.echo, body, "echo", err) != STATUS_OK ||
        take_prompt_logprobs(&r, body, err) != STATUS_OK || take_no_reply(&r, err) != STATUS_OK ||
        field_whole(&n_top, &r.want_logprobs, body, "logprobs", 0, COMPLETION_MAX_TOPS, err) !=
            STATUS_OK ||
        request_prompts(&r, field(body, "prompt"), arena, err) != STATUS_OK)
        return err->status;
    r.n_top = (uint32_t)n_top;
    if ((r.overrides.given & SAMPLING_MAX_TOKENS) == 0) {
        r.overrides.given |= SAMPLING_MAX_TOKENS;
        r.overrides.values.max_tokens = COMPLETION_DEFAULT_TOKENS;
    }
    if (r.n * r.n_prompts > REQUEST_MAX_CHOICES)
        return error_field(err, "n", "times the prompts is %zu, at most %d are allowed",
                           r.n * r.n_prompts, REQUEST_MAX_CHOICES);
    *out = r;
    return STATUS_OK;
}

/* Takes a text, or a list of messages. */
static enum status openai_request_take_input(struct prompt *out, const json_t *body,
                                             struct arena *arena, struct error *err)
{
    const json_t *input = field(body, "input");
    struct message *message;
    json_t *messages;

    if (input == NULL)
        return error_field(err, "input", "is missing");
    if (json_is_array(input)) {
        if (request_items(&messages, input, err) != STATUS_OK)
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

/* Texts by name. */
static enum status openai_request_take_metadata(struct responses_request *out, const json_t *body,
                                                struct arena *arena, struct error *err)
{
    const json_t *metadata = NULL;
    struct pair *pairs;
    size_t n = 0;
    json_t *m;

    if (field_object(&metadata, body, "metadata", err) != STATUS_OK)
        return err->status;
    m = (json_t *)metadata; /* jansson's iterators change nothing */
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
        pairs[n] =
            (struct pair){.key = json_object_iter_key(at), .value = json_string_value(value)};
    }
    out->metadata = pairs;
    out->n_metadata = n;
    return STATUS_OK;
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

/* {"effort", "summary"}; a summary is the thoughts themselves. */
static enum status responses_take_reasoning(struct responses_request *out, const json_t *body,
                                            struct arena *arena, struct error *err)
{
    const json_t *reasoning = NULL;
    struct thinking_request asked = {0};

    if (field_object(&reasoning, body, "reasoning", err) != STATUS_OK ||
        request_effort(&asked, field(reasoning, "effort"), "reasoning.effort", err) != STATUS_OK)
        return err->status;
    return request_variables(&out->base, body, &asked, arena, err);
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

enum status request_responses(struct responses_request *out, const json_t *body,
                              struct arena *arena, struct error *err)
{
    struct responses_request r = {.base = {.model = "", .n = 1, .n_prompts = 1}, .store = true};
    const json_t *text = NULL;

    r.base.prompts = arena_alloc(arena, 1, sizeof(r.base.prompts[0]));
    if (r.base.prompts == NULL)
        return error_no_memory(err, 0, "the request");
    if (field_text(&r.base.model, body, "model", err) != STATUS_OK ||
        field_text(&r.instructions, body, "instructions", err) != STATUS_OK ||
        field_text(&r.previous, body, "previous_response_id", err) != STATUS_OK ||
        field_bool(&r.base.stream, body, "stream", err) != STATUS_OK ||
        field_bool(&r.store, body, "store", err) != STATUS_OK ||
        field_bool(&r.base.is_background, body, "background", err) != STATUS_OK ||
        field_object(&text, body, "text", err) != STATUS_OK ||
        openai_request_take_metadata(&r, body, arena, err) != STATUS_OK ||
        request_tools(&r.base, body, TOOLS_OF_RESPONSES, arena, err) != STATUS_OK ||
        take_echo(&r, body, arena, err) != STATUS_OK ||
        responses_take_reasoning(&r, body, arena, err) != STATUS_OK ||
        request_refuse_unmet(body, REQUEST_RESPONSES, err) != STATUS_OK ||
        request_sampling(&r.base.overrides, body, "max_output_tokens", arena, err) != STATUS_OK ||
        openai_request_take_input(r.base.prompts, body, arena, err) != STATUS_OK ||
        request_constraint(&r.base, body, text != NULL ? field(text, "format") : NULL, "format",
                           arena, err) != STATUS_OK)
        return err->status;
    if (r.base.is_background && !r.store)
        return error_field(err, "background", "needs store: the response is read later");
    *out = r;
    return STATUS_OK;
}
