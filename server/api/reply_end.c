/* What follows any reply is what two that differ have behind them in common. */
#include "server/api/reply_end.h"

#include <string.h>

#include "agents/agent.h"
#include "agents/reply/reply_format.h"
#include "agents/text.h"
#include "server/model/model.h"

enum { PROMPT_MAX_BYTES = 64 << 20 };

/* The prompt of an exchange whose reply is this text, and of the messages behind it. */
static enum status render_behind(struct buf *ids, const struct request *r, const struct model *m,
                                 const char *reply, const struct message *behind, size_t n,
                                 bool is_replied, struct arena *arena, struct error *err)
{
    struct message *all = arena_alloc(arena, n + 2, sizeof(all[0]));

    if (all == NULL)
        return error_no_memory(err, (n + 2) * sizeof(all[0]), "the request");
    all[0] = (struct message){.role = ROLE_USER, .text = "x", .len = 1};
    all[1] = (struct message){.role = ROLE_ASSISTANT, .text = reply, .len = strlen(reply)};
    if (n > 0)
        memcpy(all + 2, behind, n * sizeof(all[0]));
    return m->agent->type->text->render(m->agent, all, n + 2, r->prompts->tool_use.tools,
                                        r->variables.json, is_replied, ids, err);
}

/* How many bytes of whole ids at the ends are the same. */
static size_t same_end(const struct buf *a, const struct buf *b)
{
    const size_t size = sizeof(int32_t), most = a->len < b->len ? a->len : b->len;
    size_t n = 0;

    while (n < most && memcmp(a->data + a->len - n - size, b->data + b->len - n - size, size) == 0)
        n += size;
    return n;
}

enum status reply_end_render(struct buf *ids, const struct request *r, const struct model *m,
                             const struct message *behind, size_t n, bool is_replied,
                             struct arena *arena, struct error *err)
{
    struct buf one, other;
    enum status rc;
    size_t len;

    buf_init(&one, PROMPT_MAX_BYTES);
    buf_init(&other, PROMPT_MAX_BYTES);
    rc = render_behind(&one, r, m, "x", behind, n, is_replied, arena, err);
    if (rc == STATUS_OK)
        rc = render_behind(&other, r, m, "y", behind, n, is_replied, arena, err);
    len = rc == STATUS_OK ? same_end(&one, &other) : 0;
    if (rc == STATUS_OK && len == one.len)
        rc = error_set(err, STATUS_INVALID, "this model's chat template has no replies");
    if (rc == STATUS_OK && len > 0 && buf_append(ids, one.data + one.len - len, len) != STATUS_OK)
        rc = error_no_memory(err, len, "the request");
    buf_deinit(&one);
    buf_deinit(&other);
    return rc;
}

/* --- a reply that is begun --- */

/* Whether replies begin with something else than their text, with thoughts or a header. */
static bool begins_otherwise(const struct reply_format *format)
{
    return format != NULL && (format->begins_in_thought[THINKING_OFF] ||
                              (format->thoughts != NULL && format->thoughts->alone[0] != '\0'));
}

/* Whether a text begins with the model's thoughts. */
static bool is_thought(const struct reply_format *format, const struct message *m)
{
    const char *open = format == NULL || format->thoughts == NULL ? "" : format->thoughts->open;
    size_t at = 0;

    while (at < m->len && strchr(" \t\r\n", m->text[at]) != NULL && m->text[at] != '\0')
        at++;
    return open[0] != '\0' && m->len - at >= strlen(open) &&
           memcmp(m->text + at, open, strlen(open)) == 0;
}

static bool message_is_blank(const struct message *m)
{
    for (size_t i = 0; i < m->len; i++)
        if (strchr(" \t\r\n", m->text[i]) == NULL || m->text[i] == '\0')
            return false;
    return true;
}

/* Whether the model can go on from the beginning of a reply. */
static enum status check_begun(const struct request *r, const struct model *m, struct error *err)
{
    const struct prompt *p = &r->prompts[0];
    struct message_extras x = {0};
    struct arena ignored;
    enum status rc;

    if (m->agent->type->text == NULL)
        return error_field(err, "messages",
                           "must end with the user's: '%s' has no vocabulary, and goes on from no "
                           "beginning of a reply",
                           m->name);
    if (r->variables.thinking == THINKING_ON || begins_otherwise(m->info.text.reply_format))
        return error_field(err, "messages",
                           "must end with the user's: thoughts stand before a reply, and none are "
                           "behind its beginning");
    if (is_thought(m->info.text.reply_format, &p->messages[p->n_messages - 1]))
        return error_field(err, "messages",
                           "must end with the user's, or with a reply that does not begin with "
                           "'%s': ask for thoughts instead",
                           m->info.text.reply_format->thoughts->open);
    arena_init(&ignored, SIZE_MAX);
    rc = message_extras_read(&x, &p->messages[p->n_messages - 1], &ignored);
    arena_deinit(&ignored);
    if (rc != STATUS_OK)
        return error_no_memory(err, 0, "the request");
    if (x.n_calls > 0)
        return error_field(err, "messages", "must end with the results of the assistant's calls");
    return STATUS_OK;
}

/* The ids of the messages without what the template writes behind the last. */
static enum status cut_end(struct prompt *p, const struct buf *all, const struct buf *end,
                           struct arena *arena, struct error *err)
{
    const size_t len = all->len < end->len ? 0 : all->len - end->len;
    int32_t *ids;

    if (len == 0 || (end->len > 0 && memcmp(all->data + len, end->data, end->len) != 0))
        return error_field(err, "messages",
                           "must end with the user's: this model's chat template does not let a "
                           "reply go on");
    ids = arena_alloc(arena, len, 1);
    if (ids == NULL)
        return error_no_memory(err, len, "the request");
    memcpy(ids, all->data, len);
    p->ids = ids;
    p->n_ids = len / sizeof(ids[0]);
    p->messages = NULL;
    p->n_messages = 0;
    p->is_plain = true;
    p->raw = (struct raw_rules){.adds_no_bos = true, .is_chat = true};
    return STATUS_OK;
}

/* Some templates leave a message without text out: what they write last is another's. */
static enum status check_written(const struct request *r, const struct model *m,
                                 const struct buf *all, struct error *err)
{
    const struct prompt *p = &r->prompts[0];
    struct buf before;
    enum status rc;

    if (p->n_messages == 1 || !message_is_blank(&p->messages[p->n_messages - 1]))
        return STATUS_OK;
    buf_init(&before, PROMPT_MAX_BYTES);
    rc = m->agent->type->text->render(m->agent, p->messages, p->n_messages - 1, p->tool_use.tools,
                                      r->variables.json, false, &before, err);
    if (rc == STATUS_OK && before.len == all->len && memcmp(before.data, all->data, all->len) == 0)
        rc = error_field(err, "messages",
                         "must end with the user's, or with the beginning of a reply: this model's "
                         "chat template leaves an empty one out");
    buf_deinit(&before);
    return rc;
}

enum status request_continue(struct request *r, const struct model *m, struct arena *arena,
                             struct error *err)
{
    struct prompt *p = &r->prompts[0];
    struct buf all, end;
    enum status rc;

    if (!p->is_begun)
        return STATUS_OK;
    if (check_begun(r, m, err) != STATUS_OK)
        return err->status;
    r->variables.thinking = THINKING_OFF;
    buf_init(&all, PROMPT_MAX_BYTES);
    buf_init(&end, PROMPT_MAX_BYTES);
    rc = reply_end_render(&end, r, m, NULL, 0, false, arena, err);
    if (rc == STATUS_OK)
        rc = m->agent->type->text->render(m->agent, p->messages, p->n_messages, p->tool_use.tools,
                                          r->variables.json, false, &all, err);
    if (rc == STATUS_OK)
        rc = check_written(r, m, &all, err);
    if (rc == STATUS_OK)
        rc = cut_end(p, &all, &end, arena, err);
    buf_deinit(&all);
    buf_deinit(&end);
    return rc;
}
