/* How a model writes thoughts and calls of tools into its replies, and what of that the
 * conversation remembers. */
#include <string.h>

#include "agents/lm/lm.h"
#include "agents/reply/reply_places.h"
#include "agents/reply/whole_reply.h"

/* --- the format --- */

static void add_marks(struct lm *m, const struct buf *ids)
{
    for (size_t i = 0; i < ids->len / sizeof(int32_t); i++) {
        bool is_known = false;
        int32_t id;

        memcpy(&id, ids->data + i * sizeof(id), sizeof(id));
        for (size_t k = 0; k < m->n_marks; k++)
            is_known = is_known || m->marks[k] == id;
        if (!is_known && vocab_is_control(m->vocab, id) && m->n_marks < LM_MAX_MARKS)
            m->marks[m->n_marks++] = id;
    }
}

/* The control tokens in the format's texts. */
static enum status find_marks(struct lm *m, bool of_calls, struct error *err)
{
    const char *marks[REPLY_FORMAT_MAX_MARKS];
    const size_t n = reply_format_marks(&m->format, of_calls, marks);
    enum status rc = STATUS_OK;
    struct buf ids;

    buf_init(&ids, SIZE_MAX);
    for (size_t i = 0; rc == STATUS_OK && i < n; i++) {
        const struct text_span span = {strlen(marks[i]), true};

        rc = vocab_encode_spans(m->vocab, marks[i], strlen(marks[i]), &span, 1, false, &ids, err);
    }
    if (rc == STATUS_OK)
        add_marks(m, &ids);
    buf_deinit(&ids);
    return rc;
}

static bool ends_with(const struct buf *text, const char *what)
{
    size_t len = text->len;

    while (len > 0 && (text->data[len - 1] == '\n' || text->data[len - 1] == ' '))
        len--;
    return len >= strlen(what) && memcmp(text->data + len - strlen(what), what, strlen(what)) == 0;
}

/* Whether a prompt ends in the open of a thought. A template that refuses the attempt shows it
 * with the first request. */
static enum status find_begin(struct lm *m, enum thinking thinking, struct error *err)
{
    static const char off[] = "{\"enable_thinking\": false, \"thinking\": false, "
                              "\"reasoning_effort\": \"none\"}";
    static const char *const asked[N_THINKING] = {
        [THINKING_DEFAULT] = "",
        [THINKING_ON] = "{\"enable_thinking\": true, \"thinking\": true}",
        [THINKING_OFF] = off,
    };
    const struct message hello = {.role = ROLE_USER, .text = "Hello", .len = 5};
    const struct chat_input in = {.messages = &hello,
                                  .n_messages = 1,
                                  .variables = {asked[thinking], strlen(asked[thinking])},
                                  .wants_reply = true};
    struct buf text;
    enum status rc;

    if (m->format.thoughts == NULL || (m->prompter == NULL && m->template == NULL))
        return STATUS_OK;
    buf_init(&text, SIZE_MAX);
    rc = lm_try_template(&text, m, &in, err);
    m->format.begins_in_thought[thinking] = ends_with(&text, m->format.thoughts->open);
    buf_deinit(&text);
    return rc;
}

/* Whether the template shows a message's name. One that refuses the attempt does not. */
static enum status find_names(struct lm *m, struct error *err)
{
    static const char more[] = "{\"name\": \"Zqxj\"}";
    const struct message hello = {
        .role = ROLE_USER, .text = "Hello", .len = 5, .more = more, .more_len = sizeof(more) - 1};
    const struct chat_input in = {.messages = &hello, .n_messages = 1, .wants_reply = true};
    struct buf text;
    enum status rc;

    if (m->prompter == NULL)
        return STATUS_OK;
    buf_init(&text, SIZE_MAX);
    rc = lm_try_template(&text, m, &in, err);
    m->format.takes_names = text.len > 0 && memmem(text.data, text.len, "Zqxj", 4) != NULL;
    buf_deinit(&text);
    return rc;
}

/* The letters of the format's control tokens count only where those tokens stand. */
static void note_controls(struct lm *m)
{
    struct reply_format *f = &m->format;

    for (size_t i = 0; i < m->n_marks && f->n_controls < REPLY_FORMAT_MAX_CONTROLS; i++) {
        struct reply_control *control = &f->controls[f->n_controls];
        const char *bytes;
        struct error ignored; /* it is a token */
        size_t len;

        if (vocab_bytes(m->vocab, m->marks[i], true, &bytes, &len, &ignored) != STATUS_OK ||
            len == 0 || len >= sizeof(control->text))
            continue;
        memcpy(control->text, bytes, len);
        control->text[len] = '\0';
        control->id = m->marks[i];
        f->n_controls++;
    }
}

enum status lm_format_open(struct lm *m, const char *text, size_t len, struct error *err)
{
    const bool takes_tools = m->prompter != NULL && chat_prompter_uses(m->prompter, "tools");
    enum status rc;

    reply_format_find(&m->format, text, len, takes_tools);
    rc = find_marks(m, false, err);
    m->n_thought_marks = m->n_marks;
    if (rc == STATUS_OK)
        rc = find_marks(m, true, err);
    note_controls(m);
    m->format.marks_calls = m->format.calls->shape == CALL_OBJECT &&
                            m->format.calls->close[0] != '\0' && m->n_marks == m->n_thought_marks;
    for (int i = 0; rc == STATUS_OK && i < N_THINKING; i++)
        rc = find_begin(m, (enum thinking)i, err);
    if (rc == STATUS_OK)
        rc = find_names(m, err);
    if (rc == STATUS_OK)
        rc = lm_messages_open(m, err);
    return rc == STATUS_OK ? lm_reasoning_open(m, err) : rc;
}

/* --- what is remembered --- */

/* The reply as text; its bytes may be no UTF-8. places: struct token_place, one for each token. */
static enum status reply_bytes(const struct lm_clone *c, const struct agent_turn *turn,
                               struct buf *out, struct buf *places, struct error *err)
{
    const struct lm *m = container_of(c->base.agent, const struct lm, base);
    const struct lm_turn *t = turn->row.turn;
    enum status rc = STATUS_OK;
    const char *bytes;
    size_t len;

    for (uint32_t i = t->n_prompt; i < t->n_ids && rc == STATUS_OK; i++) {
        if (i + 1 == t->n_ids && vocab_is_stop_token(m->vocab, c->ids[i]))
            break;
        rc = vocab_bytes(m->vocab, c->ids[i], lm_is_mark(m, &turn->seen, c->ids[i]), &bytes, &len,
                         err);
        if (rc == STATUS_OK &&
            (buf_append(out, bytes, len) != STATUS_OK ||
             buf_append(places, &(struct token_place){c->ids[i], (uint32_t)out->len},
                        sizeof(struct token_place)) != STATUS_OK))
            rc = error_no_memory(err, len, "a reply");
    }
    return rc;
}

static struct token_place place_in(const void *places, size_t i)
{
    return ((const struct token_place *)places)[i];
}

static bool buf_has_token(const void *places, int32_t id, size_t at, size_t len)
{
    const struct buf *b = places;

    return reply_tokens_have(
        &(struct reply_tokens){place_in, b->data, b->len / sizeof(struct token_place)}, id, at,
        len);
}

/* Templates drop and show thoughts, and calls, by themselves. */
enum status lm_remember(struct lm_clone *c, const struct agent_turn *turn, struct error *err)
{
    const struct lm *m = container_of(c->base.agent, const struct lm, base);
    const struct tool_use *use = &turn->seen.tool_use;
    const struct constraint *constraint = turn->seen.sampling.constraint;
    struct buf bytes, more, places;
    const struct reply_parser_config config = {.format = &m->format,
                                               .places = {buf_has_token, &places},
                                               .tools = use->tools,
                                               .is_forced = use->is_forced,
                                               .is_single = use->is_single,
                                               .is_json = constraint != NULL &&
                                                          constraint->form == CONSTRAINT_SCHEMA,
                                               .thinking = turn->seen.variables.thinking};
    struct whole_reply reply = {0};
    enum status rc;

    buf_init(&bytes, SIZE_MAX);
    buf_init(&more, SIZE_MAX);
    buf_init(&places, SIZE_MAX);
    rc = reply_bytes(c, turn, &bytes, &places, err);
    if (rc == STATUS_OK)
        rc = whole_reply_read(&reply, &config, bytes.data, bytes.len, err);
    if (rc == STATUS_OK)
        rc = whole_reply_extras(&reply, use->seed, true, &more, err);
    if (rc == STATUS_OK) {
        const struct message said = {ROLE_ASSISTANT, reply.text.data, reply.text.len, more.data,
                                     more.len};

        rc = lm_history_push(&c->history, turn->seen.messages, turn->seen.n_messages, &said, err);
    }
    whole_reply_deinit(&reply);
    buf_deinit(&bytes);
    buf_deinit(&more);
    buf_deinit(&places);
    return rc;
}
