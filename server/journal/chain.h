/* The chain of a conversation: what shows that its records are those that were written, all of
 * them, in their order. Each record has the hash of its content, and the chain's value:
 *
 *     content = SHA-256(id[16] kind[4] generation[4] turn[4] unix_ms[8] n[4] principal[n] body)
 *     chain   = SHA-256(chain of the record before[32] content[32])
 *
 * with numbers in little endian, as every back-end has them. n is 0 but for the record that opens
 * the conversation. Before that record stands, of a fork, the record that was its parent's last
 * one then; else 32 zeros. What takes a record's body away (a withdrawal, a newer update) keeps its
 * hash, and adds a record of its own. So nothing between two records can be altered, left out or
 * moved unseen; that the newest records are missing shows only beside a value that was kept
 * elsewhere. Any thread; a struct journal_chain is used by one at a time. */
#ifndef SERVER_JOURNAL_CHAIN_H
#define SERVER_JOURNAL_CHAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/checksum.h"
#include "base/status.h"
#include "server/journal/store.h"

/* Takes values one behind the other. */
struct journal_chain {
    struct sha256 *sha;
};

enum status chain_open(struct journal_chain *out, struct error *err) MUST_CHECK;
void chain_close(struct journal_chain *c); /* zeroed is fine */

/* The hash of a record's content, of which principal counts if it opens a conversation. */
void chain_content(struct journal_chain *c, const struct journal_record *r,
                   uint8_t out[SHA256_BYTES]);
/* at: the value of the record before, in and this one's out. */
void chain_add(struct journal_chain *c, uint8_t at[SHA256_BYTES],
               const uint8_t content[SHA256_BYTES]);

/* What is read of one conversation, in order; begins zeroed, but for at. */
struct chain_check {
    uint8_t at[SHA256_BYTES]; /* the value of the record before */
    bool has_record;          /* of this conversation */
    /* Without their bodies, and what is to follow them has not come yet. */
    bool has_replaced;  /* an update: a newer one */
    uint64_t withdrawn; /* an acceptance, by its seq: its withdrawal; 0: none */
};

/* A record as it is stored. gone 0: it is part of the conversation; else its own seq: its body was
 * taken away; else, of a withdrawal, the seq of what it withdraws. */
struct chain_link {
    struct journal_record record;
    uint64_t seq, gone;
    const void *content, *chain; /* [n_content_bytes], [n_chain_bytes] */
    size_t n_content_bytes, n_chain_bytes;
};

/* NULL: it is the record that was written, behind the one before; else what is wrong with it. */
const char *chain_check(struct journal_chain *c, struct chain_check *at,
                        const struct chain_link *link);
/* After the last record of a conversation. */
const char *chain_check_end(const struct chain_check *at);

#endif
