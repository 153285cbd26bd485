#include "server/api/request_key.h"

#include <stdbool.h>
#include <string.h>

#include "base/arena.h"
#include "server/access/access.h"
#include "server/conversation/keyed_replies.h"
#include "server/http/exchange.h"
#include "server/server.h"

/* The hash of all that says what is to be generated. */
static enum status hash_request(uint8_t out[SHA256_BYTES], const struct exchange *x,
                                struct error *err)
{
    const char *path = exchange_path(x), *conversation = exchange_conversation(x);
    struct sha256 *hash;
    const char *body;
    size_t len;

    if (sha256_open(&hash, err) != STATUS_OK)
        return err->status;
    body = exchange_body(x, &len);
    sha256_add(hash, path, strlen(path) + 1);
    sha256_add(hash, conversation, strlen(conversation) + 1);
    sha256_add(hash, body, len);
    sha256_take(hash, out);
    sha256_close(hash);
    return STATUS_OK;
}

static bool is_of_reply(const struct event_id *id, const struct keyed_reply *reply)
{
    const struct keyed_turn *first = &reply->turns[0];
    bool is_behind_something = false;

    for (size_t i = 0; i < id->n_indexes; i++)
        is_behind_something = is_behind_something || id->indexes[i] > 0;
    return is_behind_something && id->generation == first->generation &&
           id->turn == first->number && id->n_indexes == reply->n_turns;
}

static enum status find_place(struct request_key *out, struct exchange *x, const char *text,
                              size_t len, struct error *err)
{
    struct event_id *id;

    if (out->text == NULL)
        return error_field(err, "Last-Event-ID", "needs the request's Idempotency-Key");
    id = arena_alloc(exchange_arena(x), 1, sizeof(*id));
    if (id == NULL)
        return error_no_memory(err, sizeof(*id), "an event's id");
    if (event_id_parse(id, text, len, err) != STATUS_OK)
        return err->status;
    out->from = id;
    if (out->reply != NULL && is_of_reply(id, out->reply))
        return STATUS_OK;
    return error_because(err, STATUS_RANGE, REASON_CURSOR_NOT_FOUND, "Last-Event-ID",
                         out->reply == NULL ? "no reply is stored under this Idempotency-Key: send "
                                              "the request without Last-Event-ID"
                                            : "Last-Event-ID is not an event of this reply");
}

enum status request_key_read(struct request_key *out, struct exchange *x, struct error *err)
{
    struct request_key key = {.text = exchange_key(x)};
    const char *last;
    enum status rc = STATUS_OK;
    size_t len;

    if (key.text != NULL) {
        rc = hash_request(key.digest, x, err);
        if (rc == STATUS_OK)
            rc = keyed_replies_find(&key.reply, exchange_server(x)->keyed,
                                    exchange_principal(x)->id, key.text, key.digest, err);
    }
    last = exchange_last_event(x, &len);
    if (rc == STATUS_OK && last != NULL)
        rc = find_place(&key, x, last, len, err);
    if (rc == STATUS_OK)
        *out = key;
    return rc;
}
