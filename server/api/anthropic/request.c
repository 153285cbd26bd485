/* Reads the fields of a request by a table, and its messages by request_chat.c. What Anthropic's
 * API has and this daemon does not do is refused or left out by name. */
#include "server/api/anthropic/request.h"

#include <string.h>

#include "agents/constraint/constraint.h"
#include "server/api/anthropic/request_chat.h"
#include "server/api/known_fields.h"
#include "server/json/field_table.h"
#include "server/json/fields.h"
#include "server/json/foreign_fields.h"
#include "server/json/sampling.h"

/* The member "type" of an object, "" where it has none. */
static const char *anthropic_type_of(const json_t *object)
{
    const char *type = json_string_value(json_object_get(object, "type"));

    return type == NULL ? "" : type;
}

/* --- what the API knows --- */

/* What the table fills; the rest of the request is read from these. */
struct anthropic_body {
    struct request r;
    const json_t *config, *format, *stops;
    const json_t *metadata; /* changes nothing */
    uint32_t max_tokens;
    bool has_max_tokens;
};

#define TO(member) offsetof(struct anthropic_body, member)
#define IN_CHAT "is not supported here: /v1/chat/completions has it"
#define ONE_REPLY "must be 1: /v1/chat/completions has n"

/* Beside the table, sampling, constraints, thinking, system, messages and tools have readers of
 * their own. */
/* clang-format off */
static const struct field_row anthropic_rows[] = {
    {"best_of", FIELD_ANY, .refused = ONE_REPLY, .is_off = field_is_one},
    {"logit_bias", FIELD_ANY, .refused = IN_CHAT, .is_off = field_is_empty},
    {"max_completion_tokens", FIELD_ANY, .refused = "is not supported: use max_tokens", .is_off = field_is_empty},
    {"max_tokens", FIELD_WHOLE, .to = TO(max_tokens), .least = 1, .most = UINT32_MAX, .given = TO(has_max_tokens)},
    {"mcp_servers", FIELD_LIST, .refused = "cannot be called by the models that are served", .is_off = field_is_empty},
    {"metadata", FIELD_OBJECT, .to = TO(metadata)},
    {"model", FIELD_TEXT, .to = TO(r.model)},
    {"n", FIELD_ANY, .refused = ONE_REPLY, .is_off = field_is_one},
    {"output_config", FIELD_OBJECT, .to = TO(config)},
    {"output_format", FIELD_OBJECT, .to = TO(format)}, /* the former place of output_config's */
    {"prompt_logprobs", FIELD_ANY, .refused = IN_CHAT, .is_off = field_is_empty},
    {"prompt_token_ids", FIELD_ANY, .refused = IN_CHAT, .is_off = field_is_empty},
    {"return_token_ids", FIELD_BOOL, .to = TO(r.wants_ids)},
    {"stop_sequences", FIELD_LIST, .to = TO(stops)},
    {"stream", FIELD_BOOL, .to = TO(r.stream)},
};
/* clang-format on */

static const struct field_table of_anthropic = FIELD_TABLE(anthropic_rows);

/* thinking goes before the effort. */
static enum status anthropic_take_thinking(struct anthropic_body *given, const json_t *body,
                                           struct arena *arena, struct error *err)
{
    struct thinking_request asked = {0};

    if (request_effort(&asked, field(given->config, "effort"), "output_config.effort", err) !=
        STATUS_OK)
        return err->status;
    return request_variables(&given->r, body, &asked, arena, err);
}

/* --- what the reply must match --- */

static enum status anthropic_take_format(struct anthropic_body *given, const json_t *body,
                                         struct arena *arena, struct error *err)
{
    const json_t *format = NULL, *schema;
    const struct constraint *constraint;
    struct request *out = &given->r;
    enum status rc;

    if (request_constraint(out, body, NULL, "", arena, err) != STATUS_OK ||
        field_object(&format, given->config, "format", err) != STATUS_OK)
        return err->status;
    if (given->format != NULL)
        format = given->format;
    if (format == NULL)
        return STATUS_OK;
    if ((out->overrides.given & SAMPLING_CONSTRAINT) != 0)
        return error_field(err, "output_config.format",
                           "cannot be combined with another constraint");
    schema = json_object_get(format, "schema");
    if (strcmp(anthropic_type_of(format), "json_schema") != 0 || schema == NULL)
        return error_field(err, "output_config.format", "must be a json_schema with its schema");
    rc = constraint_of_schema(&constraint, schema, true, &out->left_out, arena, err);
    if (rc != STATUS_OK)
        return rc == STATUS_EXHAUSTED ? rc : error_name_field(err, "output_config.format");
    out->overrides.given |= SAMPLING_CONSTRAINT;
    out->overrides.values.constraint = constraint;
    return STATUS_OK;
}

static enum status anthropic_take_sampling(struct anthropic_body *given, const json_t *body,
                                           bool is_counted, struct arena *arena, struct error *err)
{
    struct sampling_overrides *p = &given->r.overrides;

    if (sampling_json_set_all(p, body, arena, err) != STATUS_OK ||
        foreign_fields_take(p, body, arena, err) != STATUS_OK)
        return err->status;
    if (!given->has_max_tokens && !is_counted)
        return error_field(err, "max_tokens", "is missing");
    if (json_array_size(given->stops) == 0)
        return STATUS_OK;
    if (sampling_json_set(p, "stop", given->stops, arena, err) != STATUS_OK)
        return field_rename(err, "stop", "stop_sequences");
    return STATUS_OK;
}

/* --- what was said --- */

/* Claude Code's note to its provider at the head of the system prompt, which differs from request
 * to request. */
static bool is_billing_note(const json_t *block)
{
    static const char note[] = "x-anthropic-billing-header:";
    const char *text = json_string_value(json_object_get(block, "text"));

    return text != NULL && strncmp(text, note, sizeof(note) - 1) == 0;
}

/* The blocks of a system prompt that the model reads; a new reference. */
static json_t *system_blocks(const json_t *system)
{
    json_t *blocks = json_array();

    for (size_t i = 0; blocks != NULL && i < json_array_size(system); i++) {
        json_t *block = json_array_get(system, i);

        if (!is_billing_note(block) && json_array_append(blocks, block) != 0) {
            json_decref(blocks);
            return NULL;
        }
    }
    return blocks;
}

static enum status anthropic_read_system(struct message *out, const json_t *system,
                                         struct arena *arena, struct error *err)
{
    json_t *blocks;
    enum status rc;

    if (!json_is_array(system))
        return request_content(out, system, "system", arena, err);
    blocks = system_blocks(system);
    rc = blocks == NULL ? error_no_memory(err, 0, "the request")
                        : request_content(out, blocks, "system", arena, err);
    json_decref(blocks); /* the message's text is the arena's */
    return rc;
}

/* Adds a text to the system prompt, which has room for it, behind an empty line. */
static void system_add(struct message *system, char *text, const struct message *m)
{
    if (system->len > 0 && m->len > 0) {
        memcpy(text + system->len, "\n\n", 2);
        system->len += 2;
    }
    memcpy(text + system->len, m->text, m->len);
    system->len += m->len;
    text[system->len] = '\0';
}

/* Begins the prompt with system, and with the system messages that stand before the first reply.
 * Claude Code's is longer than what it calls system, and always the same; the user's message before
 * it is not, and the prefix cache finds nothing behind that. */
static enum status anthropic_put_first(struct prompt *p, const struct message *system,
                                       struct arena *arena, struct error *err)
{
    struct message *all = arena_alloc(arena, p->n_messages + 1, sizeof(all[0]));
    size_t n = 1, len = system->len;
    bool is_begun = true;
    char *text;

    for (size_t i = 0; i < p->n_messages; i++)
        len += p->messages[i].role == ROLE_SYSTEM ? p->messages[i].len + 2 : 0;
    text = arena_alloc(arena, len + 1, 1);
    if (all == NULL || text == NULL)
        return error_no_memory(err, (p->n_messages + 1) * sizeof(all[0]) + len, "messages");
    all[0] = (struct message){.role = ROLE_SYSTEM, .text = text};
    system_add(&all[0], text, system);
    for (size_t i = 0; i < p->n_messages; i++) {
        const struct message *m = &p->messages[i];

        is_begun = is_begun && m->role != ROLE_ASSISTANT;
        if (is_begun && m->role == ROLE_SYSTEM)
            system_add(&all[0], text, m);
        else
            all[n++] = *m;
    }
    if (all[0].len == 0)
        return STATUS_OK;
    p->messages = all;
    p->n_messages = n;
    return STATUS_OK;
}

static enum status anthropic_take_prompt(struct prompt *out, const json_t *body, const json_t *chat,
                                         struct arena *arena, struct error *err)
{
    const json_t *given = field(body, "system");
    struct message system = {.text = ""};

    if (request_messages(out, json_object_get(chat, "messages"), "messages", arena, err) !=
            STATUS_OK ||
        (given != NULL && anthropic_read_system(&system, given, arena, err) != STATUS_OK))
        return err->status;
    out->is_begun = request_ends_with_reply(out);
    return anthropic_put_first(out, &system, arena, err);
}

/* Tools and messages. The body owns the form of chat completions, since the request borrows it. */
static enum status anthropic_take_chat(struct request *out, const json_t *body, struct arena *arena,
                                       struct error *err)
{
    json_t *chat;

    if (anthropic_chat(&chat, body, err) != STATUS_OK)
        return err->status;
    if (json_object_set_new((json_t *)body, "as chat", chat) != 0)
        return error_no_memory(err, 0, "the request");
    for (size_t i = 0; i < json_array_size(json_object_get(chat, "left out")); i++) {
        const json_t *what = json_array_get(json_object_get(chat, "left out"), i);

        if (request_leave_out(out, json_string_value(what), arena, err) != STATUS_OK)
            return err->status;
    }
    if (request_tools(out, chat, TOOLS_OF_CHAT, arena, err) != STATUS_OK)
        return err->status;
    return anthropic_take_prompt(out->prompts, body, chat, arena, err);
}

/* The members that the API does not know. What readers add to the body comes later. */
static enum status anthropic_list_others(const char **out, const struct anthropic_body *given,
                                         const json_t *body, struct arena *arena, struct error *err)
{
    const struct known_object objects[] = {
        {.object = body,
         .path = "",
         .has_sampling = true,
         .has_foreign = true,
         .tables = {&of_anthropic}},
        {.object = given->config, .path = "output_config."},
        {.object = field(body, "structured_outputs"), .path = "structured_outputs."},
        {.object = field(body, "thinking"), .path = "thinking."},
    };

    return known_fields_list_others(out, objects, sizeof(objects) / sizeof(objects[0]),
                                    FIELDS_OF_MESSAGES, arena, err);
}

static const struct field_name anthropic_names[] = {
    {"stop", "stop_sequences"}, {"messages[0].text", "messages[0].content"}, {0}};

enum status anthropic_request(struct request *out, const json_t *body, bool is_counted,
                              struct arena *arena, struct error *err)
{
    struct anthropic_body given = {
        .r = {.model = "", .n = 1, .n_prompts = 1, .names = anthropic_names}};
    struct request *r = &given.r;
    const char *others;

    r->prompts = arena_alloc(arena, 1, sizeof(r->prompts[0]));
    if (r->prompts == NULL)
        return error_no_memory(err, sizeof(r->prompts[0]), "the request");
    if (field_table_read(&of_anthropic, &given, body, err) != STATUS_OK ||
        anthropic_list_others(&others, &given, body, arena, err) != STATUS_OK ||
        anthropic_take_thinking(&given, body, arena, err) != STATUS_OK ||
        anthropic_take_sampling(&given, body, is_counted, arena, err) != STATUS_OK ||
        anthropic_take_format(&given, body, arena, err) != STATUS_OK ||
        anthropic_take_chat(r, body, arena, err) != STATUS_OK ||
        request_leave_out(r, others, arena, err) != STATUS_OK)
        return err->status;
    *out = *r;
    return STATUS_OK;
}
