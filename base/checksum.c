#include "base/checksum.h"

#include <assert.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <string.h>

#include "base/alloc.h"

/* Four bits at a time: the remainders of a polynomial with the nibble's bits, reflected. */
static const uint32_t nibbles[16] = {
    0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
    0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9, 0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75,
};

uint32_t crc32c_by_table(uint32_t crc, const void *data, size_t size_bytes)
{
    const uint8_t *bytes = data;

    crc = ~crc;
    for (size_t i = 0; i < size_bytes; i++) {
        crc ^= bytes[i];
        crc = crc >> 4 ^ nibbles[crc & 15];
        crc = crc >> 4 ^ nibbles[crc & 15];
    }
    return ~crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t by_instruction(uint32_t crc, const void *data,
                                                                 size_t size_bytes)
{
    const uint8_t *bytes = data;
    uint64_t wide = (uint32_t)~crc;

    for (; size_bytes >= 8; bytes += 8, size_bytes -= 8) {
        uint64_t word;

        memcpy(&word, bytes, 8);
        wide = __builtin_ia32_crc32di(wide, word);
    }
    for (; size_bytes > 0; bytes++, size_bytes--)
        wide = __builtin_ia32_crc32qi((uint32_t)wide, *bytes);
    return ~(uint32_t)wide;
}
#endif

uint32_t crc32c(uint32_t crc, const void *data, size_t size_bytes)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2"))
        return by_instruction(crc, data, size_bytes);
#endif
    return crc32c_by_table(crc, data, size_bytes);
}

/* libcrypto's context under our name; its functions fail only on misuse. */
static EVP_MD_CTX *context_of(struct sha256 *s)
{
    return (EVP_MD_CTX *)s;
}

enum status sha256_open(struct sha256 **out, struct error *err)
{
    EVP_MD_CTX *context = fault_now() ? NULL : EVP_MD_CTX_new();

    if (context == NULL || EVP_DigestInit_ex(context, EVP_sha256(), NULL) != 1) {
        EVP_MD_CTX_free(context);
        return error_no_memory(err, 0, "a sha256");
    }
    *out = (struct sha256 *)context;
    return STATUS_OK;
}

void sha256_add(struct sha256 *s, const void *data, size_t size_bytes)
{
    int ok = EVP_DigestUpdate(context_of(s), data, size_bytes);

    assert(ok == 1);
    (void)ok;
}

void sha256_take(struct sha256 *s, uint8_t out[SHA256_BYTES])
{
    unsigned len = 0;
    int ok = EVP_DigestFinal_ex(context_of(s), out, &len) == 1 &&
             EVP_DigestInit_ex(context_of(s), NULL, NULL) == 1;

    assert(ok && len == SHA256_BYTES);
    (void)ok;
}

void sha256_close(struct sha256 *s)
{
    EVP_MD_CTX_free(context_of(s));
}

bool secret_is(const void *secret, const void *bytes, size_t size_bytes)
{
    return CRYPTO_memcmp(secret, bytes, size_bytes) == 0;
}
