/* A store of its own for each test: SQLite in a folder, or PostgreSQL in the database of
 * PARLEY_TEST_POSTGRES. */
#ifndef TESTS_UNIT_SERVER_JOURNAL_KEPT_STORE_H
#define TESTS_UNIT_SERVER_JOURNAL_KEPT_STORE_H

#include <stdbool.h>

#include "server/journal/store.h"

enum { KEPT_MAX_BYTES = 1 << 20 };

extern char kept_dir[32];
extern const uint8_t kept_ids[5][JOURNAL_ID_BYTES];

/* Which of the two the program tests; SQLite, if it is not called. And where the store is. */
void kept_choose(bool is_postgres);
const char *kept_place(void);
void kept_setup(void);
void kept_teardown(void);
void kept_empty(void); /* deletes its files; the store is closed */

/* Runs statements on its database, beside no store. */
void kept_sql(const char *sql);
/* Takes its tables back to those of version 5. */
extern const char kept_back_to_5[];

struct journal_store *opened(void);
/* Of the conversation with that number. */
struct journal_record record(enum journal_kind kind, int of, uint32_t turn, const char *body);
enum status commits(struct journal_store *s, const struct journal_record *r,
                    struct error *err) MUST_CHECK;
void commit(struct journal_store *s, struct journal_record r);
/* What is stored, as "KIND.GENERATION.TURN:BODY …"; "" if it is not there. */
const char *stored_by(struct journal_store *s, const struct journal_query *q);
const char *stored(struct journal_store *s, int of);

/* Commits an acceptance of the principal anna, under the key "key". */
void commit_keyed(struct journal_store *s, int of, uint32_t turn, uint32_t part,
                  const char *key_body);
/* A record of the parameter set "set" of anna; and all checkpoints. */
struct journal_record of_params(enum journal_kind kind, int checkpoint, const char *body);
/* A part of a parameter set's checkpoint. */
struct journal_record part_of(int checkpoint, uint32_t number, const char *body);
const char *checkpoints(struct journal_store *s);
/* The rows of a list, as "ID:TURNS.GENERATION.LAST …"; "…" ends one that goes on, and its total
 * stands in brackets. */
const char *listed(struct journal_store *s, struct journal_query *q);

#endif
