/* Checksums of bytes that were sent: crc32c of a piece, sha256 of the whole; and how a secret, such
 * as a hash, is compared. */
#ifndef BASE_CHECKSUM_H
#define BASE_CHECKSUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Continues a CRC-32C (Castagnoli) with data: crc is the result so far, 0 at the start. Uses the
 * processor's instruction where it has one. */
uint32_t crc32c(uint32_t crc, const void *data, size_t size_bytes);
/* The same without the instruction. */
uint32_t crc32c_by_table(uint32_t crc, const void *data, size_t size_bytes);

enum { SHA256_BYTES = 32 };

struct sha256; /* bytes come piece by piece; one thread at a time */

/* STATUS_EXHAUSTED without memory. */
enum status sha256_open(struct sha256 **out, struct error *err) MUST_CHECK;
void sha256_add(struct sha256 *s, const void *data, size_t size_bytes);
/* The hash of all that was added; s is then as freshly opened. */
void sha256_take(struct sha256 *s, uint8_t out[SHA256_BYTES]);
void sha256_close(struct sha256 *s);

/* Whether the bytes are those of the secret. Takes as long for all of one size, so that the time
 * tells nothing about the secret. */
bool secret_is(const void *secret, const void *bytes, size_t size_bytes);

#endif
