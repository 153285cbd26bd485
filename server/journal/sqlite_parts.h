/* What the files of the SQLite store share. */
#ifndef SERVER_JOURNAL_SQLITE_PARTS_H
#define SERVER_JOURNAL_SQLITE_PARTS_H

#include <sqlite3.h>

#include "server/journal/chain.h"
#include "server/journal/store.h"

enum { SQLITE_RETRY_MS = 1000 }; /* when a client may come again after a failure */

enum statement {
    ST_BEGIN,
    ST_COMMIT,
    ST_ROLLBACK,
    ST_UNNAME,
    ST_OPEN,
    ST_EVENT,
    ST_REPLACED,
    ST_WITHDRAWN,
    ST_SEQS,
    ST_READ,
    ST_HEAD,
    ST_OPENED,
    ST_CHAIN,
    ST_LISTED,
    ST_UNLISTED,
    ST_UNCOUNTED,
    ST_CLOSE,
    ST_CHILD,
    ST_CLOSED,
    ST_DELETE_EVENTS,
    ST_DELETE,
    ST_BY_ID,
    ST_BY_REQUEST,
    ST_BY_NAME,
    ST_PARENT,
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
    ST_PROBE,
    ST_KEY,
    ST_EXPIRED_KEY,
    ST_NO_KEYED_TURN,
    ST_NO_KEYED,
    ST_BY_KEY,
    N_STATEMENTS
};

/* Where the chain of a conversation has come to. */
struct sqlite_head {
    uint8_t id[JOURNAL_ID_BYTES];
    bool is_known;
    uint8_t chain[SHA256_BYTES];
};

enum { SQLITE_HEADS = 1 << 13 };

enum { FILE_DATABASE, FILE_LOG, FILE_INDEX, FILE_LOCK, SQLITE_FILES };

struct sqlite_file {
    char *path;
    bool is_noted; /* what it was when the connection was opened */
    uint64_t device, inode;
};

struct sqlite_store {
    struct journal_store base;
    struct sqlite_file files[SQLITE_FILES];
    const char *path;                       /* of the database */
    bool is_astray;                         /* what is open has not its name any more */
    bool has_secret;                        /* base.secret was read */
    int64_t n_log;                          /* pages in the log */
    int64_t fold_at, most_log;              /* pages: when it is folded in, and refused */
    int lock;                               /* the file that other daemons find locked; -1: none */
    sqlite3 *db;                            /* NULL: to be opened before it is used */
    sqlite3_stmt *statements[N_STATEMENTS]; /* NULL: not prepared yet */
    struct journal_chain chain;
    struct sqlite_head *heads; /* [SQLITE_HEADS] of conversations that were written to, by id */
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

/* sqlite_files.c. note: those that are there now are those that are open. look: the first one that
 * is another one, or missing. */
enum file_fate { FILE_SAME, FILE_MISSING, FILE_OTHER };
void sqlite_files_init(struct sqlite_store *s, const char *dir);
void sqlite_files_deinit(struct sqlite_store *s);
void sqlite_files_note(struct sqlite_store *s);
enum file_fate sqlite_files_look(const struct sqlite_store *s, int *ret_which);
/* Whether the log that is open can still be written to the database: nobody has begun another one.
 */
bool sqlite_files_can_be_folded(const struct sqlite_store *s);
/* PRECONDITION where there is a log without its database: SQLite would delete it. */
enum status sqlite_files_check_log(const char *dir, struct error *err) MUST_CHECK;

/* sqlite_schema.c: brings the tables to this version; PRECONDITION where they are of a newer one.
 */
enum status sqlite_check_schema(struct sqlite_store *s, struct error *err) MUST_CHECK;
enum status sqlite_run(struct sqlite_store *s, const char *sql, struct error *err) MUST_CHECK;
/* The number that a statement gives: -1 if it failed. */
int64_t sqlite_number(struct sqlite_store *s, const char *sql);

/* sqlite_events.c: the records of conversations, with their chains. What it puts belongs to the
 * transaction that is open: false if it failed. A record of a conversation that was closed and is
 * deleted is left out. */
bool sqlite_put_event(struct sqlite_store *s, const struct journal_record *r) MUST_CHECK;
bool sqlite_put_update(struct sqlite_store *s, const struct journal_record *r) MUST_CHECK;
bool sqlite_put_withdraw(struct sqlite_store *s, const struct journal_record *r) MUST_CHECK;
/* The value of the last record of a conversation before a place: zeros if there is none. */
bool sqlite_head(struct sqlite_store *s, const uint8_t *id, int64_t before,
                 uint8_t out[SHA256_BYTES]) MUST_CHECK;
/* What was put since the last commit is not there, or it is not known. */
void sqlite_forget_heads(struct sqlite_store *s);
void sqlite_forget_head(struct sqlite_store *s, const uint8_t *id);
/* The record at a place, in r what is not known of it yet, borrowed until *out is reset. */
bool sqlite_read_event(struct sqlite_store *s, sqlite3_stmt **out, int64_t seq,
                       struct journal_record *r) MUST_CHECK;
/* Goes on with out, which has is_found: see journal_store_type's read. */
enum status sqlite_read_past(struct sqlite_store *s, const struct journal_query *q,
                             size_t max_bytes, struct journal_found *out,
                             struct error *err) MUST_CHECK;
/* Whether the records of all conversations are those that were written. */
enum status sqlite_check_chains(struct sqlite_store *s, struct error *err) MUST_CHECK;

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
