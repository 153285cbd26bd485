/* Compares the host and the origin of a request with the listener's address and the allowed
 * origins. Names, ports and brackets are parsed here, without a lookup. */
#include "server/http/origin.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <strings.h>

static bool is_loopback_4(uint32_t address)
{
    return address >> 24 == IN_LOOPBACKNET;
}

static bool is_loopback_6(const struct in6_addr *address)
{
    return IN6_IS_ADDR_LOOPBACK(address) ||
           (IN6_IS_ADDR_V4MAPPED(address) && address->s6_addr[12] == IN_LOOPBACKNET);
}

bool origin_is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET)
        return is_loopback_4(ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr));
    return address->sa_family == AF_INET6 &&
           is_loopback_6(&((const struct sockaddr_in6 *)address)->sin6_addr);
}

/* The length of HOST in the whole text HOST[:PORT]; 0: invalid. */
static size_t host_len(const char *authority)
{
    const char *at = authority, *port;

    if (*at == '[')
        at += strcspn(at, "]");
    at = strchrnul(at, ':');
    if (*at == '\0')
        return (size_t)(at - authority);
    for (port = at + 1; *port >= '0' && *port <= '9'; port++)
        continue;
    return *port == '\0' && port - at <= 6 ? (size_t)(at - authority) : 0;
}

/* HOST[:PORT] */
static bool names_loopback(const char *authority)
{
    size_t len = host_len(authority);
    char host[INET6_ADDRSTRLEN + 1];
    struct in_addr four;
    struct in6_addr six;

    if (len == strlen("localhost") && strncasecmp(authority, "localhost", len) == 0)
        return true;
    if (authority[0] == '[' && len > 2 && authority[len - 1] == ']') {
        authority++;
        len -= 2;
        if (len >= sizeof(host))
            return false;
        memcpy(host, authority, len);
        host[len] = '\0';
        return inet_pton(AF_INET6, host, &six) == 1 && is_loopback_6(&six);
    }
    if (len >= sizeof(host))
        return false;
    memcpy(host, authority, len);
    host[len] = '\0';
    return inet_pton(AF_INET, host, &four) == 1 && is_loopback_4(ntohl(four.s_addr));
}

/* The part after "SCHEME://"; "" where there is none, as in "null". */
static const char *authority_of(const char *origin)
{
    const char *colon = strstr(origin, "://");

    return colon == NULL ? "" : colon + 3;
}

static bool has_host(const char *authority, const char *host, size_t len)
{
    return host_len(authority) == len && strncasecmp(authority, host, len) == 0;
}

static bool is_host_allowed(const struct origin_rules *rules, const char *host)
{
    size_t len = host_len(host);

    for (size_t i = 0; i < rules->n_allowed; i++) {
        if (strcmp(rules->allowed[i], "*") == 0 ||
            (len > 0 && has_host(authority_of(rules->allowed[i]), host, len)))
            return true;
    }
    return false;
}

/* ":123", or nothing */
static bool is_port(const char *text)
{
    return text[0] == '\0' ||
           (text[0] == ':' && text[1] != '\0' && text[1 + strspn(text + 1, "0123456789")] == '\0');
}

/* pattern is an origin; its port, or host and port, may be "*". */
static bool is_like(const char *pattern, const char *origin)
{
    size_t len = strlen(pattern);

    if (len < 2 || pattern[len - 1] != '*')
        return strcasecmp(pattern, origin) == 0;
    if (pattern[len - 2] == '/')
        return strncasecmp(pattern, origin, len - 1) == 0;
    return strncasecmp(pattern, origin, len - 2) == 0 && is_port(origin + len - 2);
}

/* What Ollama allows as installed: pages of this machine, and programs that show pages of their
 * own. */
static bool is_of_ollama(const char *origin)
{
    static const char *const patterns[] = {
        "http://localhost:*",
        "https://localhost:*",
        "http://127.0.0.1:*",
        "https://127.0.0.1:*",
        "http://0.0.0.0:*",
        "https://0.0.0.0:*",
        "app://*",
        "file://*",
        "tauri://*",
        "vscode-webview://*",
        "vscode-file://*",
        "chrome-extension://*",
        "moz-extension://*",
        "safari-web-extension://*",
    };

    for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++) {
        if (is_like(patterns[i], origin))
            return true;
    }
    return false;
}

static bool is_origin_allowed(const struct origin_rules *rules, const char *origin)
{
    for (size_t i = 0; i < rules->n_allowed; i++) {
        const char *allowed = rules->allowed[i];

        if (strcmp(allowed, "*") == 0 || is_like(allowed, origin) ||
            (strcmp(allowed, ORIGIN_OLLAMA) == 0 && is_of_ollama(origin)))
            return true;
    }
    return false;
}

enum status origin_check(const struct origin_rules *rules, const char *host, const char *origin,
                         struct error *err)
{
    const char *from = authority_of(origin);

    if (rules->is_loopback && host[0] != '\0' && !names_loopback(host) &&
        !is_host_allowed(rules, host))
        return error_set(
            err, STATUS_DENIED,
            "host '%.80s' is not a loopback address, and the server listens on loopback alone: "
            "parleyd --http-origin allows others",
            host);
    if (origin[0] == '\0' || is_origin_allowed(rules, origin))
        return STATUS_OK;
    if (from[0] != '\0' &&
        (rules->is_loopback ? names_loopback(from) : strcasecmp(from, host) == 0))
        return STATUS_OK;
    return error_set(err, STATUS_DENIED,
                     "pages of origin '%.80s' are not allowed: parleyd --http-origin allows them",
                     origin);
}

/* As above, without the scheme. */
static bool is_authority(const char *text)
{
    size_t len = strlen(text);

    if (strcmp(text, "*") == 0)
        return true;
    if (strpbrk(text, "/?#@ \t\r\n") != NULL)
        return false;
    if (len > 2 && strcmp(text + len - 2, ":*") == 0)
        return text[0] != '*' && (text[0] == '[' || memchr(text, ':', len - 2) == NULL);
    return host_len(text) > 0;
}

enum status origin_parse(const char *text, struct error *err)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-.";
    const char *authority = authority_of(text);
    size_t scheme = strspn(text, letters);

    if (strcmp(text, "*") == 0 || strcmp(text, "null") == 0 || strcmp(text, ORIGIN_OLLAMA) == 0)
        return STATUS_OK;
    if (strlen(text) > ORIGIN_MAX_BYTES || scheme == 0 || authority != text + scheme + 3 ||
        !is_authority(authority))
        return error_set(err, STATUS_INVALID,
                         "'%.80s' is not an origin: give SCHEME://HOST[:PORT], null, * for any, or "
                         "ollama for those that Ollama allows",
                         text);
    return STATUS_OK;
}
