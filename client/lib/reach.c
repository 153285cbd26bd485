/* Explains why a server is not reached. gRPC tells it in a long text with one useful part, which a
 * table finds and turns into a sentence. */
#include "client/lib/reach.h"

#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/base64.h"
#include "base/number.h"
#include "base/utf8.h"

enum {
    PARLEYD_PORT = 8001,
    WORDS_BYTES = 160, /* shown of what gRPC says, where the cause is not known */
};

/* --- addresses --- */

/* A host of len bytes, and its port as text; NULL: the address names no port. */
struct address_parts {
    const char *host, *port;
    size_t len;
    bool is_ipv6;
};

/* Returns whether an address is a path or a list of addresses, which gRPC reads by itself. */
static bool has_scheme(const char *address)
{
    static const char *const schemes[] = {"unix:", "unix-abstract:", "dns:", "ipv4:", "ipv6:"};

    for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++)
        if (strncmp(address, schemes[i], strlen(schemes[i])) == 0)
            return true;
    return false;
}

static struct address_parts split_address(const char *address)
{
    const char *colon = strchr(address, ':');
    const size_t len = strcspn(address, "]");

    if (*address == '[' && strcmp(address + len, "]") == 0)
        return (struct address_parts){.host = address + 1, .len = len - 1, .is_ipv6 = true};
    if (*address == '[' && strncmp(address + len, "]:", 2) == 0)
        return (struct address_parts){
            .host = address + 1, .len = len - 1, .port = address + len + 2, .is_ipv6 = true};
    if (colon != NULL && strchr(colon + 1, ':') != NULL)
        return (struct address_parts){.host = address, .len = strlen(address), .is_ipv6 = true};
    return (struct address_parts){
        .host = address, .len = strcspn(address, ":"), .port = colon == NULL ? NULL : colon + 1};
}

static bool is_host(const struct address_parts *p)
{
    bool is_zone = false; /* of an IPv6 address, behind "%" */

    for (size_t i = 0; i < p->len; i++) {
        unsigned char c = (unsigned char)p->host[i];

        if (p->is_ipv6 && !is_zone)
            is_zone = c == '%' && i > 0;
        else if (!isalnum(c) && strchr("._-", c) == NULL)
            return false;
        if (p->is_ipv6 && !is_zone && !isxdigit(c) && c != ':' && c != '.')
            return false;
    }
    return p->len > 0;
}

bool reach_address(char out[REACH_ADDRESS_SIZE], const char *address, struct parley_error *err)
{
    const struct address_parts place = split_address(address);
    uint64_t port = PARLEYD_PORT;
    const char *why = NULL;

    if (strlen(address) + sizeof("[]:65535") > REACH_ADDRESS_SIZE)
        why = "it is too long";
    else if (has_scheme(address) && strchr(address, ':')[1] == '\0')
        why = "give HOST:PORT, [IPV6]:PORT or unix:/PATH";
    else if (has_scheme(address))
        (void)snprintf(out, REACH_ADDRESS_SIZE, "%s", address); /* it fits */
    else if (strstr(address, "://") != NULL)
        why = "it is a URL; give HOST:PORT, with the port of gRPC";
    else if (!is_host(&place))
        why = "give HOST:PORT, [IPV6]:PORT or unix:/PATH";
    else if (place.port != NULL && (!number_read(&port, place.port, UINT16_MAX) || port == 0))
        why = "its port must be a number from 1 to 65535";
    else
        (void)snprintf(out, REACH_ADDRESS_SIZE, "%s%.*s%s:%u", place.is_ipv6 ? "[" : "",
                       (int)place.len, place.host, place.is_ipv6 ? "]" : "",
                       (unsigned)port); /* it fits */
    if (why == NULL)
        return true;
    (void)snprintf(out, REACH_ADDRESS_SIZE, "%s", address); /* one that is too long is cut */
    *err = (struct parley_error){.status = PARLEY_INVALID_ARGUMENT, .reason = "ADDRESS_MALFORMED"};
    (void)snprintf(err->text, sizeof(err->text), "'%.100s' is not an address: %s", address, why);
    return false;
}

bool reach_is_key(const char *key)
{
    for (; *key != '\0'; key++)
        if (*key < '!' || *key > '~')
            return false;
    return true;
}

/* The end of a line that begins a block, or NULL: "-----BEGIN EC PRIVATE KEY-----", too, is one of
 * "PRIVATE KEY". */
static const char *pem_begin(const char *text, const char *block)
{
    const size_t len = strlen(block);

    while ((text = strstr(text, "-----BEGIN ")) != NULL) {
        const char *end = strstr(text += sizeof("-----BEGIN ") - 1, "-----");

        if (end != NULL && (size_t)(end - text) >= len && strncmp(end - len, block, len) == 0)
            return end + sizeof("-----") - 1;
    }
    return NULL;
}

enum { DER_SEQUENCE = 0x30, DER_LONG = 0x80, DER_HEAD_DIGITS = 12 };

/* Returns whether n_digits of base64, of which head has the first, can be a certificate's: a
 * sequence, as long as it says, that begins with another one. */
static bool is_certificate(const char *head, size_t n_digits)
{
    const size_t n = n_digits < DER_HEAD_DIGITS ? n_digits : DER_HEAD_DIGITS;
    uint8_t der[DER_HEAD_DIGITS] = {0};
    size_t len, at = 2, told;

    if (!base64_decode(der, &len, head, n) || der[0] != DER_SEQUENCE)
        return false;
    told = der[1];
    if (der[1] > DER_LONG)
        for (told = 0; at < 2 + (size_t)(der[1] - DER_LONG) && at < len; at++)
            told = told << 8 | der[at];
    return at < len && der[at] == DER_SEQUENCE && at + told <= n_digits / 4 * 3;
}

const char *reach_pem_fault(const char *text, const char *block)
{
    const bool is_key = strcmp(block, "CERTIFICATE") != 0;
    const char *at = pem_begin(text, block);
    char head[DER_HEAD_DIGITS] = "";
    size_t n_digits = 0;

    if (at == NULL)
        return is_key ? "has no private key in PEM: no line '-----BEGIN PRIVATE KEY-----'"
                      : "has no certificate in PEM: no line '-----BEGIN CERTIFICATE-----'";
    for (; isalnum((unsigned char)*at) || (*at != '\0' && strchr("+/= \t\r\n", *at) != NULL);
         at++) {
        if (isspace((unsigned char)*at))
            continue;
        if (n_digits < DER_HEAD_DIGITS)
            head[n_digits] = *at;
        n_digits++;
    }
    if (is_key)
        return NULL; /* an encrypted one has headers */
    if (strncmp(at, "-----END ", sizeof("-----END ") - 1) == 0 && is_certificate(head, n_digits))
        return NULL;
    return "has a certificate in PEM that is cut off or damaged";
}

/* --- causes --- */

struct cause {
    const char *reason;
    const char *before, *after; /* the sentence, around the address */
    bool is_final;
};

static const struct cause nothing_listens = {"NOTHING_LISTENS", "nothing listens at ",
                                             ": is parleyd running there?", false};
static const struct cause host_unknown = {"HOST_UNKNOWN", "the host of ",
                                          " is not known: check its name", false};
static const struct cause unreachable = {"UNREACHABLE", "no way leads to ",
                                         ": check the address and the network", false};
static const struct cause nothing_behind = {"NOTHING_BEHIND", "the proxy at ",
                                            " has no server behind it: is parleyd running there?",
                                            false};
static const struct cause not_grpc = {
    "NOT_GRPC", "a web server answers at ",
    ", it is not the port of gRPC: parleyd prints that port when it starts, it is 8001 by default",
    true};
/* A server that stops may end a connection as these two do. */
static const struct cause tls_wanted = {
    "TLS_WANTED", "the server at ",
    " closes the connection: it probably wants TLS; connect with TLS and the file of the "
    "authority that signed its certificate",
    false};
static const struct cause tls_not_wanted = {"TLS_NOT_WANTED", "the server at ",
                                            " does not use TLS: connect without TLS", true};
static const struct cause authority_unknown = {
    "AUTHORITY_UNKNOWN", "the certificate of ",
    " is signed by an authority that is not known here: name the authority's file", true};
static const struct cause authorities_missing = {
    "AUTHORITIES_MISSING", "the certificate of ",
    " cannot be checked, this system has no certificates of authorities: name the authority's file",
    true};
static const struct cause name_differs = {
    "NAME_DIFFERS", "the certificate of ",
    " is for another name: connect by the name that the certificate has", true};
static const struct cause certificate_wanted = {
    "CERTIFICATE_WANTED", "the server at ",
    " ends the TLS handshake: it probably wants a client's certificate; name its file and its "
    "key's",
    false};
static const struct cause silent = {
    "SILENT", "nobody answers at ",
    ": check the address, and whether parleyd there is stopped or overloaded", false};
static const struct cause connection_lost = {"CONNECTION_LOST", "the connection to ",
                                             " is lost: is parleyd still running?", false};

/* What gRPC's text contains, for OpenSSL and for BoringSSL. The first row that matches counts. */
static const struct {
    const char *part;
    const struct cause *cause, *with_tls; /* with_tls: on a channel with TLS; NULL: the same */
} texts[] = {
    {"http2 header with status: 50", &nothing_behind, NULL}, /* 502, 503, 504 */
    {"http2 header with status", &not_grpc, NULL},
    {"Trying to connect an http1.x server", &not_grpc, NULL},
    {"certificate verify failed", &authority_unknown, NULL},
    {"CERTIFICATE_VERIFY_FAILED", &authority_unknown, NULL},
    {"is not in peer certificate", &name_differs, NULL},
    {"Failed to create secure client channel", &authorities_missing, NULL},
    {"wrong version number", &tls_not_wanted, NULL},
    {"WRONG_VERSION_NUMBER", &tls_not_wanted, NULL},
    {"certificate required", &certificate_wanted, NULL},
    {"CERTIFICATE_REQUIRED", &certificate_wanted, NULL},
    {"Connection refused", &nothing_listens, NULL},
    {"No such file or directory", &nothing_listens, NULL},
    {"DNS", &host_unknown, NULL},
    {"omain name not found", &host_unknown, NULL},
    {"unreachable", &unreachable, NULL},
    {"No route to host", &unreachable, NULL},
    {"imed out", &silent, NULL},
    {"Timeout occurred", &silent, NULL},
    {"Connection reset by peer", &tls_wanted, &certificate_wanted},
    {"Socket closed", &tls_wanted, &certificate_wanted},
    {"ndpoint read failed", &tls_wanted, &certificate_wanted},
};

/* A connection that was there and was lost: nothing is wrong with how the caller connects. */
static const struct cause *find_cause(const char *text, bool is_tls)
{
    const bool is_connecting = strstr(text, "connect") != NULL || strstr(text, "DNS") != NULL ||
                               strstr(text, "http2 header") != NULL ||
                               strstr(text, "client channel") != NULL;

    for (size_t i = 0; is_connecting && i < sizeof(texts) / sizeof(texts[0]); i++)
        if (strstr(text, texts[i].part) != NULL)
            return is_tls && texts[i].with_tls != NULL ? texts[i].with_tls : texts[i].cause;
    return &connection_lost;
}

/* What gRPC says where a connection was there and was lost. */
static const char *const losses[] = {
    "Socket closed", "Connection reset by peer",
    "Broken pipe",   "ndpoint read failed",
    "GOAWAY",        "Cancelling all calls",
    "imed out",      "keepalive",
    "RST_STREAM",    "Unwrap failed",
};

static bool tells_loss(const char *text)
{
    for (size_t i = 0; i < sizeof(losses) / sizeof(losses[0]); i++)
        if (strstr(text, losses[i]) != NULL)
            return true;
    return *text == '\0';
}

/* Words that no row knows may be a proxy's: they stand behind the sentence, in one line. */
static void add_words(struct parley_error *err, const char *text)
{
    const size_t len = strnlen(text, WORDS_BYTES), at = strlen(err->text);

    (void)snprintf(err->text + at, sizeof(err->text) - at, " (gRPC: %.*s)",
                   (int)utf8_complete_len(text, len), text); /* it fits */
    for (char *c = err->text + at; *c != '\0'; c++)
        if (iscntrl((unsigned char)*c))
            *c = ' ';
}

static void say_cause(struct parley_error *err, const struct cause *cause, const char *address)
{
    (void)snprintf(err->text, sizeof(err->text), "%s%.150s%s", cause->before, address,
                   cause->after); /* a longer one is cut */
    (void)snprintf(err->reason, sizeof(err->reason), "%s", cause->reason);
}

void reach_explain(struct parley_error *err, const char *address, bool is_tls)
{
    const struct cause *cause = find_cause(err->text, is_tls);
    const struct parley_error before = *err;

    say_cause(err, cause, address);
    if (cause == &connection_lost && !tells_loss(before.text))
        add_words(err, before.text);
}

void reach_explain_silence(struct parley_error *err, const char *address)
{
    say_cause(err, &silent, address);
}

static const struct cause *cause_of(const struct parley_error *err)
{
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        if (strcmp(texts[i].cause->reason, err->reason) == 0)
            return texts[i].cause;
    return strcmp(connection_lost.reason, err->reason) == 0 ? &connection_lost : NULL;
}

bool reach_is_cause(const struct parley_error *err)
{
    return cause_of(err) != NULL || strcmp(err->reason, "ADDRESS_MALFORMED") == 0 ||
           strcmp(err->reason, "PEM_MALFORMED") == 0;
}

bool reach_is_final(const struct parley_error *err)
{
    const struct cause *cause = cause_of(err);

    return cause == NULL ? reach_is_cause(err) : cause->is_final;
}
