/* Writes the requests of OpenAI's APIs, and reads the events and the errors of their replies. The
 * file knows no network: target_openai.c sends, and feeds what has come. */
#include "client/cli/bench/openai.h"

#include <stdio.h>
#include <string.h>

enum {
    MAX_BODY_BYTES = 64 << 20,
    MAX_EVENT_BYTES = 16 << 20,
    MAX_COMPLAINT_BYTES = 64 << 10,
};

enum openai_api openai_api_of(const struct target_config *config)
{
    return config->is_chat        ? OPENAI_CHAT
           : config->is_responses ? OPENAI_RESPONSES
                                  : OPENAI_COMPLETIONS;
}

const char *openai_path(enum openai_api api)
{
    static const char *const paths[] = {"completions", "chat/completions", "responses"};

    return paths[api];
}

void openai_init(struct openai *o, struct target_session *session, enum openai_api api)
{
    *o = (struct openai){.session = session, .api = api};
    sse_init(&o->sse, MAX_EVENT_BYTES);
    buf_init(&o->prompt, MAX_BODY_BYTES);
    buf_init(&o->reply, MAX_BODY_BYTES);
    buf_init(&o->complaint, MAX_COMPLAINT_BYTES);
}

void openai_deinit(struct openai *o)
{
    sse_deinit(&o->sse);
    buf_deinit(&o->prompt);
    buf_deinit(&o->reply);
    buf_deinit(&o->complaint);
    json_decref(o->messages);
}

/* --- what is sent --- */

static enum status say_as_chat(struct openai *o)
{
    const struct target_session *base = o->session;

    if (base->turn == 1) {
        json_decref(o->messages);
        o->messages = json_array();
        if (base->system != NULL)
            (void)json_array_append_new(
                o->messages, json_pack("{ss,ss}", "role", "system", "content", base->system));
    } else {
        (void)json_array_append_new(o->messages,
                                    json_pack("{ss,ss}", "role", "assistant", "content",
                                              o->reply.len == 0 ? "" : o->reply.data));
    }
    return json_array_append_new(o->messages,
                                 json_pack("{ss,ss}", "role", "user", "content", base->text)) == 0
               ? STATUS_OK
               : STATUS_EXHAUSTED;
}

static enum status say_as_text(struct openai *o)
{
    const struct target_session *base = o->session;
    const char *before = o->reply.data;
    enum status rc = STATUS_OK;

    if (base->turn == 1) {
        buf_clear(&o->prompt);
        before = base->system;
    }
    if (before != NULL)
        rc = buf_append_text(&o->prompt, before);
    if (rc == STATUS_OK && o->prompt.len > 0)
        rc = buf_append(&o->prompt, " ", 1);
    return rc != STATUS_OK ? rc : buf_append_text(&o->prompt, base->text);
}

/* Under the API's own name; of completions, which have none, under that of vLLM. The text is JSON,
 * which the command has checked. */
static void set_schema(json_t *request, enum openai_api api, const char *text)
{
    json_t *schema = json_loads(text, JSON_DECODE_ANY, NULL);

    if (api == OPENAI_CHAT)
        (void)json_object_set_new(request, "response_format",
                                  json_pack("{ss,s{ss,sO,sb}}", "type", "json_schema",
                                            "json_schema", "name", "reply", "schema", schema,
                                            "strict", 1));
    else if (api == OPENAI_RESPONSES)
        (void)json_object_set_new(request, "text",
                                  json_pack("{s{ss,ss,sO,sb}}", "format", "type", "json_schema",
                                            "name", "reply", "schema", schema, "strict", 1));
    else
        (void)json_object_set_new(request, "structured_outputs", json_pack("{sO}", "json", schema));
    json_decref(schema);
}

static json_t *request_of(const struct openai *o, const struct target_config *config,
                          const char *model)
{
    bool is_responses = o->api == OPENAI_RESPONSES;
    json_t *request = json_pack("{ss,sI,sf,sb}", "model", model,
                                is_responses ? "max_output_tokens" : "max_tokens",
                                (json_int_t)o->session->max_tokens, "temperature",
                                (double)config->temperature, "stream", 1);

    if (!is_responses) /* the last event of Responses always has the usage */
        (void)json_object_set_new(request, "stream_options", json_pack("{sb}", "include_usage", 1));
    if (config->ignore_eos)
        (void)json_object_set_new(request, "ignore_eos", json_true());
    if (o->session->json_schema != NULL)
        set_schema(request, o->api, o->session->json_schema);
    if (o->api != OPENAI_COMPLETIONS)
        (void)json_object_set(request, is_responses ? "input" : "messages", o->messages);
    else if (json_object_set_new(request, "prompt", json_string(o->prompt.data)) != 0)
        (void)json_object_clear(request); /* fails if a text is not UTF-8 */
    return request;
}

enum status openai_request(char **out, struct openai *o, const struct target_config *config,
                           const char *model, struct error *err)
{
    json_t *request;

    if ((o->api == OPENAI_COMPLETIONS ? say_as_text(o) : say_as_chat(o)) != STATUS_OK)
        return error_set(err, STATUS_EXHAUSTED, "a prompt is longer than %d MiB or not UTF-8",
                         MAX_BODY_BYTES >> 20);
    request = request_of(o, config, model);
    *out = json_object_size(request) == 0 ? NULL : json_dumps(request, JSON_COMPACT);
    json_decref(request);
    if (*out == NULL)
        return error_set(err, STATUS_INVALID, "a prompt is not UTF-8");
    buf_clear(&o->reply);
    buf_clear(&o->complaint);
    sse_clear(&o->sse);
    o->n_chunks = 0;
    o->is_done = false;
    o->err = (struct error){0};
    return STATUS_OK;
}

/* --- what comes --- */

void openai_fail(struct openai *o, enum status status, const char *what, const char *detail)
{
    if (o->err.status == STATUS_OK)
        (void)error_set(&o->err, status, "%s%s%s", what, *detail == '\0' ? "" : ": ", detail);
}

static uint32_t whole(const json_t *object, const char *name)
{
    json_int_t value = json_integer_value(json_object_get(object, name));

    return value < 0 || value > UINT32_MAX ? 0 : (uint32_t)value;
}

static void take_usage(struct openai *o, const json_t *usage)
{
    if (!json_is_object(usage))
        return;
    o->session->prompt_tokens = whole(usage, "prompt_tokens");
    o->session->completion_tokens = whole(usage, "completion_tokens");
    o->session->cached_tokens =
        whole(json_object_get(usage, "prompt_tokens_details"), "cached_tokens");
}

/* Text that counts as tokens, but that the next turn does not repeat. */
static void take_thought(struct openai *o, const json_t *text)
{
    if (json_string_length(text) == 0)
        return; /* a role or a finish reason: no token */
    o->n_chunks++;
    session_chunk(o->session);
}

static void take_text(struct openai *o, const json_t *text)
{
    take_thought(o, text);
    if (buf_append(&o->reply, json_string_value(text), json_string_length(text)) != STATUS_OK)
        openai_fail(o, STATUS_EXHAUSTED, "the reply is too long", "");
}

/* The pieces of calls that a chunk of a chat has: names and arguments count as tokens. */
static void take_call_pieces(struct openai *o, const json_t *calls)
{
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *function = json_object_get(json_array_get(calls, i), "function");
        const json_t *name = json_object_get(function, "name");

        take_thought(o,
                     json_string_length(name) > 0 ? name : json_object_get(function, "arguments"));
    }
}

static void take_choice(struct openai *o, const json_t *choice)
{
    bool is_chat = o->api == OPENAI_CHAT;
    const json_t *from = is_chat ? json_object_get(choice, "delta") : choice;

    const json_t *text = json_object_get(from, is_chat ? "content" : "text");
    const json_t *thought = json_object_get(from, "reasoning_content");

    if (json_string_length(text) > 0)
        take_text(o, text);
    else if (is_chat) /* under vLLM's older name or its newer one */
        take_thought(o, thought != NULL ? thought : json_object_get(from, "reasoning"));
    if (is_chat)
        take_call_pieces(o, json_object_get(from, "tool_calls"));
    if (json_is_string(json_object_get(choice, "finish_reason")))
        o->is_done = true;
}

/* The message of OpenAI's {"error": {"message": …}}; "" where there is none. */
static const char *error_message(const json_t *object)
{
    const json_t *error = json_object_get(object, "error");
    const char *text =
        json_string_value(json_is_string(error) ? error : json_object_get(error, "message"));

    return text == NULL ? "" : text;
}

/* An event of a stream of /v1/responses. Types that are not named here carry no text of the reply.
 */
static void take_response_event(struct openai *o, const json_t *event)
{
    const char *type = json_string_value(json_object_get(event, "type"));
    const json_t *response = json_object_get(event, "response");
    const json_t *usage = json_object_get(response, "usage");

    if (type == NULL)
        return;
    if (strcmp(type, "response.output_text.delta") == 0) {
        take_text(o, json_object_get(event, "delta"));
    } else if (strcmp(type, "response.reasoning_text.delta") == 0 ||
               strcmp(type, "response.reasoning_summary_text.delta") == 0 ||
               strcmp(type, "response.function_call_arguments.delta") == 0 ||
               strcmp(type, "response.custom_tool_call_input.delta") == 0) {
        take_thought(o, json_object_get(event, "delta"));
    } else if (strcmp(type, "response.failed") == 0) {
        openai_fail(o, STATUS_UNKNOWN, "the server failed", error_message(response));
    } else if (strcmp(type, "error") == 0) {
        const char *text = json_string_value(json_object_get(event, "message"));

        openai_fail(o, STATUS_UNKNOWN, "the server failed", text == NULL ? "" : text);
    } else if (strcmp(type, "response.completed") == 0 ||
               strcmp(type, "response.incomplete") == 0) {
        o->is_done = true;
        o->session->prompt_tokens = whole(usage, "input_tokens");
        o->session->completion_tokens = whole(usage, "output_tokens");
        o->session->cached_tokens =
            whole(json_object_get(usage, "input_tokens_details"), "cached_tokens");
    }
}

static void on_event(void *arg, const char *data, size_t len)
{
    struct openai *o = arg;
    json_t *event;

    if (strcmp(data, "[DONE]") == 0) {
        /* Responses have an event of their own for the end. */
        o->is_done = o->is_done || o->api != OPENAI_RESPONSES;
        return;
    }
    event = json_loadb(data, len, 0, NULL);
    if (!json_is_object(event))
        openai_fail(o, STATUS_INTERNAL, "an event of the stream is not a JSON object", "");
    else if (json_object_get(event, "error") != NULL &&
             !json_is_null(json_object_get(event, "error"))) /* which some servers always send */
        openai_fail(o, STATUS_UNKNOWN, "the server failed", error_message(event));
    if (o->api == OPENAI_RESPONSES)
        take_response_event(o, event);
    else
        take_usage(o, json_object_get(event, "usage"));
    if (o->api != OPENAI_RESPONSES && json_array_size(json_object_get(event, "choices")) > 0)
        take_choice(o, json_array_get(json_object_get(event, "choices"), 0));
    json_decref(event);
}

bool openai_feed(struct openai *o, long http_status, const char *bytes, size_t len)
{
    if (http_status != 200) {
        (void)!buf_append(&o->complaint, bytes, len); /* text beyond the limit is not shown */
        return true;
    }
    if (sse_feed(&o->sse, bytes, len, on_event, o) != STATUS_OK)
        openai_fail(o, STATUS_EXHAUSTED, "an event of the stream is too long", "");
    return o->err.status == STATUS_OK;
}

static enum status openai_status_of(long code)
{
    switch (code) {
    case 400:
    case 422:
        return STATUS_INVALID;
    case 401:
        return STATUS_UNAUTHENTICATED;
    case 403:
        return STATUS_DENIED;
    case 404:
        return STATUS_NOT_FOUND;
    case 429:
        return STATUS_EXHAUSTED;
    case 502:
    case 503:
        return STATUS_UNAVAILABLE;
    case 408:
    case 504:
        return STATUS_DEADLINE;
    default:
        return STATUS_UNKNOWN;
    }
}

static void openai_complain(struct openai *o, long code)
{
    json_t *answer = json_loadb(o->complaint.data, o->complaint.len, 0, NULL);
    char what[32];

    (void)snprintf(what, sizeof(what), "HTTP status %ld", code);
    openai_fail(o, openai_status_of(code), what, error_message(answer));
    json_decref(answer);
}

void openai_end(struct openai *o, long http_status)
{
    if (http_status != 200)
        openai_complain(o, http_status);
    else if (!o->is_done)
        openai_fail(o, STATUS_UNAVAILABLE,
                    "the server closed the connection before the end of the reply", "");
    if (o->session->completion_tokens == 0) /* the server sent no usage */
        o->session->completion_tokens = o->n_chunks;
}
