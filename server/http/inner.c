#include "server/http/inner.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "server/http/exchange.h"
#include "server/http/exchange_parts.h"
#include "server/http/head.h"
#include "server/http/http.h"

struct inner {
    struct exchange_sink sink;
    struct exchange *exchange; /* NULL: it has ended */
    const struct inner_handler *handler;
    void *arg;
    bool is_over; /* the handler was told */
};

static struct inner *inner_of(struct exchange_sink *sink)
{
    return container_of(sink, struct inner, sink);
}

/* --- what the exchange calls --- */

static void inner_set_timeout(struct exchange_sink *sink, uint64_t timeout_ms)
{
    /* the daemon with the client's connection watches it */
}

static void inner_on_close(struct exchange_sink *sink)
{
    inner_of(sink)->exchange = NULL;
}

static void inner_tell_end(struct inner *i, bool is_cut)
{
    if (i->is_over)
        return;
    i->is_over = true;
    i->handler->end(i->arg, is_cut);
}

static void inner_end(struct exchange_sink *sink)
{
    inner_tell_end(inner_of(sink), false);
}

/* Called after the exchange is gone, or as long as it lives: then the exchange is closed, too, by
 * inner_close. */
static void inner_cut(struct exchange_sink *sink)
{
    inner_tell_end(inner_of(sink), true);
}

static bool inner_write(struct exchange_sink *sink, char *data, size_t len)
{
    const struct inner *i = inner_of(sink);

    return i->handler->write(i->arg, data, len);
}

static bool inner_is_choked(const struct exchange_sink *sink)
{
    const struct inner *i = container_of(sink, const struct inner, sink);

    return i->handler->is_choked(i->arg);
}

/* --- the request --- */

static bool inner_take_line(struct inner *i, const char *line, size_t len, bool is_first)
{
    const char *mark = memchr(line, is_first ? ' ' : ':', len);
    const size_t n = mark == NULL ? len : (size_t)(mark - line);

    if (is_first && n < len)
        return head_method(i->exchange, line, n) &&
               head_path(i->exchange, line + n + 1, len - n - 1);
    if (!is_first && n + 2 <= len)
        return head_field(i->exchange, line, n, line + n + 2, len - n - 2);
    (void)error_set(&i->exchange->err, STATUS_INVALID, "the request is malformed");
    return head_refuse(i->exchange, 400);
}

static void inner_take_head(struct inner *i, const char *head, size_t len)
{
    const char *at = head, *end = head + len, *line_end;
    bool is_good = true;

    for (; at < end && is_good; at = line_end + 1) {
        line_end = memchr(at, '\n', (size_t)(end - at));
        if (line_end == NULL)
            line_end = end;
        is_good = inner_take_line(i, at, (size_t)(line_end - at), at == head);
    }
    i->exchange->is_chunked = true; /* a body of unknown length */
    exchange_head(i->exchange);
}

enum status inner_open(struct inner **out, struct http *h, const char *head, size_t len,
                       const struct access_key *key, const struct inner_handler *handler, void *arg,
                       struct error *err)
{
    struct inner *i = try_alloc(1, sizeof(*i));

    if (i != NULL) {
        i->sink = (struct exchange_sink){.is_http_2 = true,
                                         .set_timeout = inner_set_timeout,
                                         .on_close = inner_on_close,
                                         .resume = inner_end,
                                         .write = inner_write,
                                         .is_choked = inner_is_choked,
                                         .shut = inner_end,
                                         .close = inner_cut};
        i->handler = handler;
        i->arg = arg;
        i->exchange = exchange_open(http_front(h), &i->sink);
    }
    if (i == NULL || i->exchange == NULL) {
        free(i);
        (void)error_no_memory(err, sizeof(*i), "a request");
        return err->status = STATUS_UNAVAILABLE;
    }
    i->exchange->passed_key = key;
    inner_take_head(i, head, len);
    *out = i;
    return STATUS_OK;
}

static bool inner_is_reading(const struct inner *i)
{
    return i->exchange != NULL && i->exchange->state == EXCHANGE_READING;
}

void inner_take(struct inner *i, const char *data, size_t len)
{
    /* False: it is refused, and what comes further is discarded. */
    if (inner_is_reading(i) && exchange_expect(i->exchange, len))
        (void)exchange_more(i->exchange, data, len);
}

void inner_whole(struct inner *i)
{
    if (inner_is_reading(i))
        exchange_whole(i->exchange);
}

void inner_notify(struct inner *i)
{
    if (i->exchange != NULL)
        exchange_notify(i->exchange);
}

void inner_close(struct inner *i)
{
    if (i == NULL)
        return;
    i->is_over = true;
    if (i->exchange != NULL)
        exchange_close(i->exchange);
    free(i);
}
