/* Things that are kept as a whole: JOURNAL_KEEP and JOURNAL_FORGET, and whether all of them are
 * there. */
#include "server/journal/sqlite_parts.h"

bool sqlite_put_kept(struct sqlite_store *s, const struct journal_record *r)
{
    const struct sqlite_value of[] = {
        sqlite_number_value(r->generation), sqlite_text_value(r->principal),
        sqlite_text_value(r->name),         sqlite_id_value(r->conversation),
        sqlite_number_value(r->turn),       sqlite_bytes_value(r->body, r->size_bytes)};

    if (!sqlite_do(s, ST_NO_BLOCKS_OF_KEPT, of, 4))
        return false;
    if (r->kind == JOURNAL_KEEP)
        return sqlite_do(s, ST_KEEP, of, 6);
    return sqlite_do(s, ST_NO_BLOCKS, &of[3], 1) && sqlite_do(s, ST_FORGET, of, 3);
}

/* The blocks of a thing that is kept: all are there, and as they were written. */
static enum status sqlite_check_blocks(struct sqlite_store *s, const void *id, int n_blocks,
                                       const char *name, struct error *err)
{
    const struct sqlite_value values[] = {sqlite_id_value(id),
                                          sqlite_number_value((uint64_t)n_blocks)};
    enum status rc = STATUS_OK;
    sqlite3_stmt *st;
    int step, n = 0;

    for (step = sqlite_first(s, &st, ST_BLOCKS_OF, values, 2); step == SQLITE_ROW;
         step = sqlite3_step(st)) {
        if (sqlite3_column_int(st, 0) != n ||
            !journal_sum_is_right(sqlite3_column_blob(st, 1), (size_t)sqlite3_column_bytes(st, 1)))
            break;
        n++;
    }
    if (step != SQLITE_ROW && step != SQLITE_DONE)
        rc = sqlite_failed(s, "read", err);
    else if (n != n_blocks)
        rc = error_set(err, STATUS_DATA_LOSS, "%s: part %d of %d of '%.64s' is damaged or missing",
                       s->path, n, n_blocks, name);
    (void)sqlite3_reset(st);
    return rc;
}

enum status sqlite_check_kept(struct sqlite_store *s, struct error *err)
{
    enum status rc = STATUS_OK;
    sqlite3_stmt *st;
    int step;

    for (step = sqlite_first(s, &st, ST_ALL_KEPT, NULL, 0); step == SQLITE_ROW && rc == STATUS_OK;
         step = rc == STATUS_OK ? sqlite3_step(st) : step) {
        const char *name = (const char *)sqlite3_column_text(st, 1);

        if (sqlite3_column_bytes(st, 2) != JOURNAL_ID_BYTES ||
            !journal_sum_is_right(sqlite3_column_blob(st, 4), (size_t)sqlite3_column_bytes(st, 4)))
            rc = error_set(err, STATUS_DATA_LOSS, "%s: what describes '%.64s' is damaged", s->path,
                           name);
        else
            rc = sqlite_check_blocks(s, sqlite3_column_blob(st, 2), sqlite3_column_int(st, 3), name,
                                     err);
    }
    if (rc == STATUS_OK && step != SQLITE_DONE)
        rc = sqlite_failed(s, "read", err);
    (void)sqlite3_reset(st);
    return rc;
}
