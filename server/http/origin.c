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

static bool is_origin_allowed(const struct origin_rules *rules, const char *origin)
{
    for (size_t i = 0; i < rules->n_allowed; i++) {
        if (strcmp(rules->allowed[i], "*") == 0 || strcasecmp(rules->allowed[i], origin) == 0)
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
        return error_set(err, STATUS_DENIED,
                         "host '%.80s' is no loopback address, where alone the server listens: "
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

enum status origin_parse(const char *text, struct error *err)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-.";
    const char *authority = authority_of(text);
    size_t scheme = strspn(text, letters);

    if (strcmp(text, "*") == 0 || strcmp(text, "null") == 0)
        return STATUS_OK;
    if (strlen(text) > ORIGIN_MAX_BYTES || scheme == 0 || authority != text + scheme + 3 ||
        host_len(authority) == 0 || strpbrk(authority, "/?#@ \t\r\n") != NULL)
        return error_set(err, STATUS_INVALID,
                         "'%.80s' is no origin: it is SCHEME://HOST[:PORT], null, or * for any",
                         text);
    return STATUS_OK;
}
