/* GET /websocket: the chat service over a WebSocket, in the messages of ParlAI's own: a client
 * sends
 * {"text", "payload"}, and gets {"text", "quick_replies"}, with "payload" where somebody sent one.
 * As there, other members are ignored, but for "id": ParlAI's terminal client sends a random one
 * that its server ignores. Here it is the secret by which a person comes back after a lost
 * connection. A client that offers the subprotocol parley.service.v1 is also told where its person
 * is: {"moved"} and {"waiting"}, which ParlAI's clients do not know. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/json_writer.h"
#include "server/api/openai/error.h"
#include "server/http/exchange.h"
#include "server/http/route.h"
#include "server/http/upgrade.h"
#include "server/http/websocket.h"
#include "server/json/fields.h"
#include "server/server.h"
#include "server/service/service.h"

enum {
    SERVICE_MESSAGE_MAX_BYTES = 256 << 10,
    SERVICE_FLUSH_BYTES = 64 << 10, /* then the socket is asked whether it takes more */
    SERVICE_PLACE_MAX_BYTES = 4 << 10,
    /* Come again: there are too many, the stored people are being read, or another daemon has got
     * them. */
    CLOSE_FULL = 1013,
    CLOSE_REPLACED = 4001,
    CLOSE_SLOW = 4008,
};

static const char own_protocol[] = "parley.service.v1";

struct service_socket {
    struct service_peer peer;
    struct websocket *socket;
};

static void service_socket_notify(struct service_peer *p)
{
    websocket_notify(container_of(p, struct service_socket, peer)->socket);
}

static void service_socket_end(struct service_peer *p, enum service_end why, const char *text)
{
    static const unsigned codes[] = {
        [SERVICE_END_REPLACED] = CLOSE_REPLACED,
        [SERVICE_END_SLOW] = CLOSE_SLOW,
        [SERVICE_END_MEMORY] = WEBSOCKET_INTERNAL,
        [SERVICE_END_MOVED] = CLOSE_FULL,
    };

    websocket_end(container_of(p, struct service_socket, peer)->socket, codes[why], text);
}

/* --- messages in --- */

static enum status service_socket_payload(char **out, const json_t *body, struct error *err)
{
    const json_t *payload = NULL;

    if (field_object(&payload, body, "payload", err) != STATUS_OK)
        return err->status;
    *out = payload == NULL ? NULL : json_dumps(payload, 0);
    return payload == NULL || *out != NULL ? STATUS_OK : error_no_memory(err, 0, "a payload");
}

static enum status service_socket_take(struct service_socket *s, const json_t *body,
                                       struct error *err)
{
    const char *text = "", *id = NULL;
    char *payload = NULL;
    enum status rc = field_text(&text, body, "text", err);

    if (rc == STATUS_OK && field_is_plain_text(json_object_get(body, "id")))
        id = json_string_value(json_object_get(body, "id"));
    if (rc == STATUS_OK)
        rc = service_socket_payload(&payload, body, err);
    if (rc == STATUS_OK)
        rc = service_peer_said(&s->peer, id, text, payload, err);
    free(payload);
    return rc;
}

static void service_socket_message(struct websocket *w, void *state, const char *data, size_t len,
                                   bool is_text)
{
    struct service_socket *s = state;
    struct error err;
    json_t *body;

    if (fields_parse(&body, data, len, &err) != STATUS_OK) {
        websocket_end(w, WEBSOCKET_NOT_UTF8, "a message must be a JSON object with a text");
        return;
    }
    if (service_socket_take(s, body, &err) != STATUS_OK)
        websocket_end(w,
                      err.status == STATUS_INVALID ? WEBSOCKET_POLICY
                      : s->peer.service->has_ended ? WEBSOCKET_GOING_AWAY
                                                   : CLOSE_FULL,
                      err.text);
    json_decref(body);
}

/* --- messages out --- */

static enum status service_message_write(struct buf *out, const struct service_message *m)
{
    struct json_writer w = json_writer_begin_spaced(out);

    json_begin_object(&w, NULL);
    json_write_text(&w, "text", m->text);
    if (m->payload != NULL)
        json_write_json(&w, "payload", m->payload, strlen(m->payload));
    if (m->n_quick_replies == 0) {
        json_write_null(&w, "quick_replies");
    } else {
        json_begin_array(&w, "quick_replies");
        for (size_t i = 0; i < m->n_quick_replies; i++)
            json_write_text(&w, NULL, m->quick_replies[i]);
        json_end_array(&w);
    }
    json_end_object(&w);
    return json_writer_end(&w);
}

static enum status service_moved_write(struct buf *out, const struct service_place *from,
                                       const struct service_place *to)
{
    struct json_writer w = json_writer_begin_spaced(out);

    json_begin_object(&w, NULL);
    json_begin_object(&w, "moved");
    json_write_text(&w, "from", service_state_name(from->state));
    json_write_text(&w, "to", service_state_name(to->state));
    json_write_text(&w, "task", to->pool == NULL ? NULL : to->pool->plan->name);
    json_end_object(&w);
    json_end_object(&w);
    return json_writer_end(&w);
}

static enum status service_waiting_write(struct buf *out, const struct service_place *at,
                                         uint64_t timeout_ms)
{
    struct json_writer w = json_writer_begin_spaced(out);

    json_begin_object(&w, NULL);
    json_begin_object(&w, "waiting");
    json_write_text(&w, "task", at->pool->plan->name);
    json_write_unsigned(&w, "place", at->position);
    json_write_unsigned(&w, "size", at->n_waiting);
    json_write_unsigned(&w, "wanted", at->pool->plan->n_people);
    json_write_unsigned(&w, "timeout_ms", timeout_ms);
    json_end_object(&w);
    json_end_object(&w);
    return json_writer_end(&w);
}

/* Sends out, and ends it; rc: whether it is whole. Returns how many bytes were sent; 0: the
 * WebSocket has ended. */
static size_t service_socket_send(struct websocket *w, struct buf *out, enum status rc)
{
    size_t n = 0;

    if (rc != STATUS_OK)
        websocket_end(w, WEBSOCKET_INTERNAL, "the server has no memory for a message");
    else if (websocket_send(w, out->data, out->len, true) == STATUS_OK)
        n = out->len;
    buf_deinit(out);
    return n;
}

static size_t service_socket_tell(struct websocket *w, const struct service_message *m)
{
    struct buf out;

    buf_init(&out, 16 * SERVICE_UNTAKEN_MAX_BYTES);
    return service_socket_send(w, &out, service_message_write(&out, m));
}

/* Tells where the person is, if that has changed. */
static void service_socket_place(struct websocket *w, struct service_peer *p)
{
    struct service_place from, to;
    struct buf out;

    if (!service_peer_place(p, &from, &to))
        return;
    buf_init(&out, SERVICE_PLACE_MAX_BYTES);
    if ((to.state != from.state || to.pool != from.pool) &&
        service_socket_send(w, &out, service_moved_write(&out, &from, &to)) == 0)
        return;
    buf_init(&out, SERVICE_PLACE_MAX_BYTES);
    if (to.state == SERVICE_WAITING)
        (void)service_socket_send(w, &out,
                                  service_waiting_write(&out, &to, service_peer_waits_ms(p)));
}

static void service_socket_write_ready(struct websocket *w, void *state)
{
    struct service_socket *s = state;
    const struct service_message *m;
    size_t n_sent = 0, n = 1;

    while (n > 0 && n_sent < SERVICE_FLUSH_BYTES && (m = service_peer_next(&s->peer)) != NULL) {
        n = service_socket_tell(w, m);
        if (n > 0)
            service_peer_took(&s->peer);
        n_sent += n;
    }
    service_socket_place(w, &s->peer);
    if (n_sent >= SERVICE_FLUSH_BYTES)
        websocket_notify(w);
}

static void service_socket_over(struct websocket *w, void *state)
{
    struct service_socket *s = state;

    service_peer_close(&s->peer);
    free(s);
}

static void service_socket_serve(struct exchange *x)
{
    static const struct websocket_handler parlai = {
        .max_message_bytes = SERVICE_MESSAGE_MAX_BYTES,
        .on_message = service_socket_message,
        .on_write_ready = service_socket_write_ready,
        .on_close = service_socket_over,
    };
    static const struct websocket_handler own = {
        .max_message_bytes = SERVICE_MESSAGE_MAX_BYTES,
        .protocol = own_protocol,
        .on_message = service_socket_message,
        .on_write_ready = service_socket_write_ready,
        .on_close = service_socket_over,
    };
    const bool is_own = upgrade_offers(x, own_protocol);
    struct server *server = exchange_server(x);
    struct service_socket *s;
    struct error err;

    if (server->service->config.plan == NULL) {
        (void)error_set(&err, STATUS_PRECONDITION,
                        "there is no chat service: start parleyd with --service FILE.yaml");
        exchange_fail(x, &err);
        return;
    }
    s = try_alloc(1, sizeof(*s));
    if (s == NULL) {
        (void)error_no_memory(&err, sizeof(*s), "a person of the chat service");
        exchange_fail(x, &err);
        return;
    }
    service_peer_init(&s->peer, server->service, service_socket_notify, service_socket_end);
    if ((s->socket = upgrade_to_websocket(x, is_own ? &own : &parlai, s)) == NULL)
        free(s);
    else if (is_own)
        service_peer_watch(&s->peer);
}

static const struct route rows[] = {
    {"/websocket", .methods = METHOD_GET, .serve = service_socket_serve, .api = &openai_api,
     .access = ACCESS_OPEN, .is_for_users = true}, /* the plan may ask for a password */
};
const struct route_table api_service_socket_routes = {rows, sizeof(rows) / sizeof(rows[0])};
