/* Reads the requests of /api/chat and /api/generate: their common fields by a table, then messages
 * or a prompt. Options go to the one reader of sampling parameters. */
#include "server/api/ollama/request.h"

#include <string.h>

#include "agents/constraint/constraint.h"
#include "server/api/known_fields.h"
#include "server/api/ollama/request_chat.h"
#include "server/json/field_table.h"
#include "server/json/fields.h"
#include "server/json/foreign_fields.h"
#include "server/json/sampling.h"

/* --- what the API knows --- */

/* What the tables fill; the rest of the request is read from these. */
struct ollama_body {
    struct ollama_request r;
    const json_t *options, *messages, *prompt, *suffix, *context;
    const char *system;
    const char *others; /* members that are not known, as a list */
    bool is_raw;
};

#define TO(member) offsetof(struct ollama_body, member)

#define IN_CHAT "is not supported here: /v1/chat/completions has it"
#define ONE_REPLY "must be 1: /v1/chat/completions has n"

/* Beside the tables, images, keep_alive, think, format, constraints and tools have readers of their
 * own. */
/* clang-format off */
#define REFUSED(name, kind, why) {name, kind, .refused = (why), .is_off = field_is_empty}
static const struct field_row ollama_rows[] = {
    {"best_of", FIELD_ANY, .refused = ONE_REPLY, .is_off = field_is_one},
    REFUSED("logit_bias", FIELD_ANY, IN_CHAT),
    {"logprobs", FIELD_BOOL, .to = TO(r.base.want_logprobs)},
    {"model", FIELD_TEXT, .to = TO(r.base.model)},
    {"n", FIELD_ANY, .refused = ONE_REPLY, .is_off = field_is_one},
    {"options", FIELD_OBJECT, .to = TO(options)},
    REFUSED("prompt_logprobs", FIELD_ANY, IN_CHAT),
    REFUSED("prompt_token_ids", FIELD_ANY, IN_CHAT),
    {"return_token_ids", FIELD_BOOL, .to = TO(r.base.wants_ids)},
    {"return_tokens_as_token_ids", FIELD_BOOL, .to = TO(r.base.names_ids)},
    {"stream", FIELD_BOOL, .to = TO(r.base.stream)},
    {"top_logprobs", FIELD_WHOLE, .to = TO(r.base.n_top), .least = 0, .most = SAMPLING_MAX_LOGPROBS},
};

static const struct field_row ollama_chat_rows[] = {
    {"messages", FIELD_LIST, .to = TO(messages)},
};

static const struct field_row ollama_generate_rows[] = {
    {"context", FIELD_LIST, .to = TO(context)},
    REFUSED("height", FIELD_ANY, "is not supported: replies are text"),
    {"prompt", FIELD_ANY, .to = TO(prompt)},
    {"raw", FIELD_BOOL, .to = TO(is_raw)},
    REFUSED("steps", FIELD_ANY, "is not supported: replies are text"),
    {"suffix", FIELD_ANY, .to = TO(suffix)},
    {"system", FIELD_TEXT, .to = TO(system)},
    REFUSED("template", FIELD_TEXT, "is not supported: the model's own is used"),
    REFUSED("width", FIELD_ANY, "is not supported: replies are text"),
};
/* clang-format on */

static const struct field_table of_ollama = FIELD_TABLE(ollama_rows),
                                of_ollama_chat = FIELD_TABLE(ollama_chat_rows),
                                of_ollama_generate = FIELD_TABLE(ollama_generate_rows);

/* --- options --- */

/* A negative seed is the server's choice. */
static bool is_left_open(const char *name, const json_t *value)
{
    return json_is_number(value) && json_number_value(value) < 0 && strcmp(name, "seed") == 0;
}

/* num_predict: negative it is what 0 is, too: the reply may be as long as the context allows. */
static bool is_boundless(const char *name, const json_t *value)
{
    return json_is_number(value) && json_number_value(value) < 0 &&
           strcmp(name, "num_predict") == 0;
}

static enum status ollama_take_option(struct sampling_overrides *p, const char *name,
                                      const json_t *value, struct arena *arena, struct error *err)
{
    if (json_is_null(value) || is_left_open(name, value))
        return STATUS_OK;
    if (is_boundless(name, value)) {
        p->given |= SAMPLING_MAX_TOKENS;
        p->values.max_tokens = 0;
        return STATUS_OK;
    }
    if (strcmp(name, "num_predict") == 0 &&
        sampling_json_set(p, "max_tokens", value, arena, err) != STATUS_OK)
        return field_rename(err, "max_tokens", name);
    return sampling_json_set(p, name, value, arena, err);
}

/* Hints about memory and threads, and unknown options, are ignored. */
static enum status ollama_take_options(struct sampling_overrides *p, const json_t *options,
                                       struct arena *arena, struct error *err)
{
    json_t *o = (json_t *)options; /* jansson's iterators change nothing */
    enum status rc = foreign_fields_take(p, options, arena, err);

    for (void *at = json_object_iter(o); at != NULL && rc == STATUS_OK;
         at = json_object_iter_next(o, at))
        rc =
            ollama_take_option(p, json_object_iter_key(at), json_object_iter_value(at), arena, err);
    return rc;
}

/* --- what chat and generate have in common --- */

/* "" is none, "json" any object; else a schema. */
static enum status ollama_take_format(struct request *out, const json_t *body, struct arena *arena,
                                      struct error *err)
{
    const json_t *format = field(body, "format");
    const struct constraint *constraint = NULL;
    enum status rc;

    if (format == NULL || (json_is_string(format) && json_string_length(format) == 0))
        return STATUS_OK;
    if ((out->overrides.given & SAMPLING_CONSTRAINT) != 0)
        return error_field(err, "format", "cannot be combined with another constraint");
    if (json_is_object(format))
        rc = constraint_of_schema(&constraint, format, false, &out->left_out, arena, err);
    else if (json_is_string(format) && strcmp(json_string_value(format), "json") == 0)
        rc = constraint_of_object(&constraint, arena, err);
    else
        return field_wrong(err, "format", "\"json\" or a schema", format);
    if (rc != STATUS_OK)
        return rc == STATUS_EXHAUSTED ? rc : error_name_field(err, "format");
    out->overrides.given |= SAMPLING_CONSTRAINT;
    out->overrides.values.constraint = constraint;
    return STATUS_OK;
}

/* The text is what Ollama's clients look for. */
static enum status ollama_refuse(struct error *err, const char *name, const char *model,
                                 const char *what)
{
    return error_because(err, STATUS_INVALID, REASON_NONE, name, "\"%.80s\" does not support %s",
                         model, what);
}

static bool is_given_list(const json_t *value)
{
    return json_is_array(value) && json_array_size(value) > 0;
}

static enum status ollama_take_thinking(struct request *out, const json_t *body,
                                        struct arena *arena, struct error *err)
{
    const json_t *think = field(body, "think");
    struct thinking_request asked = {0};

    if (think != NULL && !json_is_boolean(think) && !json_is_string(think))
        return field_wrong(err, "think", "true, false or a level", think);
    if (json_is_boolean(think))
        asked.thinking = json_is_true(think) ? THINKING_ON : THINKING_OFF;
    else if (request_effort(&asked, think, "think", err) != STATUS_OK)
        return err->status;
    if (asked.thinking == THINKING_ON)
        out->thinks = "think";
    return request_variables(out, body, &asked, arena, err);
}

static enum status ollama_refuse_unmet(const json_t *body, const char *model, struct error *err)
{
    const json_t *keep = field(body, "keep_alive");

    if (is_given_list(field(body, "images")))
        return ollama_refuse(err, "images", model, "images");
    /* Models are loaded and unloaded by the server's own rules. */
    if (keep != NULL && !json_is_string(keep) && !json_is_number(keep))
        return field_wrong(err, "keep_alive", "a duration or a number of seconds", keep);
    return STATUS_OK;
}

/* The members that the API does not know. What readers add to the body comes later. */
static enum status ollama_list_others(struct ollama_body *out, const struct field_table *own,
                                      enum field_owner api, const json_t *body, struct arena *arena,
                                      struct error *err)
{
    const struct known_object objects[] = {
        {.object = body, .path = "", .has_foreign = true, .tables = {&of_ollama, own}},
        {.object = out->options, .path = "options.", .has_sampling = true, .has_foreign = true},
        {.object = field(body, "structured_outputs"), .path = "structured_outputs."},
        {.object = field(body, "thinking"), .path = "thinking."},
    };

    return known_fields_list_others(&out->others, objects, sizeof(objects) / sizeof(objects[0]),
                                    api, arena, err);
}

static enum status ollama_take_common(struct ollama_body *out, const struct field_table *own,
                                      enum field_owner api, const json_t *body, struct arena *arena,
                                      struct error *err)
{
    struct request *r = &out->r.base;

    *out = (struct ollama_body){
        .r = {.base = {.model = "", .n = 1, .n_prompts = 1, .stream = true}}, .system = ""};
    r->prompts = arena_alloc(arena, 1, sizeof(r->prompts[0]));
    if (r->prompts == NULL)
        return error_no_memory(err, 0, "the request");
    if (field_table_read(&of_ollama, out, body, err) != STATUS_OK ||
        field_table_read(own, out, body, err) != STATUS_OK ||
        ollama_list_others(out, own, api, body, arena, err) != STATUS_OK ||
        ollama_refuse_unmet(body, r->model, err) != STATUS_OK ||
        ollama_take_thinking(r, body, arena, err) != STATUS_OK ||
        foreign_fields_take(&r->overrides, body, arena, err) != STATUS_OK ||
        ollama_take_options(&r->overrides, out->options, arena, err) != STATUS_OK ||
        request_constraint(r, body, NULL, "", arena, err) != STATUS_OK)
        return err->status;
    return ollama_take_format(r, body, arena, err);
}

/* --- chat --- */

static enum status ollama_refuse_messages(const json_t *list, const char *model, struct error *err)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *message = json_array_get(list, i);

        if (is_given_list(field(message, "images")))
            return ollama_refuse(err, "messages", model, "images");
    }
    return STATUS_OK;
}

/* The body owns the form of chat completions, since the request borrows it. */
static enum status ollama_take_messages(struct request *out, const json_t *body,
                                        const json_t *messages, struct arena *arena,
                                        struct error *err)
{
    json_t *chat;

    if (ollama_chat_messages(&chat, messages, err) != STATUS_OK)
        return err->status;
    if (json_object_set_new((json_t *)body, "as chat", chat) != 0)
        return error_no_memory(err, 0, "the request");
    if (request_messages(out->prompts, chat, "messages", arena, err) != STATUS_OK ||
        request_tools(out, body, TOOLS_OF_CHAT, arena, err) != STATUS_OK)
        return err->status;
    out->prompts->is_begun = request_ends_with_reply(out->prompts);
    return STATUS_OK;
}

static const struct field_name ollama_names[] = {{"max_tokens", "num_predict"},
                                                 {"repetition_penalty", "repeat_penalty"},
                                                 {"messages[0].text", "messages[0].content"},
                                                 {0}};
static const struct field_name ollama_generate_names[] = {{"max_tokens", "num_predict"},
                                                          {"repetition_penalty", "repeat_penalty"},
                                                          {"messages", "prompt"},
                                                          {"messages[0].text", "prompt"},
                                                          {0}};

enum status ollama_request_chat(struct ollama_request *out, const json_t *body, struct arena *arena,
                                struct error *err)
{
    struct ollama_body given;
    struct ollama_request *r = &given.r;

    if (ollama_take_common(&given, &of_ollama_chat, FIELDS_OF_OLLAMA_CHAT, body, arena, err) !=
            STATUS_OK ||
        ollama_refuse_messages(given.messages, r->base.model, err) != STATUS_OK)
        return err->status;
    r->base.names = ollama_names;
    r->is_empty = json_array_size(given.messages) == 0;
    r->is_chat = true;
    if (!r->is_empty &&
        ollama_take_messages(&r->base, body, given.messages, arena, err) != STATUS_OK)
        return err->status;
    if (request_leave_out(&r->base, given.others, arena, err) != STATUS_OK)
        return err->status;
    *out = *r;
    return STATUS_OK;
}

/* --- generate --- */

static enum status ollama_take_turn(struct prompt *out, const char *system, const json_t *prompt,
                                    struct arena *arena, struct error *err)
{
    struct message *messages = arena_alloc(arena, 2, sizeof(messages[0]));
    size_t n = 0;

    if (messages == NULL)
        return error_no_memory(err, 0, "the request");
    if (system[0] != '\0')
        messages[n++] =
            (struct message){.role = ROLE_SYSTEM, .text = system, .len = strlen(system)};
    messages[n++] = (struct message){
        .role = ROLE_USER, .text = json_string_value(prompt), .len = json_string_length(prompt)};
    *out = (struct prompt){.messages = messages, .n_messages = n};
    return STATUS_OK;
}

/* An empty list begins a context. */
static enum status ollama_take_context(struct ollama_body *given, struct arena *arena,
                                       struct error *err)
{
    int32_t *ids = NULL;

    if (json_array_size(given->context) == 0)
        return STATUS_OK;
    if (!given->r.is_chat)
        return error_field(err, "context",
                           "cannot be combined with raw or suffix: prompt takes "
                           "all that was said");
    if (field_token_ids(&ids, given->context, "context", "a list of token ids", arena, err) !=
        STATUS_OK)
        return err->status;
    given->r.context = ids;
    given->r.n_context = json_array_size(given->context);
    return STATUS_OK;
}

enum status ollama_request_generate(struct ollama_request *out, const json_t *body,
                                    struct arena *arena, struct error *err)
{
    struct ollama_body given;
    struct ollama_request *r = &given.r;
    struct raw_rules rules = {.parses_control = true};
    enum status rc = STATUS_OK;
    bool fills_in;

    if (ollama_take_common(&given, &of_ollama_generate, FIELDS_OF_OLLAMA_GENERATE, body, arena,
                           err) != STATUS_OK)
        return err->status;
    if (given.is_raw && given.system[0] != '\0')
        return error_field(err, "system", "cannot be combined with raw: put it into the prompt");
    if (given.prompt != NULL && !json_is_string(given.prompt))
        return field_wrong(err, "prompt", "a string", given.prompt);
    r->base.names = ollama_generate_names;
    fills_in = json_string_length(given.suffix) > 0;
    if (fills_in && given.system[0] != '\0')
        return error_field(err, "system", "cannot be combined with suffix: put it into the prompt");
    r->is_empty = json_string_length(given.prompt) == 0 && !fills_in;
    r->is_chat = !given.is_raw && !fills_in;
    if (ollama_take_context(&given, arena, err) != STATUS_OK)
        return err->status;
    if (!r->is_empty && r->is_chat)
        rc = ollama_take_turn(r->base.prompts, given.system, given.prompt, arena, err);
    else if (!r->is_empty) {
        rc = request_raw_rules(&rules, body, err);
        if (rc == STATUS_OK)
            rc = request_prompts(&r->base, given.prompt, &rules, arena, err);
    }
    if (rc == STATUS_OK && !r->is_empty && (given.is_raw || given.suffix != NULL))
        rc = request_fill_in(&r->base, given.suffix, arena, err);
    if (rc == STATUS_OK)
        rc = request_leave_out(&r->base, given.others, arena, err);
    if (rc == STATUS_OK)
        *out = *r;
    return rc;
}
