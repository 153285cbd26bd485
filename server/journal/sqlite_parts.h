/* What the files of the SQLite store share. */
#ifndef SERVER_JOURNAL_SQLITE_PARTS_H
#define SERVER_JOURNAL_SQLITE_PARTS_H

#include <sqlite3.h>

#include "server/journal/store.h"

enum statement {
    ST_BEGIN,
    ST_COMMIT,
    ST_ROLLBACK,
    ST_UNNAME,
    ST_OPEN,
    ST_EVENT,
    ST_NO_UPDATE,
    ST_WITHDRAW,
    ST_CLOSE,
    ST_CHILD,
    ST_CLOSED,
    ST_DELETE_EVENTS,
    ST_DELETE,
    ST_BY_ID,
    ST_BY_REQUEST,
    ST_BY_NAME,
    ST_PARENT,
    ST_READ,
    ST_BLOCK,
    ST_NO_BLOCKS_BEFORE,
    ST_NO_BLOCKS,
    ST_CHECKPOINT,
    ST_NO_CHECKPOINT,
    ST_CHECKPOINTS,
    ST_READ_BLOCK,
    ST_NO_BLOCKS_OF_KEPT,
    ST_KEEP,
    ST_FORGET,
    ST_KEPT,
    ST_ALL_KEPT,
    ST_BLOCKS_OF,
    ST_PAGE,
    ST_PAGE_OF_MODEL,
    ST_TOTAL,
    ST_TOTAL_OF_MODEL,
    ST_SWEEP,
    ST_LAST,
    ST_UPDATE,
    ST_BYTES,
    ST_KEY,
    ST_EXPIRED_KEY,
    ST_NO_KEYED_TURN,
    ST_NO_KEYED,
    ST_BY_KEY,
    N_STATEMENTS
};

struct sqlite_store {
    struct journal_store base;
    char *path;
    int lock;                               /* the file that other daemons find locked; -1: none */
    sqlite3 *db;                            /* NULL: to be opened before it is used */
    sqlite3_stmt *statements[N_STATEMENTS]; /* NULL: not prepared yet */
};

/* A parameter of a statement; all are borrowed until it is reset. */
struct sqlite_value {
    enum { VALUE_NUMBER, VALUE_TEXT, VALUE_BYTES } type;
    int64_t number;
    const void *bytes; /* NULL: SQL's NULL */
    size_t size_bytes;
};

struct sqlite_store *sqlite_store_of(struct journal_store *s);

/* UNAVAILABLE, with what SQLite says: "the journal cannot be written: …". */
enum status sqlite_failed(const struct sqlite_store *s, const char *what, struct error *err);
/* Before each use: opens the connection if there is none. */
enum status sqlite_connect(struct sqlite_store *s, struct error *err) MUST_CHECK;

struct sqlite_value sqlite_number_value(uint64_t number);
struct sqlite_value sqlite_text_value(const char *text);
struct sqlite_value sqlite_bytes_value(const void *bytes, size_t size_bytes);
struct sqlite_value sqlite_id_value(const uint8_t *id);

/* Binds the parameters and steps once: SQLITE_ROW, SQLITE_DONE, or an error's code. *out is to be
 * reset. */
int sqlite_first(struct sqlite_store *s, sqlite3_stmt **out, enum statement which,
                 const struct sqlite_value *values, int n);
/* For statements that give no row, or one that does not matter: true on success. */
bool sqlite_do(struct sqlite_store *s, enum statement which, const struct sqlite_value *values,
               int n);

#define DO(s, which, ...)                                     \
    sqlite_do(                                                \
        s, which, (const struct sqlite_value[]){__VA_ARGS__}, \
        (int)(sizeof((const struct sqlite_value[]){__VA_ARGS__}) / sizeof(struct sqlite_value)))

/* sqlite_backup.c: journal_store_type's backup. */
enum status sqlite_backup(const char *dir, const char *path, struct error *err) MUST_CHECK;

/* Of a database that this program writes. */
extern const int sqlite_application_id, sqlite_schema_version;

/* sqlite_look.c: journal_store_type's look. */
enum status sqlite_look(const char *dir, struct error *err) MUST_CHECK;

/* sqlite_kept.c: JOURNAL_KEEP and JOURNAL_FORGET; and DATA_LOSS where something kept is damaged. */
bool sqlite_put_kept(struct sqlite_store *s, const struct journal_record *r) MUST_CHECK;
enum status sqlite_check_kept(struct sqlite_store *s, struct error *err) MUST_CHECK;

/* Rows of JOURNAL_PAGE and JOURNAL_SWEEP. */
enum status sqlite_read_list(struct sqlite_store *s, const struct journal_query *q,
                             struct journal_found *out, struct error *err) MUST_CHECK;

#endif
