/* A digest of 128 bits: it shows whether a repeated request is the same, without keeping the
 * request. SipHash-2-4 under a random key, with 128 bits of output, so only digests of the same
 * process can be compared. */
#ifndef BASE_DIGEST_H
#define BASE_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/siphash.h"

struct env;

struct digest {
    uint64_t words[2];
};

struct digest_key {
    uint64_t words[2];
};

/* What is digested comes piece by piece. */
struct digest_writer {
    struct sip sip;
};

void digest_key_init(struct digest_key *key, const struct env *env);

void digest_start(struct digest_writer *w, const struct digest_key *key);
/* The length is part of the digest: pieces that differ in their borders differ. */
void digest_bytes(struct digest_writer *w, const void *bytes, size_t len);
void digest_text(struct digest_writer *w, const char *text);
void digest_number(struct digest_writer *w, uint64_t number);
struct digest digest_end(struct digest_writer *w); /* w is used up */

/* Adds one to a set's digest, which is the same in any order; that of the empty set is zero. */
void digest_join(struct digest *set, struct digest one);
bool digest_is_equal(const struct digest *a, const struct digest *b);

#endif
