/* The records of conversations. Each is put behind the last one of its conversation: where the
 * chain has come to is remembered for those that were written to lately, so that a record costs no
 * look-up, and forgotten when a transaction fails. SQLite's conversations have owner '' and epoch 1
 * for ever, and the lock of the directory keeps others out; a store that several daemons share
 * checks both, in the conversation's row, with each record.
 *
 * A reading collects the places of all records first, of the first of the parents first. Since a
 * fork's chain begins at its parent's, one value goes through all of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "server/journal/sqlite_parts.h"

enum { MAX_ANCESTORS = 1 << 16, ROW_BYTES = 64 /* besides the body, of a slice */ };

enum { READ_ID, READ_KIND, READ_GENERATION, READ_TURN, READ_MS, READ_BODY, READ_GONE, READ_HASH };

/* --- heads --- */

static struct sqlite_head *head_slot(struct sqlite_store *s, const uint8_t *id)
{
    return &s->heads[(id[0] | id[1] << 8) % SQLITE_HEADS]; /* ids are random */
}

void sqlite_forget_head(struct sqlite_store *s, const uint8_t *id)
{
    head_slot(s, id)->is_known = false;
}

void sqlite_forget_heads(struct sqlite_store *s)
{
    memset(s->heads, 0, SQLITE_HEADS * sizeof(s->heads[0]));
}

bool sqlite_head(struct sqlite_store *s, const uint8_t *id, int64_t before,
                 uint8_t out[SHA256_BYTES])
{
    const struct sqlite_value values[] = {sqlite_id_value(id),
                                          sqlite_number_value((uint64_t)before)};
    sqlite3_stmt *st;
    int rc = sqlite_first(s, &st, ST_HEAD, values, 2);

    memset(out, 0, SHA256_BYTES);
    if (rc == SQLITE_ROW && sqlite3_column_bytes(st, 0) == SHA256_BYTES)
        memcpy(out, sqlite3_column_blob(st, 0), SHA256_BYTES);
    (void)sqlite3_reset(st);
    return rc == SQLITE_ROW || rc == SQLITE_DONE;
}

/* Whether there is such a conversation: -1: a failure. */
static int events_has(struct sqlite_store *s, const uint8_t *id)
{
    const struct sqlite_value value = sqlite_id_value(id);
    sqlite3_stmt *st;
    int rc = sqlite_first(s, &st, ST_OPENED, &value, 1);

    (void)sqlite3_reset(st);
    return rc == SQLITE_ROW ? 1 : rc == SQLITE_DONE ? 0 : -1;
}

/* What the record is to follow. 0: its conversation is not there any more; -1: a failure. */
static int events_head(struct sqlite_store *s, const struct journal_record *r,
                       uint8_t out[SHA256_BYTES])
{
    const bool opens = r->kind == JOURNAL_OPEN;
    const uint8_t *id = opens ? r->parent : r->conversation;
    const struct sqlite_head *head;
    int has;

    memset(out, 0, SHA256_BYTES);
    if (id == NULL)
        return 1;
    head = head_slot(s, id);
    if (head->is_known && memcmp(head->id, id, JOURNAL_ID_BYTES) == 0) {
        memcpy(out, head->chain, SHA256_BYTES);
        return 1;
    }
    has = opens ? 1 : events_has(s, id);
    return has != 1 ? has : sqlite_head(s, id, INT64_MAX, out) ? 1 : -1;
}

/* --- writing --- */

static bool events_put(struct sqlite_store *s, const struct journal_record *r, uint64_t gone)
{
    uint8_t content[SHA256_BYTES], chain[SHA256_BYTES];
    struct sqlite_head *head = head_slot(s, r->conversation);
    int has = events_head(s, r, chain);

    if (has != 1)
        return has == 0;
    chain_content(&s->chain, r, content);
    chain_add(&s->chain, chain, content);
    if (!DO(s, ST_EVENT, sqlite_id_value(r->conversation), sqlite_number_value(r->generation),
            sqlite_number_value(r->turn), sqlite_number_value((uint64_t)r->kind),
            sqlite_number_value(r->unix_ms), sqlite_bytes_value(r->body, r->size_bytes),
            sqlite_number_value(gone), sqlite_bytes_value(content, sizeof(content)),
            sqlite_bytes_value(chain, sizeof(chain))))
        return false;
    head->is_known = true;
    memcpy(head->id, r->conversation, JOURNAL_ID_BYTES);
    memcpy(head->chain, chain, SHA256_BYTES);
    return true;
}

bool sqlite_put_event(struct sqlite_store *s, const struct journal_record *r)
{
    return events_put(s, r, 0);
}

bool sqlite_put_update(struct sqlite_store *s, const struct journal_record *r)
{
    return DO(s, ST_REPLACED, sqlite_id_value(r->conversation)) && events_put(s, r, 0);
}

bool sqlite_put_withdraw(struct sqlite_store *s, const struct journal_record *r)
{
    const struct sqlite_value place[] = {sqlite_id_value(r->conversation),
                                         sqlite_number_value(r->generation),
                                         sqlite_number_value(r->turn)};
    struct journal_record withdraw = *r;
    uint64_t gone = 0;
    sqlite3_stmt *st;
    int step = sqlite_first(s, &st, ST_WITHDRAWN, place, 3);

    if (step == SQLITE_ROW) {
        gone = (uint64_t)sqlite3_column_int64(st, 0);
        step = sqlite3_step(st);
    }
    (void)sqlite3_reset(st);
    withdraw.size_bytes = 0;
    return step == SQLITE_DONE && (gone == 0 || events_put(s, &withdraw, gone)) &&
           sqlite_do(s, ST_NO_KEYED_TURN, place, 3);
}

/* --- reading --- */

struct sqlite_reading {
    struct chain_check check;
    size_t n, at;
    bool is_sliced; /* more may have come meanwhile */
    int64_t seqs[]; /* [n] those before at are read */
};

bool sqlite_read_event(struct sqlite_store *s, sqlite3_stmt **out, int64_t seq,
                       struct journal_record *r)
{
    const struct sqlite_value value = sqlite_number_value((uint64_t)seq);

    if (sqlite_first(s, out, ST_READ, &value, 1) != SQLITE_ROW) {
        (void)sqlite3_reset(*out);
        return false;
    }
    if (sqlite3_column_bytes(*out, READ_ID) == JOURNAL_ID_BYTES)
        memcpy(r->conversation, sqlite3_column_blob(*out, READ_ID), JOURNAL_ID_BYTES);
    r->kind = (enum journal_kind)sqlite3_column_int(*out, READ_KIND);
    r->generation = (uint32_t)sqlite3_column_int64(*out, READ_GENERATION);
    r->turn = (uint32_t)sqlite3_column_int64(*out, READ_TURN);
    r->unix_ms = (uint64_t)sqlite3_column_int64(*out, READ_MS);
    r->body = sqlite3_column_blob(*out, READ_BODY);
    r->size_bytes = (size_t)sqlite3_column_bytes(*out, READ_BODY);
    return true;
}

/* Adds the places of a conversation's records between two, in order. */
static enum status reading_add(struct sqlite_store *s, struct sqlite_reading **r, const uint8_t *id,
                               int64_t after, int64_t before, struct error *err)
{
    const struct sqlite_value values[] = {sqlite_id_value(id),
                                          sqlite_number_value((uint64_t)before)};
    struct sqlite_reading *grown;
    sqlite3_stmt *st;
    int step;

    for (step = sqlite_first(s, &st, ST_SEQS, values, 2); step == SQLITE_ROW;
         step = sqlite3_step(st)) {
        const int64_t seq = sqlite3_column_int64(st, 0);
        const size_t n = (*r)->n;

        if (seq <= after)
            continue;
        if ((n & (n - 1)) == 0) { /* it is full at powers of two */
            grown = try_realloc(*r, 1, sizeof(**r) + 2 * (n + 1) * sizeof(grown->seqs[0]));
            if (grown == NULL) {
                (void)sqlite3_reset(st);
                return error_no_memory(err, n * sizeof(grown->seqs[0]), "a conversation's records");
            }
            *r = grown;
        }
        (*r)->seqs[(*r)->n++] = seq;
    }
    (void)sqlite3_reset(st);
    return step == SQLITE_DONE ? STATUS_OK : sqlite_failed(s, "read", err);
}

struct events_past {
    uint8_t id[JOURNAL_ID_BYTES];
    int64_t until_seq;
};

/* The conversation and its ancestors, itself first. */
static enum status events_ancestry(struct sqlite_store *s, const uint8_t *of,
                                   struct events_past **out, size_t *ret_n, struct error *err)
{
    struct events_past *past = NULL, *grown;
    size_t n = 0, cap = 0;
    enum status rc = STATUS_OK;
    uint8_t id[JOURNAL_ID_BYTES];
    int64_t until_seq = INT64_MAX;
    bool has_id = true;

    memcpy(id, of, sizeof(id));
    while (rc == STATUS_OK && has_id) {
        const struct sqlite_value value = sqlite_id_value(id);
        sqlite3_stmt *st;
        int found;

        if (n == cap) {
            cap = cap == 0 ? 8 : 2 * cap;
            grown = n < MAX_ANCESTORS ? try_realloc(past, cap, sizeof(past[0])) : NULL;
            if (grown == NULL) {
                rc = error_no_memory(err, cap * sizeof(past[0]), "a conversation's parents");
                break;
            }
            past = grown;
        }
        memcpy(past[n].id, id, sizeof(id));
        past[n++].until_seq = until_seq;
        found = sqlite_first(s, &st, ST_PARENT, &value, 1);
        has_id = found == SQLITE_ROW && sqlite3_column_bytes(st, 0) == JOURNAL_ID_BYTES;
        if (has_id) {
            memcpy(id, sqlite3_column_blob(st, 0), sizeof(id));
            until_seq = sqlite3_column_int64(st, 1);
        }
        if (found != SQLITE_ROW)
            rc = found == SQLITE_DONE
                     ? error_set(err, STATUS_DATA_LOSS, "the journal has lost a parent's turns")
                     : sqlite_failed(s, "read", err);
        (void)sqlite3_reset(st);
    }
    if (rc != STATUS_OK) {
        free(past);
        return rc;
    }
    *out = past;
    *ret_n = n;
    return STATUS_OK;
}

static enum status reading_begin(struct sqlite_store *s, struct journal_found *out,
                                 struct error *err)
{
    struct sqlite_reading *reading;
    struct events_past *past = NULL;
    size_t n = 0;
    enum status rc;

    reading = try_alloc(1, sizeof(*reading) + sizeof(reading->seqs[0]));
    if (reading == NULL)
        return error_no_memory(err, sizeof(*reading), "a conversation's records");
    rc = events_ancestry(s, out->id, &past, &n, err);
    while (rc == STATUS_OK && n-- > 0)
        rc = reading_add(s, &reading, past[n].id, 0, past[n].until_seq, err);
    free(past);
    out->reading = reading;
    return rc;
}

/* Whom the conversation belongs to that a record opens; the statement is to be reset. */
static const char *events_principal(struct sqlite_store *s, sqlite3_stmt **st,
                                    const struct journal_record *r)
{
    const struct sqlite_value value = sqlite_id_value(r->conversation);

    return sqlite_first(s, st, ST_PARENT, &value, 1) == SQLITE_ROW
               ? (const char *)sqlite3_column_text(*st, 2)
               : NULL;
}

/* Checks the record of a row against the chain. Its body is borrowed until the statement is reset.
 */
static enum status events_check(struct sqlite_store *s, sqlite3_stmt *st, int64_t seq,
                                struct chain_check *check, struct chain_link *link,
                                struct error *err)
{
    sqlite3_stmt *owner = NULL;
    const char *why;

    link->seq = (uint64_t)seq;
    link->gone = (uint64_t)sqlite3_column_int64(st, READ_GONE);
    link->content = sqlite3_column_blob(st, READ_HASH);
    link->n_content_bytes = (size_t)sqlite3_column_bytes(st, READ_HASH);
    link->chain = sqlite3_column_blob(st, READ_HASH + 1);
    link->n_chain_bytes = (size_t)sqlite3_column_bytes(st, READ_HASH + 1);
    if (link->record.kind == JOURNAL_OPEN || link->record.kind == JOURNAL_ROOM)
        link->record.principal = events_principal(s, &owner, &link->record);
    why = chain_check(&s->chain, check, link);
    if (owner != NULL)
        (void)sqlite3_reset(owner);
    return why == NULL ? STATUS_OK : chain_refuse(link, why, err);
}

/* A record that is not there any more was deleted since the reading began, with its conversation.
 */
static enum status reading_step(struct sqlite_store *s, const struct journal_query *q,
                                size_t max_bytes, struct journal_found *out, size_t *n_bytes,
                                struct error *err)
{
    struct sqlite_reading *r = out->reading;
    struct chain_link link = {.seq = 0};
    sqlite3_stmt *st;
    enum status rc;

    if (!sqlite_read_event(s, &st, r->seqs[r->at], &link.record)) {
        if ((sqlite3_errcode(s->db) & 0xff) != SQLITE_DONE && sqlite3_errcode(s->db) != SQLITE_OK)
            return sqlite_failed(s, "read", err);
        journal_found_deinit(out);
        return STATUS_OK;
    }
    rc = events_check(s, st, r->seqs[r->at], &r->check, &link, err);
    if (rc == STATUS_OK)
        rc = chain_take(out, q, &link, max_bytes, err);
    *n_bytes += link.record.size_bytes + ROW_BYTES;
    (void)sqlite3_reset(st);
    r->at++;
    return rc;
}

/* After the last record. */
static enum status reading_end(struct journal_found *out, struct error *err)
{
    const struct sqlite_reading *r = out->reading;
    const char *why = chain_check_end(&r->check);
    struct chain_link last = {.seq = r->n == 0 ? 0 : (uint64_t)r->seqs[r->n - 1]};

    memcpy(last.record.conversation, out->id, JOURNAL_ID_BYTES);
    if (why != NULL)
        return chain_refuse(&last, why, err);
    free(out->reading);
    out->reading = NULL;
    return STATUS_OK;
}

enum status sqlite_read_past(struct sqlite_store *s, const struct journal_query *q,
                             size_t max_bytes, struct journal_found *out, struct error *err)
{
    enum status rc = out->reading == NULL ? reading_begin(s, out, err) : STATUS_OK;
    size_t n_bytes = 0;

    while (rc == STATUS_OK && out->is_found) {
        struct sqlite_reading *r = out->reading;

        if (r->at == r->n && r->is_sliced) {
            r->is_sliced = false;
            rc = reading_add(s, &r, out->id, r->n == 0 ? 0 : r->seqs[r->n - 1], INT64_MAX, err);
            out->reading = r;
        } else if (r->at == r->n) {
            return reading_end(out, err);
        } else if (n_bytes >= JOURNAL_SLICE_BYTES) {
            r->is_sliced = true;
            return STATUS_OK;
        } else {
            rc = reading_step(s, q, max_bytes, out, &n_bytes, err);
        }
    }
    return rc;
}

/* --- checking --- */

static enum status check_chain(struct sqlite_store *s, const struct journal_found *of,
                               int64_t opened_seq, struct error *err)
{
    const struct sqlite_value values[] = {sqlite_id_value(of->id), sqlite_number_value(INT64_MAX)};
    struct chain_check check = {.has_record = false};
    struct chain_link link = {.seq = 0};
    enum status rc = STATUS_OK;
    const char *why;
    sqlite3_stmt *seqs, *st;
    int step;

    if (of->has_parent && !sqlite_head(s, of->parent, opened_seq, check.at))
        return sqlite_failed(s, "read", err);
    memcpy(link.record.conversation, of->id, JOURNAL_ID_BYTES);
    for (step = sqlite_first(s, &seqs, ST_SEQS, values, 2); step == SQLITE_ROW && rc == STATUS_OK;
         step = rc == STATUS_OK ? sqlite3_step(seqs) : step) {
        link = (struct chain_link){.seq = 0};
        if (!sqlite_read_event(s, &st, sqlite3_column_int64(seqs, 0), &link.record)) {
            rc = sqlite_failed(s, "read", err);
            break;
        }
        rc = events_check(s, st, sqlite3_column_int64(seqs, 0), &check, &link, err);
        (void)sqlite3_reset(st);
    }
    if (rc == STATUS_OK && step != SQLITE_DONE)
        rc = sqlite_failed(s, "read", err);
    (void)sqlite3_reset(seqs);
    why = rc == STATUS_OK ? chain_check_end(&check) : NULL;
    return why == NULL ? rc : chain_refuse(&link, why, err);
}

enum status sqlite_check_chains(struct sqlite_store *s, struct error *err)
{
    enum status rc = STATUS_OK;
    sqlite3_stmt *st = NULL;
    int step = SQLITE_ERROR;

    if (sqlite3_prepare_v2(s->db, "SELECT id, parent, seq FROM conversation ORDER BY seq", -1, &st,
                           NULL) == SQLITE_OK)
        step = sqlite3_step(st);
    for (; step == SQLITE_ROW && rc == STATUS_OK;
         step = rc == STATUS_OK ? sqlite3_step(st) : step) {
        struct journal_found of = {0};

        if (sqlite3_column_bytes(st, 0) == JOURNAL_ID_BYTES)
            memcpy(of.id, sqlite3_column_blob(st, 0), JOURNAL_ID_BYTES);
        of.has_parent = sqlite3_column_bytes(st, 1) == JOURNAL_ID_BYTES;
        if (of.has_parent)
            memcpy(of.parent, sqlite3_column_blob(st, 1), JOURNAL_ID_BYTES);
        rc = check_chain(s, &of, sqlite3_column_int64(st, 2), err);
    }
    if (rc == STATUS_OK && step != SQLITE_DONE)
        rc = sqlite_failed(s, "read", err);
    (void)sqlite3_finalize(st); /* repeats the error of the step */
    return rc;
}
