/* A journal's store in memory, as a disk behaves: a transaction succeeds, fails, or fails and is
 * there all the same, and a crash keeps what was told and perhaps the one that was being written.
 * What it has is the log of all records; reading follows the store's contract alone. */
#ifndef TESTS_SIM_FAKE_DISK_H
#define TESTS_SIM_FAKE_DISK_H

#include "server/journal/store.h"

enum { DISK_MAX_RECORDS = 4096 };

struct disk_record {
    struct journal_record r; /* its body is owned, its parent in parent */
    uint8_t parent[JOURNAL_ID_BYTES];
    size_t job; /* the transaction it came with */
};

struct fake_disk {
    struct journal_store base;
    struct disk_record records[DISK_MAX_RECORDS];
    size_t n;
    size_t n_jobs; /* transactions since the start */
    uint64_t seed; /* of which of them fail */
    /* Transactions from this one on do not fail. The journal's thread reads it; relaxed: what it is
     * about begins later, by a mutex. */
    _Atomic size_t whole_from;
    bool is_twice; /* a place was written twice: the daemon is at fault; read when nobody uses it */
    uint64_t n_failed, n_unknown;
};

extern const struct journal_store_type fake_disk_type;
extern struct fake_disk fake_disk; /* the one that is opened */

/* Nobody uses it: the power is gone, and what came after that transaction with it. */
void fake_disk_crash(size_t last_job);
void fake_disk_empty(uint64_t seed);

#endif
