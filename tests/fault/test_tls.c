/* TLS's files when memory fails: a start is refused, a reload keeps what there was. */
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/net/tls.h"
#include "tests/fault/sweep.h"
#include "tests/unit/base/suite.h"

static char certificate[] = "/tmp/parley_tls_XXXXXX", key[] = "/tmp/parley_tls_XXXXXX";
static const struct tls_config files = {certificate, key, certificate};

static FILE *make_file(char *path)
{
    const int fd = mkstemp(path);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");

    ck_assert_ptr_nonnull(file);
    return file;
}

/* One that has signed itself, and its key. */
static void make_files(void)
{
    FILE *certificate_file = make_file(certificate), *key_file = make_file(key);
    EVP_PKEY *pair = EVP_EC_gen("P-256");
    X509 *x = X509_new();

    ck_assert(pair != NULL && x != NULL);
    ck_assert(X509_set_version(x, X509_VERSION_3) == 1 && X509_set_pubkey(x, pair) == 1);
    ck_assert(X509_gmtime_adj(X509_getm_notBefore(x), -60) != NULL);
    ck_assert(X509_gmtime_adj(X509_getm_notAfter(x), 3600) != NULL);
    ck_assert(X509_sign(x, pair, EVP_sha256()) > 0);
    ck_assert(PEM_write_X509(certificate_file, x) == 1);
    ck_assert(PEM_write_PrivateKey(key_file, pair, NULL, NULL, 0, NULL, NULL) == 1);
    ck_assert_int_eq(fclose(certificate_file) | fclose(key_file), 0);
    X509_free(x);
    EVP_PKEY_free(pair);
}

static enum status open_and_reload(void *arg)
{
    uv_loop_t *loop = arg;
    struct error err;
    struct tls *t;
    enum status rc = tls_open(&t, loop, &files, &err);

    if (rc != STATUS_OK)
        return rc;
    rc = tls_prepare(t, &err);
    if (rc == STATUS_OK)
        tls_commit(t);
    ck_assert_uint_eq(tls_changes(t), 0); /* the files are the same */
    ck_assert_uint_eq(strlen(tls_valid_until(t)), sizeof("2027-01-31T12:00:00Z") - 1);
    tls_close(t);
    (void)uv_run(loop, UV_RUN_DEFAULT); /* frees t */
    return rc;
}

START_TEST(memory_fails)
{
    uv_loop_t loop;

    make_files();
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    ck_assert_int_ge(sweep(open_and_reload, &loop), 8);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    (void)unlink(certificate);
    (void)unlink(key);
}
END_TEST

SUITE_MAIN("fault/tls", memory_fails)
