#include "server/http/exchange.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/http/front.h"
#include "server/http/socket.h"
#include "tests/unit/base/suite.h"

static struct http_front f;

struct lws {
    struct connection *connection;
    char said[4096];
    size_t n_said;
    bool is_closed, has_unread;
};

/* --- a socket that takes all bytes --- */

bool socket_write(struct lws *to, char *data, size_t len)
{
    ck_assert_uint_lt(len, sizeof(to->said) - to->n_said);
    memcpy(to->said + to->n_said, data, len);
    to->n_said += len;
    return true;
}

bool socket_is_choked(const struct lws *to)
{
    return false;
}

bool socket_has_unread(const struct lws *to)
{
    return to->has_unread;
}

void socket_shut(struct lws *to)
{
}

void socket_close(struct lws *to)
{
    to->is_closed = true;
    connection_close(to->connection);
}

void socket_pause(struct lws *to, bool on)
{
}

/* --- two APIs: one formats its errors as words, the other as numbers --- */

static enum status append_words(struct buf *out, int http_status, const struct error *err)
{
    return buf_printf(out, "words %d: %s", http_status, err->text);
}

static enum status append_number(struct buf *out, int http_status, const struct error *err)
{
    return buf_printf(out, "number %d", http_status);
}

static const struct http_api words = {"text/words", append_words, "Words-Id", NULL};
static const struct http_api numbers = {"text/numbers", append_number, NULL, NULL};

static void serve_failure(struct exchange *x)
{
    struct error err;

    (void)error_set(&err, STATUS_EXISTS, "it is there");
    exchange_fail(x, &err);
}

/* A long-lived stream. */
static void linger_write_ready(struct exchange *x, void *state)
{
    if (!exchange_is_streaming(x))
        (void)!buf_append_text(exchange_stream(x), "data: on\n\n");
}

static void linger_drain(struct exchange *x, void *state)
{
    (void)!buf_append_text(exchange_stream(x), "data: drained\n\n");
    exchange_end(x);
    exchange_notify(x);
}

static unsigned n_gone;

static void linger_on_close(struct exchange *x, void *state)
{
    n_gone++;
}

static void serve_lingering(struct exchange *x)
{
    static const struct exchange_handler handler = {
        .on_write_ready = linger_write_ready, .drain = linger_drain, .on_close = linger_on_close};

    exchange_set_handler(x, &handler, NULL);
    exchange_notify(x);
}

static void serve_held(struct exchange *x)
{
    static const struct exchange_handler handler = {.on_write_ready = linger_write_ready,
                                                    .on_close = linger_on_close};

    exchange_set_handler(x, &handler, NULL);
    exchange_notify(x);
}

static void linger_cut(struct exchange *x, void *state, const struct error *err)
{
    (void)!buf_printf(exchange_stream(x), "data: %s\n\n", err->text);
    exchange_end(x);
}

/* A stream that says why it ends. */
static void serve_speaking(struct exchange *x)
{
    static const struct exchange_handler handler = {
        .on_write_ready = linger_write_ready, .cut = linger_cut, .on_close = linger_on_close};

    exchange_set_handler(x, &handler, NULL);
    exchange_notify(x);
}

static void answer_nothing(struct exchange *x, void *state)
{
}

/* Waits for something else. */
static void serve_waiting(struct exchange *x)
{
    static const struct exchange_handler handler = {.on_write_ready = answer_nothing,
                                                    .on_close = linger_on_close};

    exchange_set_handler(x, &handler, NULL);
}

/* Answers with the value of "a" and the method. */
static void serve_query(struct exchange *x)
{
    const char *value;
    struct error err;
    struct buf out;

    buf_init(&out, 256);
    if (exchange_query(&value, x, "a", &err) != STATUS_OK ||
        buf_printf(&out, "%s '%s'", exchange_method(x), value == NULL ? "none" : value) !=
            STATUS_OK)
        ck_abort();
    exchange_reply(x, 200, "text/words", out.data, out.len);
    buf_deinit(&out);
}

static char order[16]; /* the first letters of the bodies that were served, '-' for none */

static void serve_body(struct exchange *x)
{
    size_t len;
    const char *body = exchange_body(x, &len);

    order[strlen(order)] = len > 0 ? body[0] : '-';
    exchange_reply(x, 200, "text/words", "", 0);
}

static const struct route word_routes[] = {
    {"/words", .methods = METHOD_GET, .serve = serve_failure, .api = &words},
    {"/linger", .methods = METHOD_GET, .serve = serve_lingering, .api = &words},
    {"/held", .methods = METHOD_GET, .serve = serve_held, .api = &words},
    {"/query", .methods = METHOD_GET, .serve = serve_query, .api = &words},
    {"/speaks", .methods = METHOD_GET, .serve = serve_speaking, .api = &words},
    {"/body", .methods = METHOD_GET | METHOD_POST, .serve = serve_body, .api = &words},
    {"/waits", .methods = METHOD_GET | METHOD_POST, .serve = serve_waiting, .api = &words},
};
static const struct route number_routes[] = {
    {"/number/", true, METHOD_GET, .serve = serve_failure, .api = &numbers},
    {"/always", .methods = METHOD_GET, .always = true, .serve = serve_lingering, .api = &numbers},
};
static const struct route_table word_table = {word_routes, 7}, number_table = {number_routes, 2};
static const struct route_table *const tables[] = {&word_table, &number_table};

/* --- a client --- */

static void awake(struct http_front *front)
{
}

static void serve_all(void)
{
    while (!list_is_empty(&f.notified))
        front_serve(&f);
}

static void open_front(bool is_serving)
{
    const struct http_config config = {
        .routes = {.tables = tables, .n_tables = 2, .api = &words},
        .max_body_bytes = 4096,
        .timeout_ms = 1000,
        .env = &env_real,
    };

    n_gone = 0;
    front_init(&f, &config, awake);
    f.is_serving = is_serving;
}

static void close_front(void)
{
    ck_assert_uint_eq(f.n_answering, 0);
    ck_assert(list_is_empty(&f.connections));
    front_deinit(&f);
}

static void say(struct lws *s, const char *text)
{
    *s = (struct lws){0};
    s->connection = connection_open(&f, s);
    ck_assert_ptr_nonnull(s->connection);
    connection_read(s->connection, text, strlen(text));
    serve_all();
    s->said[s->n_said] = '\0';
}

static void get(struct lws *s, const char *path)
{
    char line[200];

    (void)snprintf(line, sizeof(line), "GET %s HTTP/1.1\r\nHost: a\r\n\r\n", path);
    say(s, line);
}

static void hang_up(struct lws *s)
{
    if (!s->is_closed)
        connection_close(s->connection);
    serve_all();
}

static void expect(const char *path, const char *status, const char *type, const char *body)
{
    static struct lws s;

    get(&s, path);
    ck_assert_msg(strncmp(s.said, "HTTP/1.1 ", 9) == 0 && strncmp(s.said + 9, status, 3) == 0, "%s",
                  s.said);
    ck_assert_msg(strstr(s.said, type) != NULL && strstr(s.said, body) != NULL, "%s", s.said);
    hang_up(&s);
}

/* A parameter of the query is found by its whole name, decoded; the path is without it. */
START_TEST(queries_are_read)
{
    open_front(true);
    expect("/query", "200", "text/words", "GET 'none'");
    expect("/query?", "200", "text/words", "GET 'none'");
    expect("/query?a=b", "200", "text/words", "GET 'b'");
    expect("/query?aa=1&b=a=2&a&a=%41+%2&a=3", "200", "text/words", "GET 'A %2'");
    expect("/query?a=1%2B1", "200", "text/words", "GET '1+1'");
    expect("/query?x=%26a%3D1&a=", "200", "text/words", "GET ''");
    close_front();
}
END_TEST

/* An error has the format of the route's API; without a route, of the port's own API. */
START_TEST(errors_are_the_apis)
{
    open_front(true);
    expect("/words", "422", "Content-Type: text/words\r\n", "words 422: it is there");
    expect("/number/7", "422", "Content-Type: text/numbers\r\n", "number 422");
    expect("/number/", "404", "Content-Type: text/words\r\n",
           "there is no '/number/', there are: /words, /linger, /held, /query, /speaks, /body, "
           "/waits, "
           "/always");
    close_front();
}
END_TEST

/* Before http_serve only the routes with always set are served. */
START_TEST(before_it_serves)
{
    static struct lws s;

    open_front(false);
    expect("/words", "503", "text/words", "words 503: the server is loading");
    expect("/number/7", "503", "text/numbers", "number 503");
    get(&s, "/always");
    ck_assert_ptr_nonnull(strstr(s.said, "HTTP/1.1 200"));
    hang_up(&s);
    close_front();
}
END_TEST

/* A drain ends long-lived answers, also later ones; others go on. */
START_TEST(drains)
{
    static struct lws lingers, held, late;

    open_front(true);
    get(&lingers, "/linger");
    get(&held, "/held");
    ck_assert_ptr_nonnull(strstr(lingers.said, "data: on"));
    ck_assert_uint_eq(f.n_answering, 2);
    front_drain(&f);
    serve_all();
    lingers.said[lingers.n_said] = '\0';
    ck_assert_ptr_nonnull(strstr(lingers.said, "data: drained\n\n\r\n0\r\n\r\n"));
    ck_assert_uint_eq(n_gone, 1);
    ck_assert_uint_eq(f.n_answering, 1);
    expect("/words", "503", "text/words", "the server is draining");
    get(&late, "/always");
    ck_assert_ptr_nonnull(strstr(late.said, "data: drained"));
    ck_assert_uint_eq(n_gone, 2);
    ck_assert_uint_eq(f.n_answering, 1);
    hang_up(&held);
    ck_assert_uint_eq(n_gone, 3);
    hang_up(&lingers);
    hang_up(&late);
    close_front();
}
END_TEST

/* Ends the front; what was said since is in s. */
static void end_front(struct lws *const *all, size_t n)
{
    (void)front_end(&f);
    serve_all();
    for (size_t i = 0; i < n; i++)
        all[i]->said[all[i]->n_said] = '\0';
}

/* The end answers whatever was asked: an answer that waits has 503, a stream says why, or breaks
 * off; a request of which a part has come is not waited for. */
START_TEST(ends)
{
    static struct lws waits, speaks, held, head, body, idle;
    struct lws *const refused[] = {&waits, &head, &body};
    static char further[] = "rest";

    open_front(true);
    get(&waits, "/waits");
    get(&speaks, "/speaks");
    get(&held, "/held");
    say(&head, "GET /waits HTTP/1.1\r\nHos");
    say(&body, "POST /waits HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf");
    idle = (struct lws){0};
    idle.connection = connection_open(&f, &idle);
    end_front((struct lws *const[]){&waits, &speaks, &held, &head, &body}, 5);
    for (size_t i = 0; i < 3; i++) {
        ck_assert_msg(strncmp(refused[i]->said, "HTTP/1.1 503 ", 13) == 0, "%s", refused[i]->said);
        ck_assert_ptr_nonnull(strstr(refused[i]->said, "\r\nRetry-After: 1\r\n"));
        ck_assert_ptr_nonnull(strstr(refused[i]->said, "\r\nConnection: close\r\n"));
        ck_assert_ptr_nonnull(strstr(refused[i]->said, "words 503: the server is shutting down"));
    }
    ck_assert_ptr_nonnull(
        strstr(speaks.said, "data: the server is shutting down\n\n\r\n0\r\n\r\n"));
    ck_assert(idle.is_closed && waits.is_closed && held.is_closed);
    ck_assert_ptr_null(strstr(held.said, "\r\n0\r\n\r\n"));
    ck_assert_uint_eq(n_gone, 3);
    connection_read(body.connection, further, sizeof(further) - 1); /* it is discarded */
    ck_assert(!front_end(&f));                                      /* two peers have not read */
    hang_up(&head);
    hang_up(&body);
    hang_up(&speaks);
    ck_assert(front_end(&f));
    close_front();
}
END_TEST

/* A connection is not closed while bytes of a request are there, and that has 503. */
START_TEST(unread_requests_are_answered)
{
    static struct lws late;
    static char request[] = "GET /words HTTP/1.1\r\nHost: a\r\n\r\n";

    open_front(true);
    late = (struct lws){.has_unread = true};
    late.connection = connection_open(&f, &late);
    front_drain(&f);
    ck_assert(!front_end(&f) && !late.is_closed);
    connection_read(late.connection, request, sizeof(request) - 1);
    serve_all();
    ck_assert(strncmp(late.said, "HTTP/1.1 503 ", 13) == 0 && late.is_closed);
    ck_assert(front_end(&f));
    close_front();
}
END_TEST

/* Says it without serving it. */
static void tell(struct lws *s, const char *text)
{
    *s = (struct lws){0};
    s->connection = connection_open(&f, s);
    ck_assert_ptr_nonnull(s->connection);
    connection_read(s->connection, text, strlen(text));
}

/* Requests with bodies that may take long to read come behind those without, in their order. */
START_TEST(long_bodies_come_last)
{
    static struct lws clients[4];
    char post[600];

    open_front(true);
    for (size_t i = 0; i < 4; i++) {
        (void)snprintf(post, sizeof(post),
                       "POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 400\r\n\r\n%c%0399d",
                       (char)('a' + i), 0);
        tell(&clients[i], i == 2 ? "GET /body HTTP/1.1\r\nHost: a\r\n\r\n" : post);
    }
    serve_all();
    ck_assert_str_eq(order, "-abd");
    for (size_t i = 0; i < 4; i++) {
        ck_assert(strncmp(clients[i].said, "HTTP/1.1 200 ", 13) == 0);
        hang_up(&clients[i]);
    }
    close_front();
}
END_TEST

SUITE_MAIN("server/http/exchange", queries_are_read, errors_are_the_apis, before_it_serves, drains,
           ends, unread_requests_are_answered, long_bodies_come_last)
