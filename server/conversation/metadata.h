/* The pairs of texts that a client gives to a conversation. The daemon keeps and returns the pairs,
 * and reads none of them. Any thread. */
#ifndef SERVER_CONVERSATION_METADATA_H
#define SERVER_CONVERSATION_METADATA_H

#include <stddef.h>

#include "base/status.h"

enum { METADATA_MAX_PAIRS = 64, METADATA_MAX_BYTES = 16 << 10 };

struct pair {
    const char *key, *value;
};

struct metadata {
    size_t n_pairs;
    struct pair pairs[]; /* [n_pairs] and their texts */
};

/* Copies the pairs; *out is NULL where n is 0. The caller frees *out by free(). INVALID for more
 * pairs or bytes than the bounds above; EXHAUSTED. */
enum status metadata_open(struct metadata **out, const struct pair *pairs, size_t n,
                          struct error *err) MUST_CHECK;

#endif
