/* Reads the three files, checks each certificate and that the key fits, and puts them into a
 * context. Each file is read once, so that what was checked is what is served. */
#include "server/net/tls_files.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/log.h"

enum { FILE_MAX_BYTES = 1 << 20, READ_BYTES = 16 << 10, CHAIN_MAX = 100 };

/* --- bytes --- */

static enum status tls_check_mode(const char *path, struct error *err)
{
    struct stat st;

    if (stat(path, &st) != 0)
        return error_set(err, STATUS_INVALID, "%s: %s", path, strerror(errno));
    if ((st.st_mode & S_IRWXO) != 0)
        return error_set(err, STATUS_INVALID,
                         "%s has the mode %03o: others must not read it ('chmod 640')", path,
                         (unsigned)(st.st_mode & 0777));
    return STATUS_OK;
}

static enum status tls_read_all(struct buf *out, int fd, const char *path, struct error *err)
{
    char piece[READ_BYTES];
    ssize_t n;

    while ((n = read(fd, piece, sizeof(piece))) > 0) {
        if (buf_append(out, piece, (size_t)n) == STATUS_OK)
            continue;
        return out->is_full ? error_set(err, STATUS_INVALID, "%s has more than %d bytes", path,
                                        FILE_MAX_BYTES)
                            : error_no_memory(err, out->len, path);
    }
    if (n < 0)
        return error_set(err, STATUS_INVALID, "%s: %s", path, strerror(errno));
    if (out->len == 0)
        return error_set(err, STATUS_INVALID, "%s is empty", path);
    return STATUS_OK;
}

static enum status tls_read_file(struct buf *out, const char *path, struct error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    enum status rc;

    if (fd < 0 && errno == EACCES)
        return error_set(err, STATUS_INVALID, "%s: user %u may not read it", path,
                         (unsigned)geteuid());
    if (fd < 0)
        return error_set(err, STATUS_INVALID, "%s: %s", path, strerror(errno));
    rc = tls_read_all(out, fd, path, err);
    (void)close(fd); /* only read */
    return rc;
}

static bool buf_has(const struct buf *b, const char *text)
{
    return memmem(b->data, b->len, text, strlen(text)) != NULL;
}

/* Whether it has what a file of this kind has, in PEM. */
static enum status tls_check_pem(const struct buf *b, const char *path, bool is_key,
                                 struct error *err)
{
    const char *what = is_key ? "private key" : "certificate";

    if (!buf_has(b, "-----BEGIN ") && b->data[0] == 0x30)
        return error_set(
            err, STATUS_INVALID,
            "%s is in DER, not in PEM: 'openssl %s -inform DER -in FILE -out FILE.pem' "
            "converts it",
            path, is_key ? "pkey" : "x509");
    if (!buf_has(b, is_key ? "PRIVATE KEY-----" : "CERTIFICATE-----"))
        return error_set(err, STATUS_INVALID, "%s has no %s in PEM ('-----BEGIN %s-----')", path,
                         what, is_key ? "PRIVATE KEY" : "CERTIFICATE");
    if (is_key && (buf_has(b, "ENCRYPTED PRIVATE KEY-----") || buf_has(b, "4,ENCRYPTED")))
        return error_set(err, STATUS_INVALID,
                         "%s is encrypted, and parleyd takes no passphrase: 'openssl pkey -in FILE "
                         "-out FILE.plain' decrypts it",
                         path);
    return STATUS_OK;
}

/* --- reasons --- */

/* What OpenSSL finds wrong with what it was given. */
static enum status tls_refused(struct error *err, const char *path)
{
    static const struct {
        int reason;
        const char *says;
    } known[] = {
        {SSL_R_EE_KEY_TOO_SMALL, "its key is too short: take RSA with 2048 bits or more, or P-256"},
        {SSL_R_CA_KEY_TOO_SMALL,
         "a key of its chain is too short: take RSA with 2048 bits or more, or P-256"},
        {SSL_R_CA_MD_TOO_WEAK, "it is signed with MD5 or SHA-1: have it signed with SHA-256"},
        {SSL_R_UNKNOWN_CERTIFICATE_TYPE, "its kind of key is not one of TLS: take RSA or P-256"},
    };
    const unsigned long code = ERR_peek_last_error();
    const char *why = ERR_reason_error_string(code);

    ERR_clear_error();
    if (ERR_GET_REASON(code) == ERR_R_MALLOC_FAILURE)
        return error_no_memory(err, 0, path);
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (ERR_GET_LIB(code) == ERR_LIB_SSL && ERR_GET_REASON(code) == known[i].reason)
            return error_set(err, STATUS_INVALID, "%s: %s", path, known[i].says);
    return error_set(err, STATUS_INVALID, "%s: %s", path, why == NULL ? "cannot be used" : why);
}

static void tls_format_time(char out[24], const ASN1_TIME *at)
{
    struct tm tm;

    out[0] = '\0';
    if (ASN1_TIME_to_tm(at, &tm) == 1)
        (void)strftime(out, 24, "%Y-%m-%dT%H:%M:%SZ", &tm); /* it fits, or is empty */
}

static void warn_of_time(const char *path, X509 *certificate)
{
    const bool is_over = X509_cmp_current_time(X509_get0_notAfter(certificate)) < 0;
    char subject[256], quoted[512], name[512], at[24];

    if (!is_over && X509_cmp_current_time(X509_get0_notBefore(certificate)) < 0)
        return;
    if (X509_NAME_oneline(X509_get_subject_name(certificate), subject, sizeof(subject)) == NULL)
        subject[0] = '\0';
    tls_format_time(at,
                    is_over ? X509_get0_notAfter(certificate) : X509_get0_notBefore(certificate));
    log_warn("certificate", "file=%s subject=%s %s=%s", log_quote(name, sizeof(name), path),
             log_quote(quoted, sizeof(quoted), subject), is_over ? "expired" : "not_valid_before",
             at);
}

/* --- certificates --- */

/* The next certificate of a file; *out is NULL behind the last one. n: how many came before. */
static enum status tls_next_certificate(X509 **out, BIO *in, const char *path, size_t n,
                                        struct error *err)
{
    unsigned long code;

    if (n == CHAIN_MAX)
        return error_set(err, STATUS_INVALID, "%s has more than %d certificates", path, CHAIN_MAX);
    *out = PEM_read_bio_X509_AUX(in, NULL, NULL, NULL);
    if (*out != NULL) {
        warn_of_time(path, *out);
        return STATUS_OK;
    }
    code = ERR_peek_last_error();
    ERR_clear_error();
    if (ERR_GET_LIB(code) == ERR_LIB_PEM && ERR_GET_REASON(code) == PEM_R_NO_START_LINE && n > 0)
        return STATUS_OK;
    return error_set(err, STATUS_INVALID, "%s: its certificate %zu is damaged", path, n + 1);
}

/* Ours first, then those that signed it. */
static enum status take_chain(struct tls_files *f, SSL_CTX *context, BIO *in, const char *path,
                              struct error *err)
{
    X509 *certificate;
    enum status rc;
    bool is_taken;

    for (size_t n = 0;; n++) {
        rc = tls_next_certificate(&certificate, in, path, n, err);
        if (rc != STATUS_OK || certificate == NULL)
            return rc;
        if (n == 0)
            tls_format_time(f->until, X509_get0_notAfter(certificate));
        is_taken = n == 0 ? SSL_CTX_use_certificate(context, certificate) == 1
                          : SSL_CTX_add1_chain_cert(context, certificate) == 1;
        X509_free(certificate);
        if (!is_taken)
            return tls_refused(err, path);
    }
}

static enum status take_client_ca(struct tls_files *f, SSL_CTX *context, BIO *in, const char *path,
                                  struct error *err)
{
    X509 *certificate;
    enum status rc;
    bool is_taken;

    for (size_t n = 0;; n++) {
        rc = tls_next_certificate(&certificate, in, path, n, err);
        if (rc != STATUS_OK || certificate == NULL)
            break;
        is_taken = X509_STORE_add_cert(SSL_CTX_get_cert_store(context), certificate) == 1 &&
                   SSL_CTX_add_client_CA(context, certificate) == 1;
        X509_free(certificate);
        if (!is_taken)
            return tls_refused(err, path);
    }
    if (rc == STATUS_OK)
        SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    return rc;
}

/* --- the key --- */

/* Asks nobody: OpenSSL's own would wait at the terminal. */
static int no_passphrase(char *out, int size, int is_write, void *arg)
{
    return -1;
}

/* Which certificate of the chain it belongs to, from 1; 0: none. */
static size_t place_in_chain(SSL_CTX *context, EVP_PKEY *key)
{
    STACK_OF(X509) *chain = NULL;

    if (SSL_CTX_get0_chain_certs(context, &chain) == 1)
        for (int i = 0; i < sk_X509_num(chain); i++)
            if (X509_check_private_key(sk_X509_value(chain, i), key) == 1)
                return (size_t)i + 2;
    ERR_clear_error();
    return 0;
}

static enum status tls_use_key(SSL_CTX *context, EVP_PKEY *key, const struct tls_config *config,
                               struct error *err)
{
    size_t place;

    if (X509_check_private_key(SSL_CTX_get0_certificate(context), key) == 1)
        return SSL_CTX_use_PrivateKey(context, key) == 1 ? STATUS_OK
                                                         : tls_refused(err, config->private_key);
    ERR_clear_error();
    place = place_in_chain(context, key);
    if (place > 0)
        return error_set(err, STATUS_INVALID,
                         "%s: its first certificate is not that of the key %s, number %zu is: put "
                         "it first",
                         config->certificate, config->private_key, place);
    return error_set(err, STATUS_INVALID, "%s is not the key of the certificate %s",
                     config->private_key, config->certificate);
}

static enum status take_key(SSL_CTX *context, BIO *in, const struct tls_config *config,
                            struct error *err)
{
    EVP_PKEY *key = PEM_read_bio_PrivateKey(in, NULL, no_passphrase, NULL);
    enum status rc;

    ERR_clear_error();
    if (key == NULL)
        return error_set(err, STATUS_INVALID, "%s: its private key is damaged",
                         config->private_key);
    rc = tls_use_key(context, key, config, err);
    EVP_PKEY_free(key);
    return rc;
}

/* --- */

static enum status tls_files_take(struct tls_files *f, enum tls_file which, SSL_CTX *context,
                                  const struct buf *bytes, const char *path,
                                  const struct tls_config *config, struct error *err)
{
    BIO *in = BIO_new_mem_buf(bytes->data, (int)bytes->len);
    enum status rc;

    if (in == NULL)
        return error_no_memory(err, bytes->len, path);
    ERR_clear_error();
    if (which == TLS_FILE_KEY)
        rc = take_key(context, in, config, err);
    else if (which == TLS_FILE_CERTIFICATE)
        rc = take_chain(f, context, in, path, err);
    else
        rc = take_client_ca(f, context, in, path, err);
    (void)BIO_free(in); /* it has no file */
    return rc;
}

static enum status tls_files_add(struct tls_files *f, enum tls_file which, SSL_CTX *context,
                                 const char *path, const struct tls_config *config,
                                 struct sha256 *sum, struct error *err)
{
    struct buf bytes;
    enum status rc;

    if (path == NULL)
        return STATUS_OK;
    if (which == TLS_FILE_KEY && tls_check_mode(path, err) != STATUS_OK)
        return err->status;
    buf_init(&bytes, FILE_MAX_BYTES);
    rc = tls_read_file(&bytes, path, err);
    if (rc == STATUS_OK)
        rc = tls_check_pem(&bytes, path, which == TLS_FILE_KEY, err);
    if (rc == STATUS_OK)
        rc = tls_files_take(f, which, context, &bytes, path, config, err);
    if (rc == STATUS_OK) {
        sha256_add(sum, bytes.data, bytes.len);
        sha256_take(sum, f->sums[which]);
    }
    if (bytes.data != NULL)
        OPENSSL_cleanse(bytes.data, bytes.len);
    buf_deinit(&bytes);
    return rc;
}

enum status tls_files_read(struct tls_files *out, SSL_CTX *context, const struct tls_config *config,
                           struct error *err)
{
    const char *const paths[] = {config->certificate, config->private_key, config->client_ca};
    struct tls_files f = {.until = ""};
    struct sha256 *sum;
    enum status rc = sha256_open(&sum, err);

    if (rc != STATUS_OK)
        return rc;
    for (int i = 0; i < TLS_FILES && rc == STATUS_OK; i++)
        rc = tls_files_add(&f, (enum tls_file)i, context, paths[i], config, sum, err);
    sha256_close(sum);
    if (rc == STATUS_OK)
        *out = f;
    return rc;
}
