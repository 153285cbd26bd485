/* The chain of a conversation shows that the conversation's records are the records that were
 * written, all of them and in their order. Each record has the hash of its content and the value of
 * the chain:
 *
 *     content = SHA-256(id[16] kind[4] generation[4] turn[4] unix_ms[8] n[4] principal[n] body)
 *     chain   = SHA-256(chain of the record before[32] content[32])
 *
 * The numbers are in little endian in every back-end. n is 0 except in the record that opens the
 * conversation. In front of that record stands, for a fork, the record that was the parent's last
 * one at the time of the fork, and otherwise 32 zeros. A withdrawal or a newer update takes away
 * the body of a record; the record's hash stays, and the withdrawal or update is a record of its
 * own. So no record between two others can be changed, left out or moved without a trace. A reader
 * who has kept a value of the chain elsewhere also sees whether the newest records are missing. The
 * functions may be called on any thread, and one thread at a time uses a struct journal_chain. */
#ifndef SERVER_JOURNAL_CHAIN_H
#define SERVER_JOURNAL_CHAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/checksum.h"
#include "base/status.h"
#include "server/journal/store.h"

/* Computes the values of chains. */
struct journal_chain {
    struct sha256 *sha;
};

enum status chain_open(struct journal_chain *out, struct error *err) MUST_CHECK;
void chain_close(struct journal_chain *c); /* c may be zeroed memory */

/* Computes the hash of a record's content. The principal counts only in a record that opens a
 * conversation. */
void chain_content(struct journal_chain *c, const struct journal_record *r,
                   uint8_t out[SHA256_BYTES]);
/* Replaces the value of the record before, in at, by the value of this record. */
void chain_add(struct journal_chain *c, uint8_t at[SHA256_BYTES],
               const uint8_t content[SHA256_BYTES]);

/* A check of one conversation, whose records are read in order. Zeroed but for at before the first
 * record. */
struct chain_check {
    uint8_t at[SHA256_BYTES]; /* the value of the record before */
    bool has_record;          /* a record of this conversation was read */
    /* Records without a body promise a later record: */
    bool has_replaced;  /* an update has no body, and the newer update has not come yet */
    uint64_t withdrawn; /* the seq of an acceptance whose withdrawal has not come yet; 0: none */
};

/* A record as it is stored. gone is 0 for a record that is part of the conversation, the record's
 * own seq if the body was taken away, and, of a withdrawal, the seq of the withdrawn record. */
struct chain_link {
    struct journal_record record;
    uint64_t seq, gone;
    const void *content, *chain; /* [n_content_bytes], [n_chain_bytes] */
    size_t n_content_bytes, n_chain_bytes;
};

/* Returns what is wrong with the record. NULL: it is the record that was written behind the record
 * before. */
const char *chain_check(struct journal_chain *c, struct chain_check *at,
                        const struct chain_link *link);
/* Comes after the last record of a conversation. Returns what is wrong; NULL: nothing is. */
const char *chain_check_end(const struct chain_check *at);
/* Appends the record to what was found, with its place in the chain, unless it is no part of the
 * conversation any more and the query does not want the chain. EXHAUSTED, as journal_found_take. */
enum status chain_take(struct journal_found *found, const struct journal_query *q,
                       const struct chain_link *link, size_t max_bytes,
                       struct error *err) MUST_CHECK;
/* DATA_LOSS, with the record and what is wrong with it. */
enum status chain_refuse(const struct chain_link *link, const char *why, struct error *err);

#endif
