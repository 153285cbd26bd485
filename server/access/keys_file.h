/* The file of keys: who may call, by the hashes of their keys. A line is
 *
 *     PRINCIPAL SHA256 [admin] [attach] [weight=N] [until=YYYY-MM-DD[THH:MM:SSZ]]
 *               [requests=N] [tokens=N] [in-flight=N] [conversations=N]
 *
 * where SHA256 is that of the key in hex; empty lines and what follows a # are skipped. The hash is
 * a fast one: keys are 32 random bytes, which cannot be guessed, so a slow hash would only make
 * each call slow. Any thread. */
#ifndef SERVER_ACCESS_KEYS_FILE_H
#define SERVER_ACCESS_KEYS_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/checksum.h"
#include "base/status.h"
#include "server/access/quota.h"

enum {
    PRINCIPAL_WEIGHT_MAX = 1000,
    PRINCIPAL_NAME_MAX = 64,
    KEYS_FILE_MAX_KEYS = 1024,
    KEYS_FILE_MAX_BYTES = 1 << 20
};

struct keys_line {
    char principal[PRINCIPAL_NAME_MAX + 1];
    uint8_t digest[SHA256_BYTES];
    unsigned roles; /* of enum access_role */
    unsigned
        weight; /* 1 … PRINCIPAL_WEIGHT_MAX; of several keys of a principal the greatest holds */
    struct quota_limits quota; /* likewise, of each */
    uint64_t until_s; /* the first second, since 1970, in which the key is invalid; 0: none */
};

/* Returns whether name is 1 to PRINCIPAL_NAME_MAX letters, digits, '.', '_', '@' and '-'. */
bool keys_file_is_name(const char *name);

/* Reads the lines of a text. The caller frees *out [*ret_n], which is NULL where there is no key.
 * INVALID names the line and never quotes it, because the line may hold a key. */
enum status keys_file_parse(struct keys_line **out, size_t *ret_n, const char *text, size_t len,
                            struct error *err) MUST_CHECK;

/* Reads the lines of a file. INVALID also where others than the file's owner may change the file,
 * or others than its owner and group may read it; NOT_FOUND where it cannot be read. Errors name
 * the path. */
enum status keys_file_read(struct keys_line **out, size_t *ret_n, const char *path,
                           struct error *err) MUST_CHECK;

#endif
