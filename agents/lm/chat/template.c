/* Recognises a template by its shape, and finds the control tokens that the shape needs in the
 * vocabulary. Then puts messages into token ids, so that no text of a message can become a control
 * token. */
#include "agents/lm/chat/template.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "agents/lm/chat/shape.h"
#include "base/alloc.h"
#include "base/utf8.h"

enum { SHOWN_MAX = 60, TEMPLATE_MAX = 1 << 20 };

/* A message is: start, role, middle (if there is one), gap, text, end, tail. start, middle and end
 * are control tokens. */
struct template_family {
    const char *name, *start, *middle, *gap, *end, *tail;
    bool trims; /* trims white space around a message's text */
};

static const struct template_family chatml = {"chatml",     "<|im_start|>", NULL, "\n",
                                              "<|im_end|>", "\n",           false};
static const struct template_family llama3 = {
    "llama3", "<|start_header_id|>", "<|end_header_id|>", "\n\n", "<|eot_id|>", "", true};

/* What a shape's captured text is. */
enum captured { CAPTURED_NOTHING, CAPTURED_SYSTEM, CAPTURED_DATE };

struct shape {
    const struct template_family *family;
    enum captured captured;
    bool has_bos; /* has a bos of its own, besides the {{ bos_token }} that any template may begin
                     with */
    const char *text;
};

#define CHATML_DEFAULT                                          \
    "{% if loop.first and messages[0].role != 'system' %}"      \
    "{{ '<|im_start|>system\n" SHAPE_CAPTURE "<|im_end|>\n' }}" \
    "{% endif %}"
#define CHATML_MESSAGE \
    "{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}"
#define CHATML_END "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
#define CHATML_UNENDED                                                    \
    "{{ '<|im_start|>' + message.role + '\n' + message.content }}"        \
    "{% if (loop.last and add_generation_prompt) or not loop.last %}"     \
    "{{ '<|im_end|>\n' }}{% endif %}{% endfor %}"                         \
    "{% if add_generation_prompt and messages[-1].role != 'assistant' %}" \
    "{{ '<|im_start|>assistant\n' }}{% endif %}"
#define EACH "{% for message in messages %}"
#define END_EACH "{% endfor %}"
#define NO_PROMPT_BY_DEFAULT                                                                  \
    "{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% " \
    "endif %}"

#define LLAMA3_MESSAGE                                               \
    "'<|start_header_id|>' + message.role + '<|end_header_id|>\n\n'" \
    " + message.content | trim + '<|eot_id|>'"
#define LLAMA3_PROMPT "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"
#define LLAMA3_END "{% if add_generation_prompt %}" LLAMA3_PROMPT "{% endif %}"
#define LLAMA30                                                                   \
    "{% set loop_messages = messages %}"                                          \
    "{% for message in loop_messages %}"                                          \
    "{% set content = " LLAMA3_MESSAGE " %}"                                      \
    "{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}" \
    "{{ content }}{% endfor %}"

/* Llama 3.1 and 3.2: always a system message, which begins with dates. For today's date the
 * template's fallback is used, so that a prompt does not change overnight. */
#define LLAMA31(date, environment)                                                                \
    "{% if custom_tools is defined %}{% set tools = custom_tools %}{% endif %}"                   \
    "{% if not tools_in_user_message is defined %}{% set tools_in_user_message = true %}"         \
    "{% endif %}{% if not date_string is defined %}" date "{% endif %}"                           \
    "{% if not tools is defined %}{% set tools = none %}{% endif %}"                              \
    "{% if messages[0].role == 'system' %}{% set system_message = messages[0].content|trim %}"    \
    "{% set messages = messages[1:] %}{% else %}{% set system_message = '' %}{% endif %}"         \
    "{{ '<|start_header_id|>system<|end_header_id|>\n\n' }}" environment                          \
    "{{ 'Cutting Knowledge Date: December 2023\n' }}{{ 'Today Date: ' + date_string + '\n\n' }}"  \
    "{% if tools is not none and not tools_in_user_message %}" SHAPE_ANY "{% endif %}"            \
    "{{ system_message }}{{ '<|eot_id|>' }}"                                                      \
    "{% if tools_in_user_message and not tools is none %}" SHAPE_ANY                              \
    "{{ first_user_message + '<|eot_id|>' }}{% endif %}" EACH                                     \
    "{% if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) " \
    "%}"                                                                                          \
    "{{ " LLAMA3_MESSAGE " }}{% elif 'tool_calls' in message %}" SHAPE_ANY END_EACH LLAMA3_END
#define SET_DATE "{% set date_string = '" SHAPE_CAPTURE "' %}"

static const struct shape shapes[] = {
    /* SmolLM, Qwen 2 */
    {&chatml, CAPTURED_SYSTEM, false, EACH CHATML_DEFAULT CHATML_MESSAGE END_EACH CHATML_END},
    /* Qwen 1.5 */
    {&chatml, CAPTURED_SYSTEM, false, EACH CHATML_DEFAULT CHATML_UNENDED},
    /* plain ChatML, as in many fine-tunes */
    {&chatml, CAPTURED_NOTHING, false, EACH CHATML_MESSAGE END_EACH CHATML_END},
    {&chatml, CAPTURED_NOTHING, false,
     NO_PROMPT_BY_DEFAULT EACH CHATML_MESSAGE END_EACH CHATML_END},
    {&chatml, CAPTURED_NOTHING, false, EACH CHATML_UNENDED},
    /* Qwen 2.5, without tools */
    {&chatml, CAPTURED_SYSTEM, false,
     "{% if tools %}" SHAPE_ANY "{% else %}{% if messages[0].role == 'system' %}"
     "{{ '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}{% else %}"
     "{{ '<|im_start|>system\n" SHAPE_CAPTURE "<|im_end|>\n' }}{% endif %}{% endif %}" EACH
     "{% if (message.role == 'user') or (message.role == 'system' and not loop.first) or"
     " (message.role == 'assistant' and not message.tool_calls) %}" CHATML_MESSAGE
     "{% elif message.role == 'assistant' %}" SHAPE_ANY END_EACH CHATML_END},
    {&llama3, CAPTURED_NOTHING, true, LLAMA30 LLAMA3_END},
    {&llama3, CAPTURED_NOTHING, true, LLAMA30 LLAMA3_PROMPT},
    /* 3.1 */
    {&llama3, CAPTURED_DATE, false,
     LLAMA31(SET_DATE, "{% if builtin_tools is defined or tools is not none %}"
                       "{{ 'Environment: ipython\n' }}{% endif %}"
                       "{% if builtin_tools is defined %}" SHAPE_ANY "{% endif %}")},
    /* 3.2 */
    {&llama3, CAPTURED_DATE, false,
     LLAMA31("{% if strftime_now is defined %}{% set date_string = strftime_now('%d %b %Y') %}"
             "{% else %}" SET_DATE "{% endif %}",
             "{% if tools is not none %}{{ 'Environment: ipython\n' }}{% endif %}")},
};

struct chat_template {
    const struct vocab *vocab;
    const struct template_family *family;
    bool has_bos;
    char *system;   /* the default system prompt, "" for none */
    char *preamble; /* the beginning of every system message, also of an empty one; or NULL */
    char *date;     /* in it; or NULL */
    int32_t bos, start, middle, end;
};

/* The output that parts of a conversation are appended to. */
struct template_prompt {
    const struct chat_template *t;
    struct buf *ids, *text;
    size_t ids_before, text_before;
    struct error *err;
};

static enum status take_captured(struct chat_template *t, enum captured captured, const char *text,
                                 size_t len, struct error *err)
{
    static const char dates[] = "Cutting Knowledge Date: December 2023\nToday Date: ";
    struct buf preamble;

    t->system = try_strndup(text, captured == CAPTURED_SYSTEM ? len : 0);
    if (t->system == NULL)
        return error_no_memory(err, len, "a system prompt");
    if (captured != CAPTURED_DATE)
        return STATUS_OK;
    buf_init(&preamble, SIZE_MAX);
    if (buf_append_text(&preamble, dates) != STATUS_OK ||
        buf_append(&preamble, text, len) != STATUS_OK ||
        buf_append_text(&preamble, "\n\n") != STATUS_OK) {
        buf_deinit(&preamble);
        return error_no_memory(err, len, "a system prompt");
    }
    t->preamble = preamble.data;
    t->date = try_strndup(text, len);
    return t->date != NULL ? STATUS_OK : error_no_memory(err, len, "a system prompt");
}

/* UNKNOWN if the canonical template does not have this shape. */
static enum status try_shape(struct chat_template *t, const struct shape *s, const char *text,
                             size_t len, struct error *err)
{
    const char *captured = "";
    size_t captured_len = 0;
    struct buf shape;
    enum status rc = STATUS_UNKNOWN;

    buf_init(&shape, SIZE_MAX);
    if (shape_canonical(&shape, s->text, strlen(s->text), true) != STATUS_OK)
        rc = error_no_memory(err, strlen(s->text), "a chat template");
    else if (shape_matches(text, len, shape.data, shape.len, &captured, &captured_len))
        rc = take_captured(t, s->captured, captured, captured_len, err);
    buf_deinit(&shape);
    if (rc == STATUS_OK) {
        t->family = s->family;
        t->has_bos = s->has_bos;
    }
    return rc;
}

/* UNKNOWN if the template has no known shape. */
static enum status recognise(struct chat_template *t, const char *text, size_t len,
                             struct error *err)
{
    static const char bos[] = "{{bos_token}}";
    struct buf canonical;
    size_t begin = 0;
    enum status rc;

    if (len > TEMPLATE_MAX)
        return STATUS_UNKNOWN;
    buf_init(&canonical, TEMPLATE_MAX);
    rc = shape_canonical(&canonical, text, len, false);
    if (rc == STATUS_EXHAUSTED)
        (void)error_no_memory(err, len, "a chat template");
    if (rc != STATUS_OK || canonical.len == 0) {
        rc = rc == STATUS_EXHAUSTED ? rc : STATUS_UNKNOWN;
        goto out;
    }
    if (canonical.len >= strlen(bos) && memcmp(canonical.data, bos, strlen(bos)) == 0)
        begin = strlen(bos);
    rc = STATUS_UNKNOWN;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]) && rc == STATUS_UNKNOWN; i++)
        if (begin == 0 || !shapes[i].has_bos) /* else bos would appear twice */
            rc = try_shape(t, &shapes[i], canonical.data + begin, canonical.len - begin, err);
    t->has_bos = t->has_bos || begin > 0;
out:
    buf_deinit(&canonical);
    return rc;
}

static enum status find_control(const struct chat_template *t, const char *text, int32_t *ret_id,
                                struct error *err)
{
    *ret_id = text == NULL ? -1 : vocab_control(t->vocab, text);
    if (text != NULL && *ret_id < 0)
        return error_set(
            err, STATUS_DATA_LOSS,
            "the chat template uses %s, which is not a control token of the vocabulary", text);
    return STATUS_OK;
}

static enum status find_controls(struct chat_template *t, struct error *err)
{
    const struct template_family *f = t->family;

    t->bos = t->has_bos ? vocab_bos(t->vocab) : -1;
    if (t->has_bos && t->bos < 0)
        return error_set(err, STATUS_DATA_LOSS,
                         "the chat template uses bos_token, but the vocabulary has none");
    if (find_control(t, f->start, &t->start, err) != STATUS_OK ||
        find_control(t, f->middle, &t->middle, err) != STATUS_OK)
        return err->status;
    return find_control(t, f->end, &t->end, err);
}

enum status chat_template_open_text(struct chat_template **out, const char *text, size_t len,
                                    const struct vocab *v, struct error *err)
{
    struct chat_template *t;
    enum status rc;

    if (text == NULL)
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "the file has no chat template (tokenizer.chat_template), so its prompt "
                         "format is unknown; recognised: chatml, llama3");
    t = try_alloc(1, sizeof(*t));
    if (t == NULL)
        return error_no_memory(err, sizeof(*t), "a chat template");
    t->vocab = v;
    rc = recognise(t, text, len, err);
    if (rc == STATUS_UNKNOWN)
        rc = error_set(err, STATUS_UNIMPLEMENTED,
                       "the chat template '%.*s%s' cannot be rendered; recognised: "
                       "chatml, llama3",
                       (int)(len < SHOWN_MAX ? len : SHOWN_MAX), text, len > SHOWN_MAX ? "…" : "");
    else if (rc == STATUS_OK)
        rc = find_controls(t, err);
    if (rc != STATUS_OK)
        goto out;
    *out = t;
    t = NULL; /* owned by the caller */
out:
    chat_template_close(t);
    return rc;
}

enum status chat_template_open(struct chat_template **out, const struct gguf *g,
                               const struct vocab *v, struct error *err)
{
    const char *text = NULL;
    size_t len = 0;
    enum status rc = gguf_get_text(g, "tokenizer.chat_template", &text, &len, err);

    if (rc != STATUS_OK && rc != STATUS_NOT_FOUND)
        return rc;
    rc = chat_template_open_text(out, text, len, v, err);
    return rc == STATUS_OK ? rc : error_prefix(err, "%s", gguf_path(g));
}

void chat_template_close(struct chat_template *t)
{
    if (t == NULL)
        return;
    free(t->system);
    free(t->preamble);
    free(t->date);
    free(t);
}

const char *chat_template_name(const struct chat_template *t)
{
    return t->family->name;
}

const char *chat_template_default_system(const struct chat_template *t)
{
    return t->system;
}

const char *chat_template_date(const struct chat_template *t)
{
    return t->date;
}

static struct template_prompt chat_template_prompt_of(const struct chat_template *t,
                                                      struct buf *ids, struct buf *text,
                                                      struct error *err)
{
    return (struct template_prompt){t, ids, text, ids->len, text == NULL ? 0 : text->len, err};
}

static void template_cut(struct buf *b, size_t len)
{
    b->len = len;
    if (b->data != NULL)
        b->data[len] = '\0';
}

/* Removes the output of a part that failed. */
static enum status template_prompt_finish(const struct template_prompt *p, enum status rc)
{
    if (rc != STATUS_OK) {
        template_cut(p->ids, p->ids_before);
        if (p->text != NULL)
            template_cut(p->text, p->text_before);
    }
    return rc;
}

static enum status put_shown(const struct template_prompt *p, const char *text, size_t len)
{
    if (p->text == NULL || buf_append(p->text, text, len) == STATUS_OK)
        return STATUS_OK;
    if (!p->text->is_full)
        return error_no_memory(p->err, len, "a prompt");
    return error_because(p->err, STATUS_RANGE, REASON_CONTEXT_EXCEEDED, NULL,
                         "the prompt is longer than %zu bytes", p->text->limit_bytes);
}

static enum status put_control(const struct template_prompt *p, int32_t id)
{
    const char *bytes;
    size_t len;

    if (vocab_bytes(p->t->vocab, id, true, &bytes, &len, p->err) != STATUS_OK)
        return p->err->status;
    if (buf_append(p->ids, &id, sizeof(id)) == STATUS_OK)
        return put_shown(p, bytes, len);
    if (!p->ids->is_full)
        return error_no_memory(p->err, sizeof(id), "a prompt");
    return error_because(p->err, STATUS_RANGE, REASON_CONTEXT_EXCEEDED, NULL,
                         "the prompt has more than %zu tokens", p->ids->limit_bytes / sizeof(id));
}

/* Text between two control tokens is encoded as one: a word may begin in one part of it and end in
 * the next. */
static enum status template_prompt_put_text(const struct template_prompt *p, const char *text,
                                            size_t len)
{
    if (vocab_encode(p->t->vocab, text, len, p->ids, p->err) != STATUS_OK)
        return p->err->status;
    return put_shown(p, text, len);
}

/* The characters that Python's str.strip removes. */
static bool template_is_space(uint32_t c)
{
    return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
           c == 0x202F || c == 0x205F || c == 0x3000;
}

static void template_trim(const char **text, size_t *len)
{
    const char *const p = *text;
    size_t from = 0, to = 0, at = 0;
    bool has_begun = false;

    while (at < *len) {
        uint32_t c;
        size_t start = at;

        at += utf8_next(p + at, *len - at, &c);
        if (template_is_space(c))
            continue;
        if (!has_begun)
            from = start;
        has_begun = true;
        to = at;
    }
    *text = p + from;
    *len = to - from;
}

/* Appends start, role, middle; what follows up to the text goes into joined, not yet encoded. */
static enum status template_prompt_put_head(const struct template_prompt *p, const char *role,
                                            struct buf *joined)
{
    const struct template_family *f = p->t->family;
    enum status rc = put_control(p, p->t->start);

    if (rc == STATUS_OK && f->middle != NULL) {
        rc = template_prompt_put_text(p, role, strlen(role));
        if (rc == STATUS_OK)
            rc = put_control(p, p->t->middle);
        role = "";
    }
    if (rc == STATUS_OK && (buf_append_text(joined, role) != STATUS_OK ||
                            buf_append_text(joined, f->gap) != STATUS_OK))
        rc = error_no_memory(p->err, strlen(role) + strlen(f->gap), "a message");
    return rc;
}

static enum status put_message(const struct template_prompt *p, const char *role,
                               const char *preamble, const char *text, size_t len)
{
    const struct template_family *f = p->t->family;
    struct buf joined;
    enum status rc;

    buf_init(&joined, SIZE_MAX);
    if (f->trims)
        template_trim(&text, &len);
    rc = template_prompt_put_head(p, role, &joined);
    if (rc == STATUS_OK && (buf_append_text(&joined, preamble) != STATUS_OK ||
                            buf_append(&joined, text, len) != STATUS_OK))
        rc = error_no_memory(p->err, len, "a message");
    if (rc == STATUS_OK)
        rc = template_prompt_put_text(p, joined.data, joined.len);
    if (rc == STATUS_OK)
        rc = put_control(p, p->t->end);
    if (rc == STATUS_OK)
        rc = template_prompt_put_text(p, f->tail, strlen(f->tail));
    buf_deinit(&joined);
    return rc;
}

enum status chat_template_begin(const struct chat_template *t, const char *system, size_t len,
                                struct buf *ids, struct buf *text, struct error *err)
{
    const struct template_prompt p = chat_template_prompt_of(t, ids, text, err);
    const bool is_default = system == NULL || system == t->system;
    enum status rc = STATUS_OK;

    if (is_default) {
        system = t->system;
        len = strlen(system);
    }
    if (t->bos >= 0)
        rc = put_control(&p, t->bos);
    if (rc == STATUS_OK && (!is_default || len > 0 || t->preamble != NULL))
        rc = put_message(&p, role_name(ROLE_SYSTEM), t->preamble == NULL ? "" : t->preamble, system,
                         len);
    return template_prompt_finish(&p, rc);
}

enum status chat_template_message(const struct chat_template *t, const struct message *m,
                                  struct buf *ids, struct buf *text, struct error *err)
{
    const struct template_prompt p = chat_template_prompt_of(t, ids, text, err);

    return template_prompt_finish(&p, put_message(&p, role_name(m->role), "", m->text, m->len));
}

enum status chat_template_reply_start(const struct chat_template *t, struct buf *ids,
                                      struct buf *text, struct error *err)
{
    const struct template_prompt p = chat_template_prompt_of(t, ids, text, err);
    struct buf joined;
    enum status rc;

    buf_init(&joined, SIZE_MAX);
    rc = template_prompt_put_head(&p, role_name(ROLE_ASSISTANT), &joined);
    if (rc == STATUS_OK)
        rc = template_prompt_put_text(&p, joined.data, joined.len);
    buf_deinit(&joined);
    return template_prompt_finish(&p, rc);
}

enum status chat_template_reply_end(const struct chat_template *t, int32_t last_id, struct buf *ids,
                                    struct buf *text, struct error *err)
{
    const struct template_prompt p = chat_template_prompt_of(t, ids, text, err);
    enum status rc = STATUS_OK;

    if (last_id != t->end)
        rc = put_control(&p, t->end);
    if (rc == STATUS_OK)
        rc = template_prompt_put_text(&p, t->family->tail, strlen(t->family->tail));
    return template_prompt_finish(&p, rc);
}
