/* What the daemon asks of the journal in PostgreSQL besides struct journal_store_type. */
#ifndef SERVER_JOURNAL_POSTGRES_H
#define SERVER_JOURNAL_POSTGRES_H

#include "server/journal/store.h"

extern const struct journal_store_type journal_postgres;

/* Whether the value of --data is the URL of a database; and the back-end of what it names. */
bool postgres_is_url(const char *data);
const struct journal_store_type *journal_type_of(const char *data);

/* The URL without user, password and parameters, for logs. */
enum { POSTGRES_SHOWN_MAX = 192 };
const char *postgres_shown(const char *url, char out[POSTGRES_SHOWN_MAX]);

/* Makes the tables in the database of a URL, or converts those of an earlier version. Does nothing
 * if they are of this version. UNAVAILABLE, PRECONDITION. */
enum status postgres_init_data(const char *url, struct error *err) MUST_CHECK;

#endif
