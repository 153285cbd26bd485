/* Takes the head field by field, each by a row of a table, and keeps what the exchange needs.
 * Everything that is refused has a sentence, and the refusal ends the connection. */
#include "server/http/head.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/number.h"
#include "server/http/exchange_parts.h"
#include "server/http/status.h"

/* --- which bytes may stand where --- */

/* Of ASCII: bit c % 64 of low or high says whether c is in it. */
struct byte_set {
    uint64_t low, high;
};

/* tchar of RFC 9110. */
static const struct byte_set token_bytes = {0x03ff6cfa00000000, 0x57ffffffc7fffffe};
/* What is printed, but " # < >: browsers leave more than RFC 3986 allows in a query. */
static const struct byte_set target_bytes = {0xaffffff200000000, 0x7fffffffffffffff};
/* A name or an IPv4 address of RFC 3986. */
static const struct byte_set host_bytes = {0x2bff7ff200000000, 0x47fffffe87fffffe};
/* An IPv6 address, without its brackets. */
static const struct byte_set address_bytes = {0x07ff400000000000, 0x0000007e0000007e};
static const struct byte_set digit_bytes = {0x03ff000000000000, 0};

static size_t byte_set_span(const struct byte_set *s, const char *at, size_t len)
{
    size_t n = 0;

    for (; n < len && (at[n] & 0x80) == 0; n++)
        if (((at[n] < 64 ? s->low : s->high) >> (at[n] & 63) & 1) == 0)
            break;
    return n;
}

bool head_is_token(const char *at, size_t len)
{
    return len > 0 && byte_set_span(&token_bytes, at, len) == len;
}

bool head_refuse(struct exchange *x, int http_status)
{
    x->refused_as = http_status;
    x->must_close = x->is_unread = true;
    return false;
}

static bool head_refuse_target(struct exchange *x, const char *why)
{
    (void)error_set(&x->err, STATUS_INVALID, "the request's target %s", why);
    return head_refuse(x, 400);
}

/* --- the request line --- */

bool head_method(struct exchange *x, const char *at, size_t len)
{
    static const struct {
        const char *name;
        enum method method;
    } methods[] = {
        {"GET", METHOD_GET},         {"POST", METHOD_POST},     {"HEAD", METHOD_HEAD},
        {"OPTIONS", METHOD_OPTIONS}, {"DELETE", METHOD_DELETE}, {"PUT", METHOD_OTHER},
        {"PATCH", METHOD_OTHER},     {"TRACE", METHOD_OTHER},
    };

    for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
        if (strlen(methods[i].name) != len || memcmp(methods[i].name, at, len) != 0)
            continue;
        x->method = methods[i].method;
        x->method_name = methods[i].name;
        return true;
    }
    (void)error_set(&x->err, STATUS_UNIMPLEMENTED, "there is no method '%.*s'",
                    (int)(len < 32 ? len : 32), at);
    return head_refuse(x, 501);
}

int head_hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int head_decode(const char *at, size_t len)
{
    int high, low;

    if (len < 3 || at[0] != '%')
        return -1;
    high = head_hex_value(at[1]);
    low = head_hex_value(at[2]);
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

/* Whether a segment is . or .., which a proxy may have taken away, with what stands before it. */
static bool has_dot_segment(const char *path)
{
    for (const char *at = path; (at = strstr(at, "/.")) != NULL; at++) {
        const char *end = at + (at[2] == '.' ? 3 : 2);

        if (*end == '/' || *end == '\0')
            return true;
    }
    return false;
}

/* Decodes [len] into x->path, which has room. An encoded slash is a part of a name. */
static bool head_decode_path(struct exchange *x, const char *at, size_t len)
{
    size_t n = 0;

    x->coded_slash = SIZE_MAX;
    for (size_t i = 0; i < len; i++) {
        int byte = (unsigned char)at[i];

        if (byte == '%') {
            byte = head_decode(at + i, len - i);
            if (byte < 0)
                return head_refuse_target(x, "has a '%' without two hexadecimal digits");
            if (byte < ' ' || byte == 0x7f)
                return head_refuse_target(x, "has a control character");
            if (byte == '/' && x->coded_slash == SIZE_MAX)
                x->coded_slash = n;
            i += 2;
        } else if (byte == '\\') {
            return head_refuse_target(x, "has a '\\'");
        }
        x->path[n++] = (char)byte;
    }
    x->path[n] = '\0';
    return has_dot_segment(x->path) ? head_refuse_target(x, "has a segment '.' or '..'") : true;
}

bool head_path(struct exchange *x, const char *at, size_t len)
{
    const char *mark = memchr(at, '?', len);
    size_t n_path = mark == NULL ? len : (size_t)(mark - at);
    size_t n_query = mark == NULL ? 0 : len - n_path - 1;
    char *path;

    if (len > TARGET_MAX_BYTES) {
        (void)error_set(&x->err, STATUS_INVALID,
                        "the request's target is too long: at most %d bytes "
                        "are taken",
                        TARGET_MAX_BYTES);
        return head_refuse(x, 414);
    }
    if (byte_set_span(&target_bytes, at, len) != len)
        return head_refuse_target(x, "has a byte that must be encoded as %XX");
    if (len == 0 || (at[0] != '/' && !(len == 1 && at[0] == '*')))
        return head_refuse_target(x, "does not begin with '/'");
    if (memmem(at, len, "%00", 3) != NULL)
        return head_refuse_target(x, "has a NUL");
    path = arena_alloc(&x->arena, sizeof(HTTP_BASE) + n_path + 1 + n_query + 1, 1);
    if (path == NULL) {
        (void)error_no_memory(&x->err, len, "the request's target");
        return head_refuse(x, http_status_of(x->err.status));
    }
    path += sizeof(HTTP_BASE);
    x->path = path;
    if (n_query > 0)
        x->query = memcpy(path + n_path + 1, mark + 1, n_query);
    return head_decode_path(x, at, n_path);
}

/* --- host --- */

/* RFC 3986, without user: a host without a name is none of ours. */
static bool head_is_host(const char *at, size_t len)
{
    size_t n;

    if (len > 0 && at[0] == '[') {
        n = 1 + byte_set_span(&address_bytes, at + 1, len - 1);
        if (n == 1 || n == len || at[n++] != ']')
            return false;
    } else {
        n = byte_set_span(&host_bytes, at, len);
    }
    if (n == 0)
        return false;
    if (n < len && at[n] == ':')
        n += 1 + byte_set_span(&digit_bytes, at + n + 1, len - n - 1);
    return n == len && len <= ORIGIN_MAX_BYTES;
}

/* The target's authority comes first; both name the same. */
static bool head_host(struct exchange *x, const char *at, size_t len)
{
    if (!head_is_host(at, len)) {
        (void)error_field(&x->err, "Host", "is HOST or HOST:PORT");
        return head_refuse(x, 400);
    }
    if (x->host[0] != '\0' && (strlen(x->host) != len || strncasecmp(x->host, at, len) != 0)) {
        (void)error_field(&x->err, "Host", "differs from the target's");
        return head_refuse(x, 400);
    }
    memcpy(x->host, at, len);
    return true;
}

bool head_authority(struct exchange *x, const char *at, size_t len)
{
    return head_host(x, at, len);
}

/* --- the table --- */

enum repetition {
    ONCE,   /* twice is refused: RFC 9110, 5.3 */
    LISTED, /* several lines are one list */
    FIRST,  /* further ones are left out: proxies add theirs to the client's */
};

/* Headers that are read. One that only means something once is ONCE here though nothing reads it.
 */
static const struct header_rule {
    const char *name;
    size_t len;
    enum header header;
    enum repetition repetition;
} header_rules[] = {
#define NAMED(name) name, sizeof(name) - 1
    {NAMED("Host"), HEADER_HOST, ONCE},
    {NAMED("Content-Length"), HEADER_LENGTH, ONCE},
    {NAMED("Transfer-Encoding"), HEADER_TRANSFER, LISTED},
    {NAMED("Connection"), HEADER_CONNECTION, LISTED},
    {NAMED("Content-Type"), HEADER_TYPE, ONCE},
    {NAMED("Content-Encoding"), HEADER_CODING, LISTED},
    {NAMED("Accept-Encoding"), HEADER_ACCEPTS, LISTED},
    {NAMED("Accept"), HEADER_WANTED, LISTED},
    {NAMED("If-None-Match"), HEADER_KNOWN, LISTED},
    {NAMED("Authorization"), HEADER_AUTHORIZATION, ONCE},
    {NAMED("X-Api-Key"), HEADER_API_KEY, ONCE},
    {NAMED("X-Conversation-Id"), HEADER_CONVERSATION, ONCE},
    {NAMED("Idempotency-Key"), HEADER_KEY, ONCE},
    {NAMED("Last-Event-ID"), HEADER_LAST_EVENT, ONCE},
    {NAMED("Connect-Timeout-Ms"), HEADER_TIMEOUT, ONCE},
    {NAMED("Connect-Protocol-Version"), HEADER_PROTOCOL, ONCE},
    {NAMED("Connect-Content-Encoding"), HEADER_MESSAGE_CODING, ONCE},
    {NAMED("Expect"), HEADER_EXPECT, LISTED},
    {NAMED("Origin"), HEADER_ORIGIN, ONCE},
    {NAMED("Access-Control-Request-Headers"), HEADER_ASKED, LISTED},
    {NAMED("X-Request-Id"), HEADER_REQUEST_ID, FIRST},
    {NAMED("Upgrade"), HEADER_UPGRADE, LISTED},
    {NAMED("Sec-WebSocket-Key"), HEADER_WEBSOCKET_KEY, ONCE},
    {NAMED("Sec-WebSocket-Version"), HEADER_WEBSOCKET_VERSION, ONCE},
    {NAMED("Sec-WebSocket-Protocol"), HEADER_WEBSOCKET_PROTOCOL, LISTED},
#undef NAMED
};

static const struct header_rule *header_rule_find(const char *name, size_t len)
{
    for (size_t i = 0; i < sizeof(header_rules) / sizeof(header_rules[0]); i++)
        if (header_rules[i].len == len && strncasecmp(header_rules[i].name, name, len) == 0)
            return &header_rules[i];
    return NULL;
}

/* --- values --- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* The next element of a list, without blanks; *at [*left] moves behind it. False: there is none. */
static bool next_element(const char **at, size_t *left, const char **ret, size_t *ret_len)
{
    const char *comma;
    size_t n;

    while (*left > 0 && (is_blank(**at) || **at == ',')) {
        ++*at;
        --*left;
    }
    if (*left == 0)
        return false;
    comma = memchr(*at, ',', *left);
    *ret = *at;
    n = comma == NULL ? *left : (size_t)(comma - *at);
    *at += n;
    *left -= n;
    while (is_blank((*ret)[n - 1]))
        n--;
    *ret_len = n;
    return true;
}

static bool head_is_word(const char *word, const char *at, size_t len)
{
    return strlen(word) == len && strncasecmp(word, at, len) == 0;
}

/* RFC 9112, 6.1: chunked is the last coding, and the only one that is known. */
static bool head_transfer(struct exchange *x, const char *at, size_t len)
{
    const char *coding;
    size_t n;

    while (next_element(&at, &len, &coding, &n)) {
        if (x->is_chunked) {
            (void)error_field(&x->err, "Transfer-Encoding", "has something behind chunked");
            return head_refuse(x, 400);
        }
        if (!head_is_word("chunked", coding, n)) {
            (void)error_field(&x->err, "Transfer-Encoding", "may be chunked alone");
            return head_refuse(x, 501);
        }
        x->is_chunked = true;
    }
    return true;
}

static void head_connection(struct exchange *x, const char *at, size_t len)
{
    const char *option;
    size_t n;

    while (next_element(&at, &len, &option, &n)) {
        x->says_close = x->says_close || head_is_word("close", option, n);
        x->says_keep = x->says_keep || head_is_word("keep-alive", option, n);
        x->upgrade.is_asked = x->upgrade.is_asked || head_is_word("upgrade", option, n);
    }
}

static void head_upgrade(struct exchange *x, const char *at, size_t len)
{
    const char *protocol;
    size_t n;

    while (next_element(&at, &len, &protocol, &n))
        x->upgrade.names_websocket =
            x->upgrade.names_websocket || head_is_word("websocket", protocol, n);
}

static bool head_expect(struct exchange *x, const char *at, size_t len)
{
    const char *expected;
    size_t n;

    while (next_element(&at, &len, &expected, &n)) {
        if (!head_is_word("100-continue", expected, n)) {
            (void)error_field(&x->err, "Expect", "may be 100-continue alone");
            return head_refuse(x, 417);
        }
        x->wants_continue = true;
    }
    return true;
}

static bool head_length(struct exchange *x, const char *at, size_t len)
{
    x->has_length = len > 0 && number_take(&x->length, at, len, UINT64_MAX) == len;
    if (x->has_length)
        return true;
    (void)error_field(&x->err, "Content-Length", "is not a number of bytes");
    return head_refuse(x, 400);
}

/* Longer values are cut: then they match no name, conversation, coding or origin. */
static void head_append(char *out, size_t size, size_t *len, const char *at, size_t n)
{
    size_t room = *len < size - 1 ? size - 1 - *len : 0;

    memcpy(out + *len, at, n < room ? n : room);
    *len += n < room ? n : room;
}

/* The same of a list's further line. */
static void head_append_list(char *out, size_t size, size_t *len, const char *at, size_t n)
{
    if (*len > 0)
        head_append(out, size, len, ", ", 2);
    head_append(out, size, len, at, n);
}

/* One that is too long is cut: it is no key then. */
static void head_append_proof(const struct exchange *x, struct buf *out, const char *at, size_t len)
{
    size_t room = PROOF_MAX_BYTES - out->len;

    if (x->front->config.access != NULL) /* without memory the key is not admitted */
        (void)!buf_append(out, at, len < room ? len : room);
}

static bool head_last_event(struct exchange *x, const char *at, size_t len)
{
    x->has_last_event = true;
    if (buf_append(&x->last_event, at, len) == STATUS_OK)
        return true;
    (void)error_field(&x->err, "Last-Event-ID", "has at most %d bytes", LAST_EVENT_MAX_BYTES);
    return head_refuse(x, 400); /* half of a place is another */
}

static void head_asked(struct exchange *x, const char *at, size_t len)
{
    /* Too long: the page sees fewer allowed headers. */
    if (x->asked.len == 0 || buf_append(&x->asked, ", ", 2) == STATUS_OK)
        (void)!buf_append(&x->asked, at, len);
}

/* A list's further line is joined to the first. */
static bool head_keep(struct exchange *x, const char **kept, const char *at, size_t len)
{
    const size_t n = *kept == NULL ? 0 : strlen(*kept) + 1;
    char *joined = arena_alloc(&x->arena, n + len + 1, 1);

    if (joined != NULL) {
        if (n > 0)
            (void)snprintf(joined, n + 1, "%s,", *kept);
        memcpy(joined + n, at, len);
        joined[n + len] = '\0';
        *kept = joined;
        return true;
    }
    (void)error_no_memory(&x->err, len, "a header");
    return head_refuse(x, http_status_of(x->err.status));
}

/* Whether a list of media types names text/html itself: a * stands for any, which programs send. */
static bool head_has_html(const char *at, size_t len)
{
    static const char html[] = "text/html";

    for (size_t i = 0; i + sizeof(html) - 1 <= len; i++) {
        const size_t end = i + sizeof(html) - 1;

        if (strncasecmp(at + i, html, sizeof(html) - 1) == 0 &&
            (i == 0 || at[i - 1] == ',' || at[i - 1] == ' ') &&
            (end == len || strchr(",; \t", at[end]) != NULL))
            return true;
    }
    return false;
}

static bool head_take(struct exchange *x, enum header header, const char *at, size_t len)
{
    switch (header) {
    case HEADER_TYPE:
        return head_keep(x, &x->kept[KEPT_CONTENT_TYPE], at, len);
    case HEADER_TIMEOUT:
        return head_keep(x, &x->kept[KEPT_TIMEOUT_MS], at, len);
    case HEADER_PROTOCOL:
        return head_keep(x, &x->kept[KEPT_PROTOCOL], at, len);
    case HEADER_MESSAGE_CODING:
        return head_keep(x, &x->kept[KEPT_MESSAGE_CODING], at, len);
    case HEADER_WEBSOCKET_KEY:
        return head_keep(x, &x->upgrade.key, at, len);
    case HEADER_WEBSOCKET_VERSION:
        return head_keep(x, &x->upgrade.version, at, len);
    case HEADER_WEBSOCKET_PROTOCOL:
        return head_keep(x, &x->upgrade.protocols, at, len);
    case HEADER_UPGRADE:
        head_upgrade(x, at, len);
        break;
    case HEADER_HOST:
        return head_host(x, at, len);
    case HEADER_LENGTH:
        return head_length(x, at, len);
    case HEADER_TRANSFER:
        return head_transfer(x, at, len);
    case HEADER_EXPECT:
        return head_expect(x, at, len);
    case HEADER_LAST_EVENT:
        return head_last_event(x, at, len);
    case HEADER_CONNECTION:
        head_connection(x, at, len);
        break;
    case HEADER_CONVERSATION:
        head_append(x->conversation, sizeof(x->conversation), &x->conversation_len, at, len);
        break;
    case HEADER_ORIGIN:
        head_append(x->origin, sizeof(x->origin), &x->origin_len, at, len);
        break;
    case HEADER_ASKED:
        head_asked(x, at, len);
        break;
    case HEADER_KEY:
        x->has_key = true;
        head_append(x->key, sizeof(x->key), &x->key_len, at, len);
        break;
    case HEADER_AUTHORIZATION:
        head_append_proof(x, &x->authorization, at, len);
        break;
    case HEADER_API_KEY:
        head_append_proof(x, &x->api_key, at, len);
        break;
    case HEADER_REQUEST_ID:
        head_append(x->request_id.text, sizeof(x->request_id.text), &x->request_id.len, at, len);
        break;
    case HEADER_CODING:
        head_append_list(x->coding, sizeof(x->coding), &x->coding_len, at, len);
        break;
    case HEADER_ACCEPTS:
        head_append_list(x->accepts, sizeof(x->accepts), &x->accepts_len, at, len);
        break;
    case HEADER_WANTED:
        x->wants_html = x->wants_html || head_has_html(at, len);
        break;
    case HEADER_KNOWN:
        head_append_list(x->known, sizeof(x->known), &x->known_len, at, len);
        break;
    }
    return true;
}

bool head_field(struct exchange *x, const char *name, size_t name_len, const char *value,
                size_t len)
{
    const struct header_rule *rule = header_rule_find(name, name_len);
    const uint32_t bit = rule == NULL ? 0 : 1u << rule->header;

    if (rule == NULL)
        return true;
    if ((x->seen & bit) != 0 && rule->repetition == FIRST)
        return true;
    if ((x->seen & bit) != 0 && rule->repetition == ONCE) {
        (void)error_field(&x->err, rule->name, "is given twice");
        return head_refuse(x, 400);
    }
    x->seen |= bit;
    return head_take(x, rule->header, value, len);
}

static bool has_come(const struct exchange *x, enum header header)
{
    return (x->seen & 1u << header) != 0;
}

bool head_end(struct exchange *x)
{
    if (!x->sink->is_http_2 && !x->is_http_1_0 && !has_come(x, HEADER_HOST)) {
        (void)error_field(&x->err, "Host", "is missing");
        return head_refuse(x, 400);
    }
    if (x->path[0] == '*' && x->method != METHOD_OPTIONS)
        return head_refuse_target(x, "may be '*' with OPTIONS alone");
    if (!has_come(x, HEADER_TRANSFER))
        return true;
    if (x->is_chunked && !x->has_length && !x->is_http_1_0)
        return true;
    (void)error_field(&x->err, "Transfer-Encoding", "%s",
                      x->has_length    ? "and Content-Length contradict each other"
                      : x->is_http_1_0 ? "is not of HTTP/1.0"
                                       : "is empty");
    return head_refuse(x, 400);
}
