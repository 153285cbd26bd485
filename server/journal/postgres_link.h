/* A link is one connection to PostgreSQL, in libpq's pipeline mode. Statements are unnamed and hold
 * nothing in the session, so that PgBouncer may give each transaction another connection. What is
 * sent up to a sync is one transaction. All functions may wait, and at most for LINK_PATIENCE_MS
 * without a byte from the server. One thread at a time uses a link. */
#ifndef SERVER_JOURNAL_POSTGRES_LINK_H
#define SERVER_JOURNAL_POSTGRES_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/journal/libpq.h"
#include "server/journal/store.h"

enum { LINK_PATIENCE_MS = 8000, LINK_MAX_ARGS = 16 };

struct link_connection {
    const struct libpq *pq;
    PGconn *c;       /* NULL: there is no connection */
    bool has_warned; /* the server sent a warning since the last sync */
    char code[6];    /* the SQLSTATE of the last statement that failed; "": none, or no server */
    unsigned first_host; /* of the URL's: those before it did not answer */
};

/* An argument of a statement, borrowed until the statement was sent. */
struct link_arg {
    enum { LINK_NUMBER, LINK_TEXT, LINK_BYTES } type;
    uint64_t number;
    const void *bytes; /* NULL: SQL's NULL */
    size_t size_bytes;
};

struct link_arg link_number(uint64_t number);
struct link_arg link_text(const char *text);
struct link_arg link_bytes(const void *bytes, size_t size_bytes); /* never SQL's NULL */
struct link_arg link_id(const uint8_t *id); /* [JOURNAL_ID_BYTES] for SQL's uuid */

/* Connects to the database of a URL. If it names several hosts, each has a part of the time to
 * answer, and those that did not are asked behind the others from then on; a silent one behind one
 * that refuses has two parts before. UNAVAILABLE; PRECONDITION if the URL cannot be read. */
enum status link_open(struct link_connection *l, const char *url, struct error *err) MUST_CHECK;
void link_close(struct link_connection *l); /* nothing happens if there is no connection */

/* Queues a statement, whose results come in binary. false: the connection is broken. */
bool link_send(struct link_connection *l, const char *sql, const struct link_arg *args,
               size_t n) MUST_CHECK;
/* Asks for the results of what was sent, inside the transaction; and ends the transaction. */
bool link_ask(struct link_connection *l) MUST_CHECK;
bool link_sync(struct link_connection *l) MUST_CHECK;

/* The result of the next statement, to be cleared, or NULL if the statement failed: then code says
 * why, or is "" if the connection is broken. After a failure the transaction is undone, and the
 * results of the other statements up to the sync fail, too, with the code "skip". */
PGresult *link_take(struct link_connection *l, struct error *err);
/* Waits until the transaction is over. false: it is not known whether the transaction was
 * committed. */
bool link_take_sync(struct link_connection *l, struct error *err) MUST_CHECK;
/* Sends a statement alone and takes its result: NULL if it failed. */
PGresult *link_query(struct link_connection *l, const char *sql, const struct link_arg *args,
                     size_t n, struct error *err);
/* The same without a result. */
bool link_do(struct link_connection *l, const char *sql, const struct link_arg *args, size_t n,
             struct error *err) MUST_CHECK;
/* The same for a statement that ends other connections. That one is gone already (a warning) or
 * that it may not (an error) changes nothing. false: this connection is broken. */
bool link_end_others(struct link_connection *l, const char *sql, const struct link_arg *args,
                     size_t n, struct error *err) MUST_CHECK;

/* A column of a row, as a number, or a truth value, or bytes. Bytes end in a NUL that is not
 * counted. */
uint64_t link_column(const struct link_connection *l, const PGresult *r, int row, int column);
const void *link_column_bytes(const struct link_connection *l, const PGresult *r, int row,
                              int column, size_t *ret_len);

#define LINK_ARGS(...)                      \
    (const struct link_arg[]){__VA_ARGS__}, \
        sizeof((const struct link_arg[]){__VA_ARGS__}) / sizeof(struct link_arg)

#endif
