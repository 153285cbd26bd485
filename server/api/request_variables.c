/* Whether and how hard the model is to think, and other variables of its chat template, in the
 * spellings of vLLM and llama-server. They become one JSON object, by which a turn is stored. */
#include <stdlib.h>
#include <string.h>

#include "server/api/request.h"
#include "server/json/fields.h"

enum { VARIABLES_MAX_BYTES = 64 << 10 };

enum status request_effort(struct thinking_request *out, const json_t *value, const char *name,
                           struct error *err)
{
    static const char *const efforts[] = {"none", "minimal", "low", "medium",
                                          "high", "xhigh",   "max"};
    const char *text = json_string_value(value);

    if (value == NULL || json_is_null(value))
        return STATUS_OK;
    if (text == NULL)
        return field_wrong(err, name, "a string", value);
    for (size_t i = 0; i < sizeof(efforts) / sizeof(efforts[0]); i++) {
        if (strcmp(text, efforts[i]) == 0) {
            out->effort = efforts[i];
            out->thinking = i == 0 ? THINKING_OFF : THINKING_ON;
            return STATUS_OK;
        }
    }
    return error_field(
        err, name, "is '%.40s', it must be none, minimal, low, medium, high, xhigh or max", text);
}

/* Names that are the request's own, or no variables. */
static enum status variables_check_name(const char *name, struct error *err)
{
    static const char *const taken[] = {
        "add_generation_prompt", "bos_token", "chat_template", "continue_final_message",
        "conversation",          "eos_token", "messages",      "return_assistant_tokens_mask",
        "return_dict",           "tokenize",  "tools"};
    char field[sizeof(err->field)];

    (void)snprintf(field, sizeof(field), "chat_template_kwargs.%.24s", name);
    if (strlen(name) > TEMPLATE_VARIABLE_MAX_NAME)
        return error_field(err, field, "is longer than %d bytes", TEMPLATE_VARIABLE_MAX_NAME);
    for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++)
        if (strcmp(name, taken[i]) == 0)
            return error_field(err, field, "is not a variable that a request may set");
    return STATUS_OK;
}

static enum status variables_add(json_t *all, const json_t *kwargs, struct error *err)
{
    json_t *from = (json_t *)kwargs; /* jansson's iterators change nothing */

    for (void *at = json_object_iter(from); at != NULL; at = json_object_iter_next(from, at)) {
        const char *name = json_object_iter_key(at);

        if (variables_check_name(name, err) != STATUS_OK)
            return err->status;
        if (json_object_set(all, name, json_object_iter_value(at)) != 0)
            return error_no_memory(err, 0, "the variables of the chat template");
    }
    return STATUS_OK;
}

/* Families name the switch differently: what says one of the names says the other. */
static enum status variables_pair(json_t *all, const json_t *kwargs, enum thinking *ret_thinking,
                                  struct error *err)
{
    static const char *const names[] = {"thinking", "enable_thinking"}; /* the last one wins */

    for (size_t i = 0; i < 2; i++) {
        const json_t *given = json_object_get(kwargs, names[i]);

        if (!json_is_boolean(given))
            continue;
        *ret_thinking = json_is_true(given) ? THINKING_ON : THINKING_OFF;
        if (json_object_get(kwargs, names[1 - i]) == NULL &&
            json_object_set_new(all, names[1 - i], json_boolean(json_is_true(given))) != 0)
            return error_no_memory(err, 0, "the variables of the chat template");
    }
    return STATUS_OK;
}

static enum status variables_keep(struct text *out, const json_t *all, struct arena *arena,
                                  struct error *err)
{
    char *text = json_dumps(all, JSON_COMPACT | JSON_SORT_KEYS);
    enum status rc = STATUS_OK;

    if (text == NULL)
        return error_no_memory(err, 0, "the variables of the chat template");
    if (strlen(text) > VARIABLES_MAX_BYTES) {
        rc = error_field(err, "chat_template_kwargs", "has %zu bytes, at most %d are allowed",
                         strlen(text), VARIABLES_MAX_BYTES);
    } else {
        out->len = strlen(text);
        out->text = arena_strndup(arena, text, out->len);
        rc = out->text != NULL ? STATUS_OK
                               : error_no_memory(err, 0, "the variables of the chat template");
    }
    free(text);
    return rc;
}

static enum status variables_fill(struct template_variables *out, json_t *all,
                                  const struct thinking_request *asked, const json_t *kwargs,
                                  struct arena *arena, struct error *err)
{
    const bool is_on = asked->thinking == THINKING_ON;

    out->thinking = asked->thinking;
    if (asked->thinking != THINKING_DEFAULT &&
        (json_object_set_new(all, "enable_thinking", json_boolean(is_on)) != 0 ||
         json_object_set_new(all, "thinking", json_boolean(is_on)) != 0))
        return error_no_memory(err, 0, "the variables of the chat template");
    if (asked->effort != NULL &&
        json_object_set_new(all, "reasoning_effort", json_string(asked->effort)) != 0)
        return error_no_memory(err, 0, "the variables of the chat template");
    if (asked->has_budget &&
        json_object_set_new(all, "thinking_budget", json_integer(asked->budget)) != 0)
        return error_no_memory(err, 0, "the variables of the chat template");
    if (variables_add(all, kwargs, err) != STATUS_OK ||
        variables_pair(all, kwargs, &out->thinking, err) != STATUS_OK)
        return err->status;
    return variables_keep(&out->json, all, arena, err);
}

enum status template_variables_make(struct template_variables *out,
                                    const struct thinking_request *asked, const json_t *kwargs,
                                    struct arena *arena, struct error *err)
{
    struct template_variables made = {0};
    json_t *all;
    enum status rc;

    if (asked->thinking == THINKING_DEFAULT && asked->effort == NULL && !asked->has_budget &&
        json_object_size(kwargs) == 0) {
        *out = made;
        return STATUS_OK;
    }
    all = json_object();
    rc = all == NULL ? error_no_memory(err, 0, "the variables of the chat template")
                     : variables_fill(&made, all, asked, kwargs, arena, err);
    json_decref(all);
    if (rc == STATUS_OK)
        *out = made;
    return rc;
}

enum status request_budget(struct thinking_request *out, const json_t *object, const char *name,
                           struct error *err)
{
    int64_t n = 0;

    if (field_whole(&n, &out->has_budget, object, name, 0, UINT32_MAX, err) != STATUS_OK)
        return err->status;
    if (field(object, name) != NULL)
        out->budget = (uint32_t)n;
    return STATUS_OK;
}

/* {"type", "budget_tokens"}, as Anthropic and others have it. Only "enabled" is refused by a model
 * that cannot: the others leave the choice to it. */
static enum status variables_take_thinking(struct request *out, struct thinking_request *asked,
                                           const json_t *body, struct error *err)
{
    const json_t *thinking = NULL;
    const char *type = "";

    if (field_object(&thinking, body, "thinking", err) != STATUS_OK)
        return err->status;
    if (thinking == NULL)
        return STATUS_OK;
    if (field_text(&type, thinking, "type", err) != STATUS_OK)
        return field_inside(err, "thinking");
    if (strcmp(type, "enabled") == 0)
        out->thinks = "thinking";
    else if (strcmp(type, "disabled") != 0 && strcmp(type, "adaptive") != 0 &&
             strcmp(type, "between_tools") != 0)
        return error_field(err, "thinking.type",
                           "is '%.40s', it must be enabled, disabled, adaptive or between_tools",
                           type);
    asked->thinking = strcmp(type, "disabled") == 0 ? THINKING_OFF : THINKING_ON;
    if (request_budget(asked, thinking, "budget_tokens", err) != STATUS_OK)
        return field_inside(err, "thinking");
    return STATUS_OK;
}

/* What vLLM, llama-server and Qwen's own service call it. */
static enum status variables_take_budget(struct thinking_request *out, const json_t *body,
                                         struct error *err)
{
    static const char *const names[] = {"thinking_budget", "thinking_budget_tokens",
                                        "thinking_token_budget"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (request_budget(out, body, names[i], err) != STATUS_OK)
            return err->status;
    return STATUS_OK;
}

enum status request_variables(struct request *out, const json_t *body,
                              const struct thinking_request *asked, struct arena *arena,
                              struct error *err)
{
    struct thinking_request all = {0};
    const json_t *kwargs = NULL;
    bool is_enabled = false;

    if (asked != NULL)
        all = *asked;
    if (request_effort(&all, field(body, "reasoning_effort"), "reasoning_effort", err) !=
            STATUS_OK ||
        variables_take_thinking(out, &all, body, err) != STATUS_OK ||
        variables_take_budget(&all, body, err) != STATUS_OK ||
        field_bool(&is_enabled, body, "enable_thinking", err) != STATUS_OK ||
        field_object(&kwargs, body, "chat_template_kwargs", err) != STATUS_OK)
        return err->status;
    if (field(body, "enable_thinking") != NULL)
        all.thinking = is_enabled ? THINKING_ON : THINKING_OFF;
    return template_variables_make(&out->variables, &all, kwargs, arena, err);
}
