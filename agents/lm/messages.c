/* Messages as the model's template takes them. Some templates refuse or drop a system message that
 * is not the first, or two messages of one role in a row, which coding agents send. What a template
 * takes is tried once, when the model is opened. */
#include <string.h>

#include "agents/lm/lm.h"
#include "agents/message_extras.h"

/* --- what the template takes --- */

enum { MAX_TRIED = 6 };

enum status lm_try_template(struct buf *text, const struct lm *m, const struct chat_input *in,
                            struct error *err)
{
    struct buf ids;
    size_t n_kept;
    enum status rc;

    buf_init(&ids, SIZE_MAX);
    rc = m->prompter == NULL ? chat_template_reply_start(m->template, &ids, NULL, err)
                             : chat_prompter_render(m->prompter, in, NULL, 0, &n_kept, &ids, err);
    if (rc == STATUS_OK)
        rc = vocab_decode(m->vocab, (const int32_t *)(const void *)ids.data,
                          ids.len / sizeof(int32_t), text, err);
    buf_deinit(&ids);
    if (rc != STATUS_OK)
        text->len = 0;
    return rc == STATUS_EXHAUSTED ? rc : STATUS_OK;
}

/* Whether the template shows all of these messages, whose letters are their roles, but for replies,
 * which it may shorten. One that refuses them does not. */
static enum status try_messages(bool *ret_shown, const struct lm *m, const char *roles,
                                struct error *err)
{
    static const char words[MAX_TRIED][5] = {"Zqxa", "Zqxb", "Zqxc", "Zqxd", "Zqxe", "Zqxf"};
    struct message all[MAX_TRIED];
    const struct chat_input in = {
        .messages = all, .n_messages = strlen(roles), .wants_reply = true};
    struct buf text;
    enum status rc;

    for (size_t i = 0; i < in.n_messages; i++)
        all[i] = (struct message){.role = roles[i] == 's'   ? ROLE_SYSTEM
                                          : roles[i] == 'a' ? ROLE_ASSISTANT
                                                            : ROLE_USER,
                                  .text = words[i],
                                  .len = strlen(words[i])};
    buf_init(&text, SIZE_MAX);
    rc = lm_try_template(&text, m, &in, err);
    *ret_shown = text.len > 0;
    for (size_t i = 0; *ret_shown && i < in.n_messages; i++)
        *ret_shown = all[i].role == ROLE_ASSISTANT ||
                     memmem(text.data, text.len, words[i], all[i].len) != NULL;
    buf_deinit(&text);
    return rc;
}

enum status lm_messages_open(struct lm *m, struct error *err)
{
    bool any = false, system = true, late = true, users = true;
    enum status rc = STATUS_OK;

    if (m->prompter != NULL && m->template == NULL) /* those in parts take all */
        rc = try_messages(&any, m, "u", err);
    if (rc != STATUS_OK || !any) /* the first request shows why */
        return rc;
    rc = try_messages(&system, m, "su", err);
    if (rc == STATUS_OK)
        rc = try_messages(&late, m, "susasu", err);
    if (rc == STATUS_OK)
        rc = try_messages(&users, m, "uuau", err);
    m->joins_system = !system;
    m->joins_late_system = !late;
    m->joins_users = !users;
    m->format.takes_names = m->format.takes_names && users; /* a joined message has one name */
    return rc;
}

/* --- fitting --- */

/* For a template that knows no tools: a call is text, and its result is the user's. Who speaks
 * stays, for a template that reads it. */
static enum status fit_tools(struct message *m, bool takes_names, struct arena *arena,
                             struct error *err)
{
    const bool has_speaker = takes_names && m->role != ROLE_TOOL;
    struct message_extras x = {0};
    struct buf text, more;
    enum status rc;

    if (m->role == ROLE_TOOL)
        m->role = ROLE_USER;
    if (m->more_len == 0)
        return STATUS_OK;
    buf_init(&text, SIZE_MAX);
    buf_init(&more, SIZE_MAX);
    rc = buf_append(&text, m->text, m->len);
    if (rc == STATUS_OK)
        rc = message_extras_calls_text(&text, m);
    if (rc == STATUS_OK && has_speaker)
        rc = message_extras_read(&x, m, arena);
    if (rc == STATUS_OK)
        rc = message_extras_write(&more, &(struct message_extras){.name = x.name});
    m->text =
        rc == STATUS_OK ? arena_strndup(arena, text.len == 0 ? "" : text.data, text.len) : NULL;
    m->len = text.len;
    m->more =
        rc == STATUS_OK ? arena_strndup(arena, more.len == 0 ? "" : more.data, more.len) : NULL;
    m->more_len = more.len;
    buf_deinit(&text);
    buf_deinit(&more);
    return m->text != NULL && m->more != NULL ? STATUS_OK
                                              : error_no_memory(err, m->len, "a message");
}

/* The role of a message that begins one of the template's. */
static enum role fit_role(const struct lm *m, enum role role, bool is_first)
{
    const bool is_user = is_first ? m->joins_system : m->joins_late_system;

    return role == ROLE_SYSTEM && is_user ? ROLE_USER : role;
}

/* Whether a message goes into the one of this role before it. */
static bool is_joined(const struct lm *m, enum role before, enum role role)
{
    const bool follows = before == ROLE_USER || (before == ROLE_TOOL && m->joins_users);

    if (role == ROLE_SYSTEM)
        return m->joins_late_system && (follows || before == ROLE_SYSTEM);
    return role == ROLE_USER && m->joins_users && follows;
}

/* The texts of n messages, with an empty line between them, as the first one's. */
static enum status join_texts(struct message *out, const struct message *messages, size_t n,
                              struct arena *arena, struct error *err)
{
    size_t len = 0, at = 0;
    char *text;

    for (size_t i = 0; i < n; i++)
        len += messages[i].len + 2;
    text = arena_alloc(arena, len + 1, 1);
    if (text == NULL)
        return error_no_memory(err, len + 1, "a message");
    for (size_t i = 0; i < n; i++) {
        if (at > 0 && messages[i].len > 0) {
            memcpy(text + at, "\n\n", 2);
            at += 2;
        }
        memcpy(text + at, messages[i].text, messages[i].len);
        at += messages[i].len;
    }
    text[at] = '\0';
    out->text = text;
    out->len = at;
    return STATUS_OK;
}

static enum status fit_all(struct message *all, size_t *n, const struct lm *m, struct arena *arena,
                           struct error *err)
{
    size_t n_fit = 0, end;

    for (size_t i = 0; !m->format.takes_tools && i < *n; i++)
        if (fit_tools(&all[i], m->format.takes_names, arena, err) != STATUS_OK)
            return err->status;
    for (size_t i = 0; i < *n; i = end) {
        struct message first = all[i];

        first.role = fit_role(m, first.role, n_fit == 0);
        for (end = i + 1; end < *n && is_joined(m, first.role, all[end].role);)
            end++;
        if (end > i + 1 && join_texts(&first, all + i, end - i, arena, err) != STATUS_OK)
            return err->status;
        all[n_fit++] = first;
    }
    *n = n_fit;
    return STATUS_OK;
}

enum status lm_fit_messages(const struct message **out, size_t *n, const struct lm *m,
                            const struct message *messages, struct arena *arena, struct error *err)
{
    bool is_fit = !m->joins_system && !m->joins_late_system && !m->joins_users;
    struct message *fit;

    for (size_t i = 0; i < *n && !m->format.takes_tools; i++)
        is_fit = is_fit && messages[i].more_len == 0 && messages[i].role != ROLE_TOOL;
    if (is_fit) {
        *out = messages;
        return STATUS_OK;
    }
    fit = arena_alloc(arena, *n, sizeof(*fit));
    if (fit == NULL)
        return error_no_memory(err, *n * sizeof(*fit), "a prompt");
    memcpy(fit, messages, *n * sizeof(*fit));
    if (fit_all(fit, n, m, arena, err) != STATUS_OK)
        return err->status;
    *out = fit;
    return STATUS_OK;
}

bool lm_needs_whole(const struct lm *m, const struct message *messages, size_t n, struct text tools,
                    struct text variables)
{
    bool needs =
        m->template == NULL ||
        (m->prompter != NULL && (tools.len > 0 || chat_prompter_uses_any(m->prompter, variables)));

    for (size_t i = 0; !needs && m->prompter != NULL && i < n; i++)
        needs = messages[i].more_len > 0 || messages[i].role == ROLE_TOOL;
    return needs;
}
