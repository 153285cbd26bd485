#include "compute/model_hash.h"

#include <assert.h>
#include <openssl/evp.h>

enum status model_hash(char out[MODEL_HASH_SIZE], const void *bytes, size_t n, struct error *err)
{
    static const char digits[] = "0123456789abcdef";
    unsigned char hash[EVP_MAX_MD_SIZE];
    unsigned len = 0;

    if (EVP_Digest(bytes, n, hash, &len, EVP_sha256(), NULL) != 1)
        return error_set(err, STATUS_INTERNAL, "libcrypto cannot compute a sha256");
    assert(len * 2 == MODEL_HASH_SIZE - 1);
    for (unsigned i = 0; i < len; i++) {
        out[2 * i] = digits[hash[i] >> 4];
        out[2 * i + 1] = digits[hash[i] & 15];
    }
    out[MODEL_HASH_SIZE - 1] = '\0';
    return STATUS_OK;
}
