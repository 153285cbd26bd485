/* POST /tokenize, /detokenize, /apply-template, and GET /tokenizer_info: token ids of a model, as
 * vLLM's and llama-server's clients ask for them. */
#include <string.h>

#include "agents/turn.h"
#include "base/utf8.h"
#include "server/api/answer.h"
#include "server/api/known_fields.h"
#include "server/api/openai/error.h"
#include "server/api/openai/request.h"
#include "server/api/reply_end.h"
#include "server/api/resolution.h"
#include "server/api/routes.h"
#include "server/http/exchange.h"
#include "server/json/field_table.h"
#include "server/json/fields.h"
#include "server/model/model.h"
#include "server/server.h"

enum { TOKEN_MAX_BYTES = 64 << 10, TOKENS_MAX_BYTES = 64 << 20 };

struct tokens_body {
    const char *model;
    const json_t *messages, *ids, *prompt, *content;
    bool is_replied, continues, gives_texts, gives_pieces;
};

#define TO(member) offsetof(struct tokens_body, member)

/* Beside the table, tools and the template's variables have readers of their own. */
/* clang-format off */
static const struct field_row body_rows[] = {
    {"add_generation_prompt", FIELD_BOOL, .to = TO(is_replied)},
    {"chat_template", FIELD_ANY, .refused = "is not supported: the model's own is used", .is_off = field_is_empty},
    {"content", FIELD_ANY, .to = TO(content)},
    {"continue_final_message", FIELD_BOOL, .to = TO(continues)},
    {"messages", FIELD_LIST, .to = TO(messages)},
    {"model", FIELD_TEXT, .to = TO(model)},
    {"prompt", FIELD_ANY, .to = TO(prompt)},
    {"return_token_strs", FIELD_BOOL, .to = TO(gives_texts)},
    {"tokens", FIELD_LIST, .to = TO(ids)},
    {"with_pieces", FIELD_BOOL, .to = TO(gives_pieces)},
};
/* clang-format on */
static const struct field_table of_body = FIELD_TABLE(body_rows);

/* Reads the body, and finds a model that has a vocabulary. */
static enum status tokens_begin(struct tokens_body *out, struct model **ret_model,
                                struct exchange *x, const json_t *body, struct error *err)
{
    *out = (struct tokens_body){.model = "", .is_replied = true};
    if (field_table_read(&of_body, out, body, err) != STATUS_OK ||
        known_fields_name_others(x, body, &of_body, FIELDS_OF_TOKENS, err) != STATUS_OK ||
        resolution_find_model(ret_model, x, out->model, err) != STATUS_OK ||
        model_check_ready(*ret_model, err) != STATUS_OK)
        return err->status;
    if ((*ret_model)->agent->type->text == NULL)
        return error_field(err, "model", "'%s' has no vocabulary", (*ret_model)->name);
    return STATUS_OK;
}

/* A piece of llama-server's: a token's text, or its bytes where these are a part of a character. */
static void write_piece(struct json_writer *w, const struct model *m, int32_t id, struct buf *text)
{
    struct error ignored;

    buf_clear(text);
    json_writer_fail(w, m->agent->type->text->detokenize(m->agent, &id, 1, text, &ignored));
    json_begin_object(w, NULL);
    json_write_signed(w, "id", id);
    if (utf8_is_valid(text->data, text->len)) {
        json_write_string(w, "piece", text->data, text->len);
    } else {
        json_begin_array(w, "piece");
        for (size_t i = 0; i < text->len; i++)
            json_write_unsigned(w, NULL, (unsigned char)text->data[i]);
        json_end_array(w);
    }
    json_end_object(w);
}

/* The texts of the tokens, as vLLM's clients ask for them. */
static void write_token_texts(struct json_writer *w, const struct model *m, const int32_t *ids,
                              size_t n, struct buf *text)
{
    struct error ignored;

    json_begin_array(w, "token_strs");
    for (size_t i = 0; w->rc == STATUS_OK && i < n; i++) {
        buf_clear(text);
        json_writer_fail(w, m->agent->type->text->detokenize(m->agent, &ids[i], 1, text, &ignored));
        json_write_string(w, NULL, text->data, text->len);
    }
    json_end_array(w);
}

/* llama-server's clients name the text content, and are answered with the ids alone. */
static void write_ids(struct json_writer *w, const struct model *m, const struct tokens_body *body,
                      const struct buf *ids)
{
    const int32_t *id = (const int32_t *)(const void *)ids->data;
    size_t n = ids->len / sizeof(id[0]);
    struct buf text;

    buf_init(&text, TOKEN_MAX_BYTES);
    json_begin_object(w, NULL);
    if (body->content == NULL) {
        json_write_unsigned(w, "count", n);
        json_write_unsigned(w, "max_model_len", m->info.text.context);
    }
    json_begin_array(w, "tokens");
    for (size_t i = 0; w->rc == STATUS_OK && i < n; i++)
        if (body->gives_pieces)
            write_piece(w, m, id[i], &text);
        else
            json_write_signed(w, NULL, id[i]);
    json_end_array(w);
    if (body->gives_texts)
        write_token_texts(w, m, id, n, &text);
    json_end_object(w);
    buf_deinit(&text);
}

/* The fields that say how a raw text is read: a chat template's prompt has them in its own way. */
static enum status messages_take_rules(const json_t *body, struct error *err)
{
    struct raw_rules rules = {.adds_no_bos = true};

    if (request_raw_rules(&rules, body, err) != STATUS_OK)
        return err->status;
    if (!rules.adds_no_bos)
        return error_field(err, "add_special_tokens",
                           "must be false with messages: the chat template has them");
    return STATUS_OK;
}

/* The same ids as of a chat completion's prompt. */
static enum status messages_to_ids(struct buf *ids, struct exchange *x, const struct model *m,
                                   const struct tokens_body *given, const json_t *body,
                                   struct error *err)
{
    struct arena *arena = exchange_arena(x);
    struct prompt p = {0};
    struct request r = {.prompts = &p, .n_prompts = 1};

    if (messages_take_rules(body, err) != STATUS_OK ||
        request_messages(&p, given->messages, "messages", arena, err) != STATUS_OK ||
        request_tools(&r, body, TOOLS_OF_CHAT, arena, err) != STATUS_OK ||
        request_variables(&r, body, NULL, arena, err) != STATUS_OK ||
        request_fit_model(&r, m->info.text.reply_format, arena, err) != STATUS_OK)
        return err->status;
    if (given->continues && !request_ends_with_reply(&p))
        return error_field(err, "continue_final_message",
                           "needs a last message of the assistant's");
    p.is_begun = given->continues;
    if (request_continue(&r, m, arena, err) != STATUS_OK)
        return err->status;
    if (p.n_ids > 0)
        return buf_append(ids, p.ids, p.n_ids * sizeof(p.ids[0])) == STATUS_OK
                   ? STATUS_OK
                   : error_no_memory(err, p.n_ids * sizeof(p.ids[0]), "the request");
    return m->agent->type->text->render(m->agent, p.messages, p.n_messages, p.tool_use.tools,
                                        r.variables.json, given->is_replied, ids, err);
}

static enum status prompt_to_ids(struct buf *ids, struct exchange *x, const struct model *m,
                                 const struct tokens_body *given, const json_t *body,
                                 struct error *err)
{
    const json_t *text = given->content != NULL ? given->content : given->prompt;
    /* llama-server's clients ask for a bos, vLLM's for none. */
    struct raw_rules rules = {.parses_control = true, .adds_no_bos = given->content != NULL};
    struct message raw;

    if (given->messages != NULL)
        return messages_to_ids(ids, x, m, given, body, err);
    if (text == NULL)
        return error_field(err, "prompt", "is missing, and so are messages");
    if (!json_is_string(text))
        return field_wrong(err, given->content != NULL ? "content" : "prompt", "a string", text);
    if (request_raw_rules(&rules, body, err) != STATUS_OK)
        return err->status;
    raw = (struct message){
        .role = ROLE_USER, .text = json_string_value(text), .len = json_string_length(text)};
    if (m->agent->type->text->raw_prompt == NULL)
        return m->agent->type->text->tokenize(m->agent, raw.text, raw.len, rules.parses_control,
                                              ids, err);
    return m->agent->type->text->raw_prompt(m->agent, &rules, &raw, 1, ids, err);
}

static enum status tokenize(struct exchange *x, const json_t *body, struct error *err)
{
    struct tokens_body given;
    struct json_writer w;
    struct model *m;
    struct buf ids, out;
    enum status rc;

    if (tokens_begin(&given, &m, x, body, err) != STATUS_OK)
        return err->status;
    buf_init(&ids, TOKENS_MAX_BYTES);
    buf_init(&out, TOKENS_MAX_BYTES);
    rc = prompt_to_ids(&ids, x, m, &given, body, err);
    if (rc == STATUS_OK) {
        w = json_writer_begin(&out);
        write_ids(&w, m, &given, &ids);
        answer_json(x, &w, &out);
    }
    buf_deinit(&ids);
    buf_deinit(&out);
    return rc;
}

/* llama-server's: the text of a chat's prompt. */
static enum status apply_template(struct exchange *x, const json_t *body, struct error *err)
{
    struct tokens_body given;
    struct model *m;
    struct buf ids, text, out;
    enum status rc;

    if (tokens_begin(&given, &m, x, body, err) != STATUS_OK)
        return err->status;
    if (given.messages == NULL)
        return error_field(err, "messages", "is missing");
    buf_init(&ids, TOKENS_MAX_BYTES);
    buf_init(&text, TOKENS_MAX_BYTES);
    buf_init(&out, TOKENS_MAX_BYTES);
    rc = messages_to_ids(&ids, x, m, &given, body, err);
    if (rc == STATUS_OK)
        rc = m->agent->type->text->detokenize(m->agent, (const int32_t *)(const void *)ids.data,
                                              ids.len / sizeof(int32_t), &text, err);
    if (rc == STATUS_OK) {
        struct json_writer w = json_writer_begin(&out);

        json_begin_object(&w, NULL);
        json_write_string(&w, "prompt", text.data, text.len);
        json_end_object(&w);
        answer_json(x, &w, &out);
    }
    buf_deinit(&ids);
    buf_deinit(&text);
    buf_deinit(&out);
    return rc;
}

static enum status detokenize(struct exchange *x, const json_t *body, struct error *err)
{
    struct tokens_body given;
    struct model *m;
    struct buf text, out;
    int32_t *ids = NULL;
    enum status rc;

    if (tokens_begin(&given, &m, x, body, err) != STATUS_OK)
        return err->status;
    if (given.ids == NULL)
        return error_field(err, "tokens", "is missing");
    if (field_token_ids(&ids, given.ids, "tokens", "a list of ids", exchange_arena(x), err) !=
        STATUS_OK)
        return err->status;
    buf_init(&text, TOKENS_MAX_BYTES);
    buf_init(&out, TOKENS_MAX_BYTES);
    rc = m->agent->type->text->detokenize(m->agent, ids, json_array_size(given.ids), &text, err);
    if (rc == STATUS_OK) {
        struct json_writer w = json_writer_begin(&out);

        json_begin_object(&w, NULL);
        json_write_string(&w, "prompt", text.data, text.len);
        json_write_string(&w, "content", text.data, text.len);
        json_end_object(&w);
        answer_json(x, &w, &out);
    }
    buf_deinit(&text);
    buf_deinit(&out);
    return rc;
}

/* Writes a token's text; null where id is none. */
static void write_token_field(struct json_writer *w, const struct model *m, const char *name,
                              int32_t id)
{
    struct error ignored;
    struct buf text;

    buf_init(&text, TOKEN_MAX_BYTES);
    if (id >= 0)
        json_writer_fail(w, m->agent->type->text->detokenize(m->agent, &id, 1, &text, &ignored));
    if (id >= 0)
        json_write_string(w, name, text.data, text.len);
    else
        json_write_null(w, name);
    buf_deinit(&text);
}

/* Of the default model: what programs that evaluate models look for before they send ids. */
static void tokenizer_info_serve(struct exchange *x)
{
    const struct agent_info *info;
    struct error err = {0};
    struct json_writer w;
    struct model *m;
    struct buf out;

    if (resolution_find_model(&m, x, "", &err) == STATUS_OK && m->agent->type->text == NULL)
        (void)error_field(&err, "model", "'%s' has no vocabulary", m->name);
    if (err.status != STATUS_OK) {
        exchange_fail(x, &err);
        return;
    }
    info = &m->info;
    buf_init(&out, TOKENS_MAX_BYTES);
    w = json_writer_begin(&out);
    json_begin_object(&w, NULL);
    json_write_text(&w, "tokenizer_class", "PreTrainedTokenizerFast");
    write_token_field(&w, m, "bos_token", info->text.bos);
    write_token_field(&w, m, "eos_token", info->text.eos);
    write_token_field(&w, m, "pad_token", info->text.eos); /* nothing is padded */
    json_write_bool(&w, "add_bos_token", info->text.adds_bos);
    json_write_unsigned(&w, "model_max_length", info->text.context);
    if (info->text.chat_template != NULL)
        json_write_string(&w, "chat_template", info->text.chat_template,
                          info->text.chat_template_len);
    else
        json_write_null(&w, "chat_template");
    json_end_object(&w);
    answer_json(x, &w, &out);
    buf_deinit(&out);
}

static void tokenize_serve(struct exchange *x)
{
    resolution_serve(x, tokenize);
}

static void detokenize_serve(struct exchange *x)
{
    resolution_serve(x, detokenize);
}

static void apply_template_serve(struct exchange *x)
{
    resolution_serve(x, apply_template);
}

static const struct route rows[] = {
    {"/apply-template", .methods = METHOD_POST, .serve = apply_template_serve, .api = &openai_api},
    {"/tokenize", .methods = METHOD_POST, .serve = tokenize_serve, .api = &openai_api},
    {"/detokenize", .methods = METHOD_POST, .serve = detokenize_serve, .api = &openai_api},
    {"/tokenizer_info", .methods = METHOD_GET | METHOD_HEAD, .serve = tokenizer_info_serve,
     .api = &openai_api},
};
const struct route_table openai_tokens_routes = {rows, sizeof(rows) / sizeof(rows[0])};
