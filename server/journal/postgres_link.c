/* Sends statements to PostgreSQL and takes their results, with poll(2) on the journal's thread,
 * which waits for a disk in the same way. libpq never blocks: while it has something to send, the
 * thread also reads, so that neither side waits for the other. */
#include "server/journal/postgres_link.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/env.h"

enum { LINK_NUMBER_TEXT = 24, LINK_RETRY_MS = 1000, LINK_MIN_SERVER = 140000 };

struct link_arg link_number(uint64_t number)
{
    return (struct link_arg){.type = LINK_NUMBER, .number = number, .bytes = ""};
}

struct link_arg link_text(const char *text)
{
    return (struct link_arg){
        .type = LINK_TEXT, .bytes = text, .size_bytes = text == NULL ? 0 : strlen(text)};
}

struct link_arg link_bytes(const void *bytes, size_t size_bytes)
{
    return (struct link_arg){
        .type = LINK_BYTES, .bytes = bytes == NULL ? "" : bytes, .size_bytes = size_bytes};
}

struct link_arg link_id(const uint8_t *id)
{
    return (struct link_arg){.type = LINK_BYTES, .bytes = id, .size_bytes = JOURNAL_ID_BYTES};
}

/* libpq's text without its line breaks, behind its first word "ERROR:". */
static enum status link_failed(struct link_connection *l, const char *text, struct error *err)
{
    char line[200];
    size_t n = 0;

    if (strncmp(text, "ERROR:  ", 8) == 0)
        text += 8;
    for (; *text != '\0' && n < sizeof(line) - 1; text++)
        line[n++] = *text == '\n' || *text == '\t' ? ' ' : *text;
    while (n > 0 && line[n - 1] == ' ')
        n--;
    line[n] = '\0';
    (void)error_because(err, STATUS_UNAVAILABLE, REASON_JOURNAL_FAILING, NULL,
                        "the journal's database cannot be used: %s", line);
    err->retry_after_ms = LINK_RETRY_MS;
    return STATUS_UNAVAILABLE;
}

/* What happened to the server's transactions is not known any more. */
static void link_break(struct link_connection *l, const char *text, struct error *err)
{
    (void)link_failed(l, text, err);
    l->code[0] = '\0';
    link_close(l);
}

void link_close(struct link_connection *l)
{
    if (l->c != NULL)
        l->pq->PQfinish(l->c);
    l->c = NULL;
}

/* Waits for the socket. false: nothing came in time. */
static bool link_wait(struct link_connection *l, short events, uint64_t until_ms)
{
    struct pollfd fd = {.fd = l->pq->PQsocket(l->c), .events = events};
    int rc;

    do {
        const uint64_t now_ms = env_now_ms(&env_real);

        if (now_ms >= until_ms)
            return false;
        rc = poll(&fd, 1, (int)(until_ms - now_ms));
    } while (rc < 0 && errno == EINTR);
    return rc > 0;
}

static void on_link_notice(void *arg, const PGresult *notice)
{
    struct link_connection *l = arg;
    const char *severity = l->pq->PQresultErrorField(notice, PG_DIAG_SEVERITY_NONLOCALIZED);

    if (severity != NULL && strcmp(severity, "WARNING") == 0)
        l->has_warned = true;
}

/* *ret_is_silent: nothing came in time. */
static enum status link_connect(struct link_connection *l, uint64_t patience_ms,
                                bool *ret_is_silent, struct error *err)
{
    const uint64_t until_ms = env_now_ms(&env_real) + patience_ms;
    PostgresPollingStatusType next = PGRES_POLLING_WRITING;

    while (l->pq->PQstatus(l->c) != CONNECTION_BAD && next != PGRES_POLLING_OK) {
        if (next == PGRES_POLLING_FAILED)
            break;
        if (!link_wait(l, next == PGRES_POLLING_READING ? POLLIN : POLLOUT, until_ms)) {
            *ret_is_silent = true;
            return link_failed(l, "it does not answer", err);
        }
        next = l->pq->PQconnectPoll(l->c);
    }
    if (next != PGRES_POLLING_OK)
        return link_failed(l, l->pq->PQerrorMessage(l->c), err);
    if (l->pq->PQserverVersion(l->c) < LINK_MIN_SERVER)
        return error_set(err, STATUS_PRECONDITION,
                         "the database's PostgreSQL is older than 14, which parleyd needs");
    if (l->pq->PQsetnonblocking(l->c, 1) != 0 || l->pq->PQenterPipelineMode(l->c) != 1)
        return link_failed(l, l->pq->PQerrorMessage(l->c), err);
    return STATUS_OK;
}

static unsigned link_count(const char *list)
{
    unsigned n = 1;

    for (; *list != '\0'; list++)
        n += *list == ',';
    return n;
}

/* "a,b,c" from its n-th on: "b,c,a". */
static void link_rotate(char *list, unsigned n)
{
    const size_t size = strlen(list) + 1;
    char *copy = xstrdup(list), *at = copy;

    for (n %= link_count(list); n > 0; n--)
        at = strchr(at, ',') + 1;
    if (at != copy) {
        at[-1] = '\0';
        (void)snprintf(list, size, "%s,%s", at, copy);
    }
    free(copy);
}

/* libpq's words for a URL that it does not understand have parts of it, and one of them may be the
 * password. An "@" in a host, or behind a "/", is most likely of a password, too. */
static bool link_is_url(const char *url, const PQconninfoOption *options)
{
    const char *at = strstr(url, "://");

    if (options == NULL)
        return false;
    if (at != NULL) {
        at += 3;
        at += strcspn(at, "/?");
        if (at[strcspn(at, "@?")] == '@')
            return false;
    }
    for (const PQconninfoOption *o = options; o->keyword != NULL; o++)
        if (strcmp(o->keyword, "host") == 0 && o->val != NULL && o->val[0] != '/' &&
            o->val[0] != '@' && strchr(o->val, '@') != NULL)
            return false;
    return true;
}

/* The hosts of the URL from l->first_host on, which have an equal part of the time each. */
static enum status link_try(struct link_connection *l, const char *url, unsigned *ret_n_hosts,
                            bool *ret_is_silent, struct error *err)
{
    /* What stands later counts, unless it is NULL. */
    static const char *const names[] = {
        "dbname", "host", "hostaddr", "port", "fallback_application_name", "client_encoding", NULL};
    const char *values[] = {url, NULL, NULL, NULL, "parleyd", "UTF8", NULL};
    PQconninfoOption *options = l->pq->PQconninfoParse(url, NULL);
    enum status rc;

    *ret_n_hosts = 1;
    if (!link_is_url(url, options)) {
        l->pq->PQconninfoFree(options);
        return error_set(err, STATUS_PRECONDITION,
                         "the URL cannot be read: in a user, a password and a database's name "
                         "signs like @ : / ? %% stand as %%40 %%3A %%2F %%3F %%25");
    }
    for (PQconninfoOption *o = options; o->keyword != NULL; o++)
        for (size_t i = 1; i <= 3; i++)
            if (strcmp(o->keyword, names[i]) == 0 && o->val != NULL) {
                *ret_n_hosts =
                    link_count(o->val) > *ret_n_hosts ? link_count(o->val) : *ret_n_hosts;
                link_rotate(o->val, l->first_host);
                values[i] = o->val;
            }
    l->c = l->pq->PQconnectStartParams(names, values, 1);
    l->pq->PQconninfoFree(options);
    if (l->c == NULL)
        return error_no_memory(err, 0, "a connection to PostgreSQL");
    (void)l->pq->PQsetNoticeReceiver(l->c, on_link_notice, l);
    rc = link_connect(l, LINK_PATIENCE_MS / *ret_n_hosts, ret_is_silent, err);
    if (rc != STATUS_OK)
        link_close(l);
    return rc;
}

enum status link_open(struct link_connection *l, const char *url, struct error *err)
{
    unsigned n_hosts, n = 0;
    bool is_silent;
    enum status rc;

    l->has_warned = false;
    do {
        is_silent = false;
        rc = link_try(l, url, &n_hosts, &is_silent, err);
        l->first_host += is_silent;
    } while (is_silent && ++n < n_hosts);
    return rc;
}

bool link_send(struct link_connection *l, const char *sql, const struct link_arg *args, size_t n)
{
    char numbers[LINK_MAX_ARGS][LINK_NUMBER_TEXT];
    const char *values[LINK_MAX_ARGS];
    int lengths[LINK_MAX_ARGS], formats[LINK_MAX_ARGS];

    assert(n <= LINK_MAX_ARGS);
    if (l->c == NULL)
        return false;
    for (size_t i = 0; i < n; i++) {
        values[i] = args[i].bytes;
        lengths[i] = (int)args[i].size_bytes;
        formats[i] = args[i].type == LINK_BYTES;
        if (args[i].type == LINK_NUMBER) {
            (void)snprintf(numbers[i], sizeof(numbers[i]), "%lld", (long long)args[i].number);
            values[i] = numbers[i];
        }
    }
    return l->pq->PQsendQueryParams(l->c, sql, (int)n, NULL, values, lengths, formats, 1) == 1;
}

bool link_ask(struct link_connection *l)
{
    return l->c != NULL && l->pq->PQsendFlushRequest(l->c) == 1;
}

bool link_sync(struct link_connection *l)
{
    l->has_warned = false;
    return l->c != NULL && l->pq->PQpipelineSync(l->c) == 1;
}

/* Sends and reads until a result is complete. false: the connection is broken. */
static bool link_pump(struct link_connection *l, struct error *err)
{
    uint64_t until_ms = env_now_ms(&env_real) + LINK_PATIENCE_MS;
    int left;

    for (;;) {
        left = l->pq->PQflush(l->c);
        if (left < 0)
            break;
        if (left == 0 && !l->pq->PQisBusy(l->c))
            return true;
        if (!link_wait(l, left > 0 ? POLLIN | POLLOUT : POLLIN, until_ms)) {
            link_break(l, "it does not answer", err);
            return false;
        }
        until_ms = env_now_ms(&env_real) + LINK_PATIENCE_MS;
        if (l->pq->PQconsumeInput(l->c) != 1)
            break;
    }
    link_break(l, l->pq->PQerrorMessage(l->c), err);
    return false;
}

/* The next result, in which libpq's NULL between two statements does not count. */
static PGresult *link_next(struct link_connection *l, struct error *err)
{
    PGresult *r = NULL;

    if (l->c == NULL) {
        (void)link_failed(l, "there is no connection", err);
        l->code[0] = '\0';
        return NULL;
    }
    for (int i = 0; i < 2 && r == NULL; i++) {
        if (!link_pump(l, err))
            return NULL;
        r = l->pq->PQgetResult(l->c);
    }
    if (r == NULL || l->pq->PQstatus(l->c) == CONNECTION_BAD) {
        if (r != NULL)
            l->pq->PQclear(r);
        link_break(l, l->pq->PQerrorMessage(l->c), err);
        return NULL;
    }
    return r;
}

PGresult *link_take(struct link_connection *l, struct error *err)
{
    PGresult *r = link_next(l, err);
    const char *code, *text;

    if (r == NULL)
        return NULL;
    switch (l->pq->PQresultStatus(r)) {
    case PGRES_TUPLES_OK:
    case PGRES_COMMAND_OK:
        return r;
    case PGRES_PIPELINE_ABORTED:
        (void)snprintf(l->code, sizeof(l->code), "skip");
        break;
    default:
        code = l->pq->PQresultErrorField(r, PG_DIAG_SQLSTATE);
        text = l->pq->PQresultErrorField(r, PG_DIAG_MESSAGE_PRIMARY);
        (void)snprintf(l->code, sizeof(l->code), "%s", code == NULL ? "?" : code);
        (void)link_failed(l, text == NULL ? "without a reason" : text, err);
        break;
    }
    l->pq->PQclear(r);
    return NULL;
}

/* Takes what is left of the transaction. */
static bool link_skip(struct link_connection *l, struct error *err)
{
    PGresult *r;
    bool is_sync = false;

    do {
        r = link_next(l, err);
        if (r == NULL)
            return false;
        is_sync = l->pq->PQresultStatus(r) == PGRES_PIPELINE_SYNC;
        l->pq->PQclear(r);
    } while (!is_sync);
    return true;
}

bool link_take_sync(struct link_connection *l, struct error *err)
{
    if (!link_skip(l, err))
        return false;
    if (l->has_warned) { /* "committed locally, but might not have been replicated" */
        link_break(l, "it does not say whether its standby has the transaction", err);
        return false;
    }
    return true;
}

/* Sends a statement alone. */
static bool link_begin(struct link_connection *l, const char *sql, const struct link_arg *args,
                       size_t n, struct error *err)
{
    if (link_send(l, sql, args, n) && link_sync(l))
        return true;
    link_break(l, l->c == NULL ? "there is no connection" : l->pq->PQerrorMessage(l->c), err);
    return false;
}

PGresult *link_query(struct link_connection *l, const char *sql, const struct link_arg *args,
                     size_t n, struct error *err)
{
    PGresult *r = NULL;
    struct error ignored;

    if (!link_begin(l, sql, args, n, err))
        return NULL;
    r = link_take(l, err);
    if (l->c == NULL)
        return NULL;
    if (!link_take_sync(l, r == NULL ? &ignored : err) && r != NULL) {
        l->pq->PQclear(r);
        return NULL;
    }
    return r;
}

bool link_do(struct link_connection *l, const char *sql, const struct link_arg *args, size_t n,
             struct error *err)
{
    PGresult *r = link_query(l, sql, args, n, err);

    if (r == NULL)
        return false;
    l->pq->PQclear(r);
    return true;
}

bool link_end_others(struct link_connection *l, const char *sql, const struct link_arg *args,
                     size_t n, struct error *err)
{
    struct error why;
    PGresult *r;

    if (!link_begin(l, sql, args, n, err))
        return false;
    r = link_take(l, &why);
    if (l->c == NULL) {
        *err = why;
        return false;
    }
    if (r != NULL)
        l->pq->PQclear(r);
    return link_skip(l, err);
}

uint64_t link_column(const struct link_connection *l, const PGresult *r, int row, int column)
{
    const unsigned char *at = (const unsigned char *)l->pq->PQgetvalue(r, row, column);
    const int n = l->pq->PQgetlength(r, row, column);
    uint64_t value = 0;

    for (int i = 0; i < n && i < 8; i++) /* in network order */
        value = value << 8 | at[i];
    return value;
}

const void *link_column_bytes(const struct link_connection *l, const PGresult *r, int row,
                              int column, size_t *ret_len)
{
    *ret_len = (size_t)l->pq->PQgetlength(r, row, column);
    return l->pq->PQgetvalue(r, row, column);
}
