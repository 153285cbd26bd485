/* What an agent of a room hears: what others have said since its last answer. The first turn of a
 * conversation begins with what the agent has heard and said before, in an earlier one: as much of
 * the log, newest first, as half of the context holds. */
#include <assert.h>
#include <string.h>

#include "agents/message_extras.h"
#include "agents/reply/reply_format.h"
#include "agents/text.h"
#include "base/arena.h"
#include "base/buf.h"
#include "server/conversation/conversation.h"
#include "server/model/model.h"
#include "server/room/room_parts.h"

/* The length of the text that the agent is told of an entry. */
static size_t heard_len(const struct room_entry *e)
{
    return strlen(e->name) + sizeof(": ") - 1 + strlen(e->text);
}

static bool hearing_is_news(const struct room_hearing *h, const struct room_entry *e)
{
    return e->kind == ROOM_SAID && e->seq > h->heard && strcmp(e->from, h->agent) != 0;
}

/* The first entry of the news: the newest ones that together are not too long. */
static struct link *hearing_first(const struct room_hearing *h)
{
    const struct list *log = &h->room->log;
    struct link *first = NULL;
    size_t n_bytes = 0;

    for (struct link *l = list_last(log); l != NULL && l != &log->head; l = l->prev) {
        const struct room_entry *e = container_of(l, struct room_entry, link);

        if (e->seq <= h->heard)
            break;
        if (!hearing_is_news(h, e))
            continue;
        n_bytes += heard_len(e);
        if (first != NULL && n_bytes > ROOM_HEARD_MAX_BYTES)
            break;
        first = l;
    }
    return first;
}

bool room_hearing_has_news(const struct room_hearing *h)
{
    return hearing_first(h) != NULL;
}

/* The speaker's name goes to a template that reads it, else before the text. */
static enum status hearing_message(struct message *out, const struct room_entry *e,
                                   bool takes_names, struct arena *arena, struct error *err)
{
    const struct message_extras x = {.name = {e->name, strlen(e->name)}};
    const size_t len = strlen(e->text), name_len = strlen(e->name);
    enum status rc = STATUS_OK;
    struct buf more;
    char *text;

    *out = (struct message){.role = ROLE_USER, .text = e->text, .len = len};
    if (name_len == 0)
        return STATUS_OK;
    if (!takes_names) {
        text = arena_alloc(arena, name_len + 2 + len + 1, 1);
        if (text == NULL)
            return error_no_memory(err, len, "what an agent hears");
        memcpy(text, e->name, name_len);
        memcpy(text + name_len, ": ", 2);
        memcpy(text + name_len + 2, e->text, len + 1);
        out->text = text;
        out->len = name_len + 2 + len;
        return STATUS_OK;
    }
    buf_init(&more, SIZE_MAX);
    if (message_extras_write(&more, &x) != STATUS_OK ||
        (out->more = arena_strndup(arena, more.data, more.len)) == NULL)
        rc = error_no_memory(err, more.len, "a speaker's name");
    out->more_len = more.len;
    buf_deinit(&more);
    return rc;
}

/* The news. */
static enum status hearing_gather_news(struct turn_request *out, const struct room_hearing *h,
                                       bool takes_names, struct arena *arena, struct error *err)
{
    const struct list *log = &h->room->log;
    struct link *first = hearing_first(h);
    struct message *messages;
    size_t n = 0;

    for (struct link *l = first; l != NULL; l = list_next(log, l))
        n += hearing_is_news(h, container_of(l, struct room_entry, link));
    if (n == 0)
        return error_set(err, STATUS_PRECONDITION, "nothing was said since its last answer");
    messages = arena_alloc(arena, n, sizeof(messages[0]));
    if (messages == NULL)
        return error_no_memory(err, n * sizeof(messages[0]), "what an agent hears");
    out->messages = messages;
    for (struct link *l = first; l != NULL; l = list_next(log, l)) {
        const struct room_entry *e = container_of(l, struct room_entry, link);

        if (hearing_is_news(h, e) &&
            hearing_message(&messages[out->n_messages++], e, takes_names, arena, err) != STATUS_OK)
            return err->status;
    }
    return STATUS_OK;
}

/* --- tokens --- */

/* The tokens of a new conversation's prompt with these messages. */
static enum status hearing_measure(size_t *out, const struct conversation *c,
                                   const struct message *messages, size_t n, struct error *err)
{
    const struct agent *agent = c->host.model->agent;
    const struct text none = {NULL, 0};
    struct buf ids;
    enum status rc;

    buf_init(&ids, SIZE_MAX);
    rc = agent->type->text->render(agent, messages, n, none, none, true, &ids, err);
    if (rc == STATUS_OK)
        *out = ids.len / sizeof(int32_t);
    buf_deinit(&ids);
    return rc;
}

/* 0: c has none, or its model is not there. */
static size_t hearing_context(const struct conversation *c)
{
    const struct model *m = c->host.model;

    return m->agent == NULL || m->agent->type->text == NULL ? 0 : m->info.text.context;
}

/* RANGE where the messages leave c less than max_tokens, or than a quarter of its context, for the
 * answer. What the template refuses, the turn says. */
static enum status hearing_check_space(const struct conversation *c, const struct turn_request *r,
                                       struct error *err)
{
    const struct sampling_overrides *o = c->host.options->overrides;
    const size_t context = hearing_context(c);
    size_t reserve = context / 4, n = 0;
    struct clone_info clone;

    if (context == 0)
        return STATUS_OK;
    if (o != NULL && (o->given & SAMPLING_MAX_TOKENS) != 0 && o->values.max_tokens < reserve)
        reserve = o->values.max_tokens;
    if (hearing_measure(&n, c, r->messages, r->n_messages, err) != STATUS_OK)
        return err->reason == REASON_CONTEXT_EXCEEDED ? err->status : STATUS_OK;
    clone_describe(c->host.clone, &clone);
    if (clone.n_tokens + n + reserve <= context)
        return STATUS_OK;
    return error_because(err, STATUS_RANGE, REASON_CONTEXT_EXCEEDED, NULL,
                         "%zu tokens of the context are used, and %zu are new: none is left for an "
                         "answer",
                         clone.n_tokens, n);
}

/* --- the first turn --- */

/* The entry of the agent's coming; if the log has lost it, the log's beginning. */
static const struct link *hearing_began(const struct room_hearing *h)
{
    const struct list *log = &h->room->log;
    const struct link *l = list_last(log);

    for (; l != NULL && l != &log->head; l = l->prev) {
        const struct room_entry *e = container_of(l, const struct room_entry, link);

        if (e->kind == ROOM_JOINED && strcmp(e->from, h->agent) == 0)
            return l;
    }
    return &log->head;
}

/* All that was said since the agent came, [n]: the news last, since it has not answered them. */
static size_t hearing_order(const struct room_hearing *h, const struct room_entry **out)
{
    const struct list *log = &h->room->log;
    const struct link *began = hearing_began(h);
    size_t n = 0;

    for (int is_news = false; is_news <= true; is_news++)
        for (const struct link *l = began->next; l != &log->head; l = l->next) {
            const struct room_entry *e = container_of(l, const struct room_entry, link);

            if (e->kind == ROOM_SAID && hearing_is_news(h, e) == is_news &&
                (is_news || e->text[0] != '\0')) /* one that has only thought has said nothing */
                out[n++] = e;
        }
    return n;
}

/* Whether all[i..n) have room in half of c's context, behind the system prompt, for which all[i -
 * 1] is free. */
static bool hearing_fits(const struct conversation *c, struct message *all, size_t i, size_t n)
{
    const struct conversation_options *o = c->host.options;
    const struct message before = all[i - 1];
    struct error ignored;
    size_t n_tokens;
    bool fits;

    if (o->system_len > 0)
        all[--i] = (struct message){.role = ROLE_SYSTEM, .text = o->system, .len = o->system_len};
    fits = hearing_measure(&n_tokens, c, all + i, n - i, &ignored) == STATUS_OK &&
           n_tokens <= hearing_context(c) / 2;
    if (o->system_len > 0)
        all[i] = before;
    return fits;
}

/* The first of all[1..n) that stays, one of others: the more go, the fewer tokens are left. At
 * least the last one stays. starts [n]: scratch. */
static size_t hearing_cut(const struct conversation *c, struct message *all, size_t n,
                          size_t *starts)
{
    size_t n_starts = 0, low = 1, high;

    for (size_t i = 1; i < n; i++)
        if (all[i].role == ROLE_USER)
            starts[n_starts++] = i;
    assert(n_starts > 0); /* the news */
    if (n_starts == 1 || hearing_context(c) == 0 || hearing_fits(c, all, starts[0], n))
        return starts[0];
    for (high = n_starts - 1; low < high;) {
        const size_t middle = low + (high - low) / 2;

        if (hearing_fits(c, all, starts[middle], n))
            high = middle;
        else
            low = middle + 1;
    }
    return starts[low];
}

static enum status hearing_gather_all(struct turn_request *out, const struct room_hearing *h,
                                      const struct conversation *c, bool takes_names,
                                      struct arena *arena, struct error *err)
{
    const size_t n_most = h->room->n_entries + 1;
    const struct room_entry **entries = arena_alloc(arena, n_most, sizeof(*entries));
    struct message *all = arena_alloc(arena, n_most, sizeof(*all));
    size_t *starts = arena_alloc(arena, n_most, sizeof(*starts));
    size_t n, first, n_bytes = 0, n_all = 1;

    if (entries == NULL || all == NULL || starts == NULL)
        return error_no_memory(err, n_most * sizeof(*all), "what an agent hears");
    n = first = hearing_order(h, entries);
    while (first > 0 &&
           (first == n || n_bytes + heard_len(entries[first - 1]) <= ROOM_HEARD_MAX_BYTES))
        n_bytes += heard_len(entries[--first]);
    for (; first < n; first++, n_all++) {
        const struct room_entry *e = entries[first];

        if (strcmp(e->from, h->agent) == 0)
            all[n_all] =
                (struct message){.role = ROLE_ASSISTANT, .text = e->text, .len = strlen(e->text)};
        else if (hearing_message(&all[n_all], e, takes_names, arena, err) != STATUS_OK)
            return err->status;
    }
    first = hearing_cut(c, all, n_all, starts);
    out->messages = all + first;
    out->n_messages = n_all - first;
    return STATUS_OK;
}

bool room_hearing_is_new(const struct conversation *c)
{
    return c->host.n_turns + c->host.n_live == 0 && c->unended.request == NULL;
}

enum status room_hearing_gather(struct turn_request *out, const struct room_hearing *h,
                                const struct conversation *c, struct arena *arena,
                                struct error *err)
{
    const struct reply_format *format = c->host.model->info.text.reply_format;
    const bool takes_names = format != NULL && format->takes_names;
    enum status rc;

    if (room_hearing_is_new(c))
        return hearing_gather_all(out, h, c, takes_names, arena, err);
    rc = hearing_gather_news(out, h, takes_names, arena, err);
    return rc == STATUS_OK ? hearing_check_space(c, out, err) : rc;
}
