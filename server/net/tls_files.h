/* The files of TLS: the daemon's certificates, its private key, and the certificates of those who
 * may sign clients' certificates. The files are read whole at a start and at each reload. */
#ifndef SERVER_NET_TLS_FILES_H
#define SERVER_NET_TLS_FILES_H

#include <openssl/ssl.h>
#include <stdint.h>

#include "base/checksum.h"
#include "base/status.h"
#include "server/net/tls_config.h"

enum tls_file { TLS_FILE_CERTIFICATE, TLS_FILE_KEY, TLS_FILE_CLIENT_CA, TLS_FILES };

/* What is known of the files that were read last. */
struct tls_files {
    uint8_t sums[TLS_FILES][SHA256_BYTES]; /* the files' hashes; zeros where no file is given */
    char until[24]; /* when the daemon's certificate expires: 2027-01-31T12:00:00Z */
};

/* Reads the files into context. INVALID names the file, what is wrong with it, and what helps.
 * Logs a warning for each certificate that has expired or is not valid yet: it is served all the
 * same, since the clock may be wrong. */
enum status tls_files_read(struct tls_files *out, SSL_CTX *context, const struct tls_config *config,
                           struct error *err) MUST_CHECK;

#endif
