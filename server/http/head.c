/* Which headers are read, and where their values go. */
#include "server/http/head.h"

#include <string.h>
#include <strings.h>

#include "server/http/exchange_parts.h"

/* Longer values are cut: then they match no path, name, conversation or origin. */
static void head_append(char *out, size_t size, size_t *len, const char *at, size_t n)
{
    size_t room = *len < size - 1 ? size - 1 - *len : 0;

    memcpy(out + *len, at, n < room ? n : room);
    *len += n < room ? n : room;
}

void head_url(struct exchange *x, const char *at, size_t len)
{
    head_append(x->url, sizeof(x->url), &x->url_len, at, len);
}

void head_name(struct exchange *x, const char *at, size_t len)
{
    if (x->is_in_value)
        x->name_len = 0;
    x->is_in_value = false;
    head_append(x->name, sizeof(x->name), &x->name_len, at, len);
}

static enum header header_of(const struct exchange *x)
{
#define NAMED(name) name, sizeof(name) - 1
    static const struct {
        const char *name;
        size_t len;
        enum header header;
    } ours[] = {
        {NAMED("x-conversation-id"), HEADER_CONVERSATION},
        {NAMED("expect"), HEADER_EXPECT},
        {NAMED("host"), HEADER_HOST},
        {NAMED("origin"), HEADER_ORIGIN},
        {NAMED("access-control-request-headers"), HEADER_ASKED},
        {NAMED("idempotency-key"), HEADER_KEY},
        {NAMED("last-event-id"), HEADER_LAST_EVENT},
        {NAMED("authorization"), HEADER_AUTHORIZATION},
        {NAMED("x-api-key"), HEADER_API_KEY},
        {NAMED("x-request-id"), HEADER_REQUEST_ID},
        {NAMED("content-encoding"), HEADER_CODING},
        {NAMED("accept-encoding"), HEADER_ACCEPTS},
    };
#undef NAMED

    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++) {
        if (ours[i].len == x->name_len && strncasecmp(ours[i].name, x->name, x->name_len) == 0)
            return ours[i].header;
    }
    return HEADER_OTHER;
}

/* One that is too long is cut: it is no key then. */
static void head_append_proof(const struct exchange *x, struct buf *out, const char *at, size_t len)
{
    size_t room = PROOF_MAX_BYTES - out->len;

    if (x->front->config.access != NULL) /* without memory the key is not admitted */
        (void)!buf_append(out, at, len < room ? len : room);
}

bool head_value(struct exchange *x, const char *at, size_t len)
{
    if (!x->is_in_value)
        x->header = header_of(x);
    x->is_in_value = true;
    switch (x->header) {
    case HEADER_CONVERSATION:
        head_append(x->conversation, sizeof(x->conversation), &x->conversation_len, at, len);
        break;
    case HEADER_EXPECT:
        x->wants_continue = true;
        break;
    case HEADER_HOST:
        head_append(x->host, sizeof(x->host), &x->host_len, at, len);
        break;
    case HEADER_ORIGIN:
        head_append(x->origin, sizeof(x->origin), &x->origin_len, at, len);
        break;
    case HEADER_ASKED:
        (void)!buf_append(&x->asked, at, len); /* too long: the page sees fewer allowed headers */
        break;
    case HEADER_KEY:
        x->has_key = true;
        head_append(x->key, sizeof(x->key), &x->key_len, at, len);
        break;
    case HEADER_LAST_EVENT:
        x->has_last_event = true;
        return buf_append(&x->last_event, at, len) == STATUS_OK; /* half of a place is another */
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
        head_append(x->coding, sizeof(x->coding), &x->coding_len, at, len);
        break;
    case HEADER_ACCEPTS:
        head_append(x->accepts, sizeof(x->accepts), &x->accepts_len, at, len);
        break;
    case HEADER_OTHER:
        break;
    }
    return true;
}
