#include "server/api/answer.h"

#include <string.h>

#include "server/conversation/conversations.h"
#include "server/http/exchange.h"
#include "server/journal/journal.h"
#include "server/server.h"

void answer_json(struct exchange *x, struct json_writer *w, const struct buf *body)
{
    struct error err;

    if (json_writer_end(w) == STATUS_OK) {
        exchange_reply(x, 200, "application/json", body->data, body->len);
        return;
    }
    (void)error_no_memory(&err, 0, "the answer");
    exchange_fail(x, &err);
}

/* --- what is durable first --- */

struct kept_answer {
    struct journal_wait wait;
    struct exchange *exchange;
    const char *body; /* [len] */
    size_t len;
};

static void on_answer_kept(void *arg, const struct error *err)
{
    struct kept_answer *a = arg;

    exchange_drop_handler(a->exchange);
    if (err->status == STATUS_OK)
        exchange_reply(a->exchange, 200, "application/json", a->body, a->len);
    else
        exchange_fail(a->exchange, err);
}

static void kept_answer_ignore(struct exchange *x, void *state)
{
}

static void kept_answer_close(struct exchange *x, void *state)
{
    struct kept_answer *a = state;

    journal_leave(&a->wait);
}

void answer_json_kept(struct exchange *x, struct json_writer *w, const struct buf *body)
{
    static const struct exchange_handler handler = {.on_write_ready = kept_answer_ignore,
                                                    .on_close = kept_answer_close};
    struct journal *journal = exchange_server(x)->conversations->keeping.journal;
    struct kept_answer *a;
    struct error err;
    char *copy;

    if (journal == NULL) {
        answer_json(x, w, body);
        return;
    }
    a = arena_alloc(exchange_arena(x), 1, sizeof(*a));
    copy = json_writer_end(w) == STATUS_OK && a != NULL
               ? arena_strndup(exchange_arena(x), body->data, body->len)
               : NULL;
    if (copy == NULL) {
        (void)error_no_memory(&err, body->len, "the answer");
        exchange_fail(x, &err);
        return;
    }
    *a = (struct kept_answer){.exchange = x, .body = copy, .len = body->len};
    exchange_set_handler(x, &handler, a);
    journal_settle(journal, &a->wait, on_answer_kept, a);
}

const char *answer_unsaid_field(const struct error *err)
{
    return strstr(err->text, err->field) == NULL ? err->field : "";
}
