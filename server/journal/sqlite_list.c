/* Short lists of conversations. The cost of a row does not depend on the length of its
 * conversation: the last event has the number of turns. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "server/journal/sqlite_parts.h"

/* Of a page: what is beyond comes with the next one. */
#define LIST_MAX_BYTES ((size_t)2 << 20)

enum { LIST_ID, LIST_PARENT, LIST_OPENED, LIST_BODY, LIST_PLACE };

/* Adds a row with the body of a column. */
static enum status list_add(struct journal_row **out, struct journal_found *f, sqlite3_stmt *st,
                            int column, struct error *err)
{
    size_t size_bytes = (size_t)sqlite3_column_bytes(st, column);
    struct journal_row *row = try_alloc(1, sizeof(*row) + size_bytes);

    if (row == NULL)
        return error_no_memory(err, sizeof(*row) + size_bytes, "a list of conversations");
    row->size_bytes = size_bytes;
    if (size_bytes > 0)
        memcpy(row->body, sqlite3_column_blob(st, column), size_bytes);
    *out = row;
    f->size_bytes += sizeof(*row) + size_bytes;
    return STATUS_OK;
}

/* What the last event says. A turn that was accepted and not ended does not count. */
static enum status list_take_last(struct sqlite_store *s, struct journal_row *row,
                                  struct error *err)
{
    const struct sqlite_value id = sqlite_id_value(row->id);
    enum status rc = STATUS_OK;
    sqlite3_stmt *st;

    if (sqlite_first(s, &st, ST_LAST, &id, 1) != SQLITE_ROW) {
        rc = sqlite_failed(s, "read", err);
    } else {
        row->generation = (uint32_t)sqlite3_column_int64(st, 0);
        row->turns = (uint32_t)sqlite3_column_int64(st, 1);
        row->last_unix_ms = (uint64_t)sqlite3_column_int64(st, 3);
        row->last_seq = (uint64_t)sqlite3_column_int64(st, 4);
        if (sqlite3_column_int(st, 2) == JOURNAL_ACCEPT && row->turns > 0)
            row->turns--;
    }
    (void)sqlite3_reset(st);
    return rc;
}

/* The options may have been updated: row is then replaced. */
static enum status list_take_update(struct sqlite_store *s, struct journal_row **row,
                                    struct journal_found *f, struct error *err)
{
    const struct sqlite_value id = sqlite_id_value((*row)->id);
    struct journal_row *updated = NULL;
    enum status rc = STATUS_OK;
    sqlite3_stmt *st;
    int found = sqlite_first(s, &st, ST_UPDATE, &id, 1);

    if (found == SQLITE_ROW) {
        rc = list_add(&updated, f, st, 0, err);
        if (rc == STATUS_OK) {
            size_t size_bytes = updated->size_bytes;

            *updated = **row; /* all but what follows the struct */
            updated->size_bytes = size_bytes;
            free(*row);
            *row = updated;
        }
    } else if (found != SQLITE_DONE) {
        rc = sqlite_failed(s, "read", err);
    }
    (void)sqlite3_reset(st);
    return rc;
}

static enum status list_take(struct sqlite_store *s, sqlite3_stmt *st, struct journal_found *f,
                             struct error *err)
{
    struct journal_row *row = NULL;
    enum status rc = list_add(&row, f, st, LIST_BODY, err);

    if (rc != STATUS_OK)
        return rc;
    if (sqlite3_column_bytes(st, LIST_ID) == JOURNAL_ID_BYTES)
        memcpy(row->id, sqlite3_column_blob(st, LIST_ID), JOURNAL_ID_BYTES);
    row->has_parent = sqlite3_column_bytes(st, LIST_PARENT) == JOURNAL_ID_BYTES;
    if (row->has_parent)
        memcpy(row->parent, sqlite3_column_blob(st, LIST_PARENT), JOURNAL_ID_BYTES);
    row->opened_unix_ms = (uint64_t)sqlite3_column_int64(st, LIST_OPENED);
    row->place = (uint64_t)sqlite3_column_int64(st, LIST_PLACE);
    rc = list_take_last(s, row, err);
    if (rc == STATUS_OK)
        rc = list_take_update(s, &row, f, err);
    if (rc == STATUS_OK)
        list_push(&f->rows, &row->link);
    else
        free(row);
    return rc;
}

static enum status list_count(struct sqlite_store *s, const struct journal_query *q,
                              struct journal_found *out, struct error *err)
{
    const struct sqlite_value values[] = {sqlite_text_value(q->principal),
                                          sqlite_text_value(q->text)};
    enum status rc = STATUS_OK;
    sqlite3_stmt *st;

    if (sqlite_first(s, &st, q->text == NULL ? ST_TOTAL : ST_TOTAL_OF_MODEL, values,
                     q->text == NULL ? 1 : 2) != SQLITE_ROW)
        rc = sqlite_failed(s, "read", err);
    else
        out->n_total = (uint64_t)sqlite3_column_int64(st, 0);
    (void)sqlite3_reset(st);
    return rc;
}

static enum status list_measure(struct sqlite_store *s, struct journal_found *out,
                                struct error *err)
{
    enum status rc = STATUS_OK;
    sqlite3_stmt *st;

    if (sqlite_first(s, &st, ST_BYTES, NULL, 0) != SQLITE_ROW)
        rc = sqlite_failed(s, "read", err);
    else
        out->store_bytes = (uint64_t)sqlite3_column_int64(st, 0);
    (void)sqlite3_reset(st);
    return rc;
}

enum status sqlite_read_list(struct sqlite_store *s, const struct journal_query *q,
                             struct journal_found *out, struct error *err)
{
    const struct sqlite_value page[] = {
        sqlite_text_value(q->principal), sqlite_number_value(q->place),
        sqlite_number_value(q->max_rows), sqlite_text_value(q->text)};
    const bool is_page = q->by == JOURNAL_PAGE;
    enum statement which = !is_page ? ST_SWEEP : q->text == NULL ? ST_PAGE : ST_PAGE_OF_MODEL;
    enum status rc = q->wants_total ? list_count(s, q, out, err) : STATUS_OK;
    uint32_t n_rows = 0;
    sqlite3_stmt *st;
    int step;

    if (rc == STATUS_OK && !is_page)
        rc = list_measure(s, out, err);
    if (rc != STATUS_OK)
        return rc;
    step = sqlite_first(s, &st, which, is_page ? page : page + 1,
                        !is_page          ? 2
                        : q->text == NULL ? 3
                                          : 4);
    while (step == SQLITE_ROW && rc == STATUS_OK && out->size_bytes < LIST_MAX_BYTES) {
        rc = list_take(s, st, out, err);
        n_rows++;
        if (rc == STATUS_OK)
            step = sqlite3_step(st);
    }
    out->has_more = step == SQLITE_ROW || n_rows == q->max_rows;
    if (rc == STATUS_OK && step != SQLITE_DONE && step != SQLITE_ROW)
        rc = sqlite_failed(s, "read", err);
    (void)sqlite3_reset(st);
    return rc;
}
