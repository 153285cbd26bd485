#include "server/access/pass.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <string.h>

#include "base/checksum.h"

enum { PASS_MAC_CHARS = 65 };

/* The text "v1/TO/FROM/PRINCIPAL" under the secret, in hexadecimal digits. */
static bool pass_sign(char out[PASS_MAC_CHARS], const uint8_t secret[PASS_SECRET_BYTES],
                      const char *text)
{
    uint8_t mac[EVP_MAX_MD_SIZE];
    unsigned len = 0;

    if (HMAC(EVP_sha256(), secret, PASS_SECRET_BYTES, (const uint8_t *)text, strlen(text), mac,
             &len) == NULL)
        return false;
    for (unsigned i = 0; i < len; i++)
        (void)snprintf(out + 2 * (size_t)i, 3, "%02x", mac[i]);
    return len * 2 + 1 == PASS_MAC_CHARS;
}

bool pass_write(char out[PASS_CHARS], const uint8_t secret[PASS_SECRET_BYTES], const char *from,
                const char *to, const char *principal)
{
    char text[PASS_CHARS], mac[PASS_MAC_CHARS];
    const int n = snprintf(text, sizeof(text), "v1/%s/%s/%s", to, from, principal);

    if (n < 0 || (size_t)n + PASS_MAC_CHARS >= PASS_CHARS || !pass_sign(mac, secret, text))
        return false;
    return snprintf(out, PASS_CHARS, "%s/%s", mac, text) > 0;
}

static enum status pass_refuse(struct error *err)
{
    return error_because(err, STATUS_UNAUTHENTICATED, REASON_KEY_INVALID, NULL,
                         PASS_HEADER " is for calls of other daemons, and is not valid");
}

enum status pass_read(char principal[PASS_PRINCIPAL_CHARS], const char *pass, size_t len,
                      const uint8_t secret[PASS_SECRET_BYTES], const char *self, struct error *err)
{
    char copy[PASS_CHARS], mac[PASS_MAC_CHARS];
    char *text, *to, *from, *name;

    if (len >= sizeof(copy) || len < PASS_MAC_CHARS || pass[PASS_MAC_CHARS - 1] != '/')
        return pass_refuse(err);
    memcpy(copy, pass, len);
    copy[len] = '\0';
    text = copy + PASS_MAC_CHARS;
    if (strlen(copy) != len || !pass_sign(mac, secret, text) ||
        !secret_is(mac, copy, PASS_MAC_CHARS - 1) || strncmp(text, "v1/", 3) != 0)
        return pass_refuse(err);
    to = text + 3;
    from = strchr(to, '/');
    name = from == NULL ? NULL : strchr(from + 1, '/');
    if (name == NULL || strlen(name + 1) >= PASS_PRINCIPAL_CHARS)
        return pass_refuse(err);
    *from = '\0';
    if (strcmp(to, self) != 0) {
        return error_because(err, STATUS_ABORTED, REASON_SERVER_DRAINING, NULL,
                             "the call was passed on to a parleyd that has ended");
    }
    (void)snprintf(principal, PASS_PRINCIPAL_CHARS, "%s", name + 1);
    return STATUS_OK;
}
