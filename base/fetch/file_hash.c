#include "base/fetch/file_hash.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"

enum { SHA256_CHARS = 64, SHA1_CHARS = 40, READ_BYTES = 1 << 20 };

bool file_hash_is_one(const char *etag)
{
    size_t len = strlen(etag);

    return (len == SHA256_CHARS || len == SHA1_CHARS) && strspn(etag, "0123456789abcdef") == len;
}

/* Git's hash has a head of its own. */
static bool hash_begin(EVP_MD_CTX *context, uint64_t size_bytes, const char *etag)
{
    char head[40];
    int len = snprintf(head, sizeof(head), "blob %llu", (unsigned long long)size_bytes);

    if (strlen(etag) == SHA256_CHARS)
        return EVP_DigestInit_ex(context, EVP_sha256(), NULL) == 1;
    return EVP_DigestInit_ex(context, EVP_sha1(), NULL) == 1 &&
           EVP_DigestUpdate(context, head, (size_t)len + 1) == 1;
}

static enum status hash_read(EVP_MD_CTX *context, int fd, uint64_t size_bytes, struct error *err)
{
    char *bytes = xalloc(READ_BYTES);
    enum status rc = STATUS_OK;

    for (uint64_t at = 0; at < size_bytes && rc == STATUS_OK;) {
        size_t wanted = size_bytes - at < READ_BYTES ? (size_t)(size_bytes - at) : READ_BYTES;
        ssize_t n = pread(fd, bytes, wanted, (off_t)at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            rc = error_set(err, STATUS_UNAVAILABLE, "cannot be read: %s", strerror(errno));
        else if (n == 0)
            rc = error_set(err, STATUS_DATA_LOSS, "ends at %llu of %llu bytes",
                           (unsigned long long)at, (unsigned long long)size_bytes);
        else if (EVP_DigestUpdate(context, bytes, (size_t)n) != 1)
            rc = error_set(err, STATUS_INTERNAL, "libcrypto cannot compute a hash");
        at += n > 0 ? (uint64_t)n : 0;
    }
    free(bytes);
    return rc;
}

enum status file_hash_check(int fd, uint64_t size_bytes, const char *etag, struct error *err)
{
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    unsigned char hash[EVP_MAX_MD_SIZE];
    char text[2 * EVP_MAX_MD_SIZE + 1] = "";
    unsigned len = 0;
    enum status rc;

    if (context == NULL || !hash_begin(context, size_bytes, etag))
        rc = error_set(err, STATUS_INTERNAL, "libcrypto cannot compute a hash");
    else
        rc = hash_read(context, fd, size_bytes, err);
    if (rc == STATUS_OK && EVP_DigestFinal_ex(context, hash, &len) != 1)
        rc = error_set(err, STATUS_INTERNAL, "libcrypto cannot compute a hash");
    for (unsigned i = 0; rc == STATUS_OK && i < len; i++)
        (void)snprintf(text + 2 * i, 3, "%02x", hash[i]);
    if (rc == STATUS_OK && strcmp(text, etag) != 0)
        rc = error_set(err, STATUS_DATA_LOSS, "its %s is %.16s…, not %.16s… as the hub says",
                       strlen(etag) == SHA256_CHARS ? "sha256" : "sha1", text, etag);
    EVP_MD_CTX_free(context);
    return rc;
}
