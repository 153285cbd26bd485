/* A render gives text and the origin of each byte. Ids of before are kept as far as they spell the
 * same text; what follows is encoded from the last place where nothing merges across: beside a
 * control token, or between the template's text and a caller's. */
#include "agents/lm/chat/prompt.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "agents/lm/jinja/jinja.h"
#include "base/alloc.h"
#include "base/name.h"
#include "base/utf8.h"

enum {
    PROMPT_MAX_STEPS = 4 << 20,
    PROMPT_MAX_BYTES = 64 << 20,  /* of one rendering, in addition to eight times the messages */
    PROMPT_MAX_SPANS = 256 << 10, /* changes of origin */
};

struct chat_prompter {
    const struct vocab *vocab;
    struct jinja *template; /* NULL: the model has none; absent has the reason */
    struct error absent;
    bool is_broken;      /* it has one that cannot be compiled */
    struct buf bos, eos; /* their text */
};

static enum status control_text(const struct vocab *v, int32_t id, struct buf *out,
                                struct error *err)
{
    const char *bytes = "";
    size_t len = 0;
    enum status rc = id < 0 ? STATUS_OK : vocab_bytes(v, id, true, &bytes, &len, err);

    if (rc == STATUS_OK && buf_append(out, bytes, len) != STATUS_OK)
        rc = error_no_memory(err, len, "a chat template");
    return rc;
}

enum status chat_prompter_open(struct chat_prompter **out, const char *text, size_t len,
                               const struct vocab *v, struct error *err)
{
    struct chat_prompter *p = try_alloc(1, sizeof(*p));
    enum status rc;

    if (p == NULL)
        return error_no_memory(err, sizeof(*p), "a chat template");
    p->vocab = v;
    buf_init(&p->bos, SIZE_MAX);
    buf_init(&p->eos, SIZE_MAX);
    rc = control_text(v, vocab_bos(v), &p->bos, err);
    if (rc == STATUS_OK)
        rc = control_text(v, vocab_eos(v), &p->eos, err);
    if (rc != STATUS_OK) {
        chat_prompter_close(p);
        return rc;
    }
    if (text == NULL) {
        (void)error_set(&p->absent, STATUS_PRECONDITION,
                        "the model has no chat template, it takes raw prompts only");
    } else if (jinja_open(&p->template, text, len, &p->absent) != STATUS_OK) {
        (void)error_prefix(&p->absent, "the model's chat template");
        p->absent.status = STATUS_PRECONDITION;
        p->is_broken = true;
    }
    *out = p;
    return STATUS_OK;
}

void chat_prompter_close(struct chat_prompter *p)
{
    if (p == NULL)
        return;
    jinja_close(p->template);
    buf_deinit(&p->bos);
    buf_deinit(&p->eos);
    free(p);
}

enum status chat_prompter_check(const struct chat_prompter *p, struct error *err)
{
    if (!p->is_broken)
        return STATUS_OK;
    *err = p->absent;
    return err->status = STATUS_INVALID;
}

bool chat_prompter_uses(const struct chat_prompter *p, const char *name)
{
    return p->template != NULL && jinja_uses(p->template, name);
}

bool chat_prompter_uses_any(const struct chat_prompter *p, struct text variables)
{
    json_t *all =
        variables.len == 0 ? NULL : json_loadb(variables.text, variables.len, JSON_ALLOW_NUL, NULL);
    bool is_used = false;

    for (void *at = json_object_iter(all); at != NULL; at = json_object_iter_next(all, at))
        is_used = is_used || chat_prompter_uses(p, json_object_iter_key(at));
    json_decref(all);
    return is_used;
}

static bool is_named(struct jinja_value key, const char *name)
{
    return key.as.text->len == strlen(name) && memcmp(key.as.text->data, name, strlen(name)) == 0;
}

/* Adds the members of a message's extras, which are a JSON object. gpt-oss's template reads the
 * reasoning before a call as thinking, and refuses both it and a text. */
static bool add_extras(struct jinja_run *r, const struct message *m, struct jinja_map *to)
{
    const struct jinja_value *thoughts = NULL;
    bool has_thinking = m->len > 0;
    struct jinja_value more;

    if (m->more_len == 0)
        return true;
    if (!jinja_parse_json(r, m->more, m->more_len, &more))
        return false;
    for (size_t i = 0; more.kind == JINJA_MAP && i < more.as.map->n; i++) {
        const struct jinja_pair *pair = &more.as.map->pairs[i];

        thoughts = is_named(pair->key, "reasoning_content") ? &pair->value : thoughts;
        has_thinking = has_thinking || is_named(pair->key, "thinking");
        if (!jinja_map_set(r, to, pair->key, pair->value))
            return false;
    }
    return thoughts == NULL || has_thinking || jinja_map_put(r, to, "thinking", *thoughts);
}

static bool message_value(struct jinja_run *r, const struct message *m, struct jinja_value *out)
{
    const char *role = role_name(m->role);
    struct jinja_value name, content;

    return jinja_map_new(r, 2, out) &&
           jinja_string(r, role, strlen(role), JINJA_OF_TEMPLATE, &name) &&
           jinja_string(r, m->text, m->len, JINJA_OF_CALLER, &content) &&
           jinja_map_put(r, out->as.map, "role", name) &&
           jinja_map_put(r, out->as.map, "content", content) && add_extras(r, m, out->as.map);
}

static bool set_control(struct jinja_run *r, const char *name, const struct buf *text)
{
    struct jinja_value v;

    if (!jinja_string(r, text->len == 0 ? "" : text->data, text->len, JINJA_OF_TEMPLATE, &v))
        return false;
    jinja_set(r, name, v);
    return true;
}

/* A word can be no control token, and merges with the template's text as it does where templates
 * are rendered to plain text. */
static bool prompt_is_word(const struct jinja_text *t)
{
    return name_is_valid(t->data, t->len, SIZE_MAX, "_");
}

/* The members of in->variables, those that the template uses. */
static bool set_more(struct jinja_run *r, const struct chat_input *in)
{
    struct jinja_value all;

    if (in->variables.len == 0)
        return true;
    if (!jinja_parse_json(r, in->variables.text, in->variables.len, &all))
        return false;
    for (size_t i = 0; all.kind == JINJA_MAP && i < all.as.map->n; i++) {
        const struct jinja_text *key = all.as.map->pairs[i].key.as.text;
        struct jinja_value value = all.as.map->pairs[i].value;
        char name[TEMPLATE_VARIABLE_MAX_NAME + 1];

        if (key->len >= sizeof(name))
            continue; /* no template can have this name */
        memcpy(name, key->data, key->len);
        name[key->len] = '\0';
        if (value.kind == JINJA_TEXT && prompt_is_word(value.as.text) &&
            !jinja_string(r, value.as.text->data, value.as.text->len, JINJA_OF_TEMPLATE, &value))
            return false;
        jinja_set(r, name, value);
    }
    return true;
}

static bool set_variables(struct jinja_run *r, const struct chat_prompter *p,
                          const struct chat_input *in)
{
    struct jinja_value messages, one, tools = jinja_none();

    if (!jinja_list_new(r, in->n_messages, &messages))
        return false;
    for (size_t i = 0; i < in->n_messages; i++)
        if (!message_value(r, &in->messages[i], &one) || !jinja_list_push(r, messages.as.list, one))
            return false;
    jinja_set(r, "messages", messages);
    jinja_set(r, "add_generation_prompt", jinja_bool(in->wants_reply));
    if (in->tools.len > 0 && !jinja_parse_json(r, in->tools.text, in->tools.len, &tools))
        return false;
    jinja_set(r, "tools", tools);
    jinja_set(r, "documents", jinja_none());
    if (in->date != NULL) {
        if (!jinja_string(r, in->date, strlen(in->date), JINJA_OF_TEMPLATE, &one))
            return false;
        jinja_set(r, "date_string", one);
    }
    return set_more(r, in) && set_control(r, "bos_token", &p->bos) &&
           set_control(r, "eos_token", &p->eos);
}

static bool is_template(const struct jinja_text *t, size_t i)
{
    return (t->origins == NULL ? t->origin : t->origins[i]) == JINJA_OF_TEMPLATE;
}

static bool is_all_template(const struct jinja_text *t, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++)
        if (!is_template(t, i))
            return false;
    return true;
}

/* Whether nothing merges across the place at: origins change there. */
static bool is_border(const struct jinja_text *t, size_t at)
{
    return at > 0 && at < t->len && is_template(t, at - 1) != is_template(t, at);
}

/* How many of known spell the text's beginning, up to a place where encoding may begin; that place
 * in *ret_at. */
static size_t match_known(const struct vocab *v, const struct jinja_text *t, const int32_t *known,
                          size_t n_known, size_t *ret_at)
{
    size_t n_kept = 0, at = 0;

    *ret_at = 0;
    for (size_t i = 0; i < n_known; i++) {
        const bool is_control = vocab_is_control(v, known[i]);
        const char *bytes;
        size_t len;
        struct error ignored;

        if (vocab_bytes(v, known[i], true, &bytes, &len, &ignored) != STATUS_OK ||
            len > t->len - at || (len != 0 && memcmp(t->data + at, bytes, len) != 0) ||
            (is_control && !is_all_template(t, at, at + len)))
            break;
        at += len;
        if (is_control || is_border(t, at)) {
            n_kept = i + 1;
            *ret_at = at;
        }
    }
    return n_kept;
}

/* The spans of [from, len): runs of one origin. */
static enum status make_spans(const struct jinja_text *t, size_t from, struct buf *out,
                              struct error *err)
{
    for (size_t at = from; at < t->len;) {
        struct text_span span = {.is_trusted = is_template(t, at)};

        while (at < t->len && is_template(t, at) == span.is_trusted)
            at++;
        span.end = at - from;
        if (buf_append(out, &span, sizeof(span)) != STATUS_OK)
            return error_no_memory(err, sizeof(span), "a prompt");
    }
    return STATUS_OK;
}

/* A model may have written bytes that are no UTF-8, which the tokenizer does not take: each becomes
 * '?', which keeps the length. */
static void mend_text(char *text, size_t len)
{
    size_t at = 0, n;
    uint32_t ignored;

    while (at < len) {
        n = utf8_decode(text + at, len - at, &ignored);
        if (n == 0)
            text[at] = '?';
        at += n == 0 ? 1 : n;
    }
}

static enum status encode_rest(const struct chat_prompter *p, const struct jinja_text *t,
                               size_t from, struct buf *ids, struct error *err)
{
    struct buf spans, text;
    enum status rc;

    if (from == t->len)
        return STATUS_OK;
    buf_init(&spans, PROMPT_MAX_SPANS * sizeof(struct text_span));
    buf_init(&text, SIZE_MAX);
    rc = make_spans(t, from, &spans, err);
    if (rc == STATUS_OK && buf_append(&text, t->data + from, t->len - from) != STATUS_OK)
        rc = error_no_memory(err, t->len - from, "a prompt");
    if (rc == STATUS_OK) {
        mend_text(text.data, text.len);
        rc = vocab_encode_spans(p->vocab, text.data, text.len,
                                (const struct text_span *)(const void *)spans.data,
                                spans.len / sizeof(struct text_span), from == 0, ids, err);
    }
    buf_deinit(&spans);
    buf_deinit(&text);
    return rc;
}

/* The text as ids, with one bos at its start if the vocabulary wants it. */
static enum status encode(const struct chat_prompter *p, struct jinja_text t, const int32_t *known,
                          size_t n_known, size_t *ret_n_kept, struct buf *ids, struct error *err)
{
    const int32_t bos = vocab_bos(p->vocab);
    const size_t n_bos = p->bos.len;
    const bool has_bos = n_bos != 0 && t.len >= n_bos && memcmp(t.data, p->bos.data, n_bos) == 0 &&
                         is_all_template(&t, 0, n_bos);
    const bool adds_bos = bos >= 0 && vocab_adds_bos(p->vocab) && !has_bos;
    const bool knows_bos = adds_bos && n_known > 0 && known[0] == bos;
    size_t from;

    *ret_n_kept = adds_bos && !knows_bos
                      ? 0
                      : match_known(p->vocab, &t, known + knows_bos, n_known - knows_bos, &from);
    if (adds_bos && !knows_bos) {
        from = 0;
        if (buf_append(ids, &bos, sizeof(bos)) != STATUS_OK)
            return error_no_memory(err, sizeof(bos), "a prompt");
    }
    *ret_n_kept += knows_bos;
    return encode_rest(p, &t, from, ids, err);
}

static enum status render_all(const struct chat_prompter *p, const struct chat_input *in,
                              struct arena *arena, struct jinja_text *out, struct error *err)
{
    struct jinja_run run;
    struct tm now;

    (void)gmtime_r(&in->now, &now);
    if (!jinja_begin(&run, p->template, arena, &now, PROMPT_MAX_STEPS, err) ||
        !set_variables(&run, p, in))
        return err->status;
    return jinja_render(&run, out);
}

enum status chat_prompter_render(const struct chat_prompter *p, const struct chat_input *in,
                                 const int32_t *known, size_t n_known, size_t *ret_n_kept,
                                 struct buf *ids, struct error *err)
{
    const size_t ids_before = ids->len;
    struct arena arena;
    struct jinja_text text;
    size_t n_bytes = in->tools.len + in->variables.len;
    enum status rc;

    if (p->template == NULL) {
        *err = p->absent;
        return err->status;
    }
    for (size_t i = 0; i < in->n_messages; i++)
        n_bytes += in->messages[i].len + in->messages[i].more_len;
    arena_init(&arena, PROMPT_MAX_BYTES + 8 * n_bytes);
    rc = render_all(p, in, &arena, &text, err);
    if (rc == STATUS_OK)
        rc = encode(p, text, known, n_known, ret_n_kept, ids, err);
    arena_deinit(&arena);
    if (rc != STATUS_OK)
        ids->len = ids_before;
    return rc;
}

/* --- a query and a document --- */

/* A message whose text is its content, or the only part of it. */
static bool pair_message(struct jinja_run *r, const char *role, const char *text, bool has_parts,
                         struct jinja_value *out)
{
    struct jinja_value name, kind, content, part, parts;

    if (!jinja_map_new(r, 2, out) ||
        !jinja_string(r, role, strlen(role), JINJA_OF_TEMPLATE, &name) ||
        !jinja_string(r, text, strlen(text), JINJA_OF_CALLER, &content))
        return false;
    if (has_parts) {
        if (!jinja_string(r, "text", 4, JINJA_OF_TEMPLATE, &kind) || !jinja_map_new(r, 2, &part) ||
            !jinja_map_put(r, part.as.map, "type", kind) ||
            !jinja_map_put(r, part.as.map, "text", content) || !jinja_list_new(r, 1, &parts) ||
            !jinja_list_push(r, parts.as.list, part))
            return false;
        content = parts;
    }
    return jinja_map_put(r, out->as.map, "role", name) &&
           jinja_map_put(r, out->as.map, "content", content);
}

static bool set_pair(struct jinja_run *r, const struct chat_prompter *p, const char *query,
                     const char *document, bool has_opening, bool has_parts)
{
    struct jinja_value messages, first, second;

    if (!jinja_list_new(r, 2, &messages) || !pair_message(r, "query", query, has_parts, &first) ||
        !pair_message(r, "document", document, has_parts, &second) ||
        !jinja_list_push(r, messages.as.list, first) ||
        !jinja_list_push(r, messages.as.list, second))
        return false;
    jinja_set(r, "messages", messages);
    jinja_set(r, "add_generation_prompt", jinja_bool(has_opening));
    jinja_set(r, "tools", jinja_none());
    jinja_set(r, "documents", jinja_none());
    return set_control(r, "bos_token", &p->bos) && set_control(r, "eos_token", &p->eos);
}

static enum status render_pair_as(const struct chat_prompter *p, const char *query,
                                  const char *document, bool has_opening, bool has_parts,
                                  struct buf *out, struct error *err)
{
    const struct tm now = {0};
    struct jinja_run run;
    struct jinja_text text;
    struct arena arena;
    enum status rc;

    arena_init(&arena, PROMPT_MAX_BYTES);
    if (!jinja_begin(&run, p->template, &arena, &now, PROMPT_MAX_STEPS, err) ||
        !set_pair(&run, p, query, document, has_opening, has_parts))
        rc = err->status;
    else
        rc = jinja_render(&run, &text);
    if (rc == STATUS_OK &&
        (text.len == 0 || memmem(text.data, text.len, query, strlen(query)) == NULL ||
         memmem(text.data, text.len, document, strlen(document)) == NULL))
        rc = error_set(err, STATUS_INVALID,
                       "it names the roles 'query' and 'document', but does not show both texts");
    if (rc == STATUS_OK && buf_append(out, text.data, text.len) != STATUS_OK)
        rc = error_no_memory(err, text.len, "a chat template");
    arena_deinit(&arena);
    return rc;
}

enum status chat_prompter_render_pair(const struct chat_prompter *p, const char *query,
                                      const char *document, bool has_opening, struct buf *out,
                                      struct error *err)
{
    enum status rc;

    if (p->template == NULL) {
        *err = p->absent;
        return err->status;
    }
    rc = render_pair_as(p, query, document, has_opening, false, out, err);
    return rc == STATUS_INVALID ? render_pair_as(p, query, document, has_opening, true, out, err)
                                : rc;
}
