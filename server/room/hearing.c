/* What an agent of a room hears: what others have said since its last answer. */
#include <string.h>

#include "agents/message_extras.h"
#include "agents/reply/reply_parser.h"
#include "base/alloc.h"
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

enum status room_hearing_gather(struct turn_request *out, const struct room_hearing *h,
                                const struct conversation *c, struct arena *arena,
                                struct error *err)
{
    const struct reply_format *format = c->host.model->info.text.reply_format;
    const bool takes_names = format != NULL && format->takes_names;
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

        if (hearing_is_news(h, e) && hearing_message(&messages[out->n_messages++], e, takes_names,
                                                     arena, err) != STATUS_OK)
            return err->status;
    }
    return STATUS_OK;
}
