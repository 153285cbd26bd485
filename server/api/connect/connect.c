/* A request's path names a method. connect_serve makes a call of the exchange (connect_call.c),
 * reads the headers and the message, or a GET's query, and calls the method's start, as gRPC's port
 * does. What is wrong with a request before its method runs is answered as the call's end. */
#include "server/api/connect/connect.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/base64.h"
#include "base/env.h"
#include "base/number.h"
#include "proto/descriptors.h"
#include "server/api/connect/connect_calls.h"
#include "server/api/connect/connect_parts.h"
#include "server/api/connect/error.h"
#include "server/api/services.h"
#include "server/http/exchange.h"
#include "server/server.h"

enum { TIMEOUT_MAX_DIGITS = 10, SYMBOL_MAX_BYTES = 160 };

static const struct connect_codec connect_codecs[] = {
    {"application/json", "application/connect+json", "json", true},
    {"application/proto", "application/connect+proto", "proto", false},
};

enum { N_CODECS = sizeof(connect_codecs) / sizeof(connect_codecs[0]) };

/* --- the request --- */

/* The media type without its parameters. */
static bool is_type(const char *header, const char *type)
{
    const size_t len = strlen(type);

    return strncasecmp(header, type, len) == 0 &&
           header[len + strspn(header + len, " \t")] == (header[len] == '\0' ? '\0' : ';');
}

static const struct connect_codec *codec_of_type(const char *header, bool is_stream)
{
    for (size_t i = 0; header != NULL && i < N_CODECS; i++)
        if (is_type(header,
                    is_stream ? connect_codecs[i].stream_type : connect_codecs[i].unary_type))
            return &connect_codecs[i];
    return NULL;
}

static const struct connect_codec *codec_of_name(const char *name)
{
    for (size_t i = 0; name != NULL && i < N_CODECS; i++)
        if (strcmp(connect_codecs[i].name, name) == 0)
            return &connect_codecs[i];
    return NULL;
}

static enum status connect_take_version(const char *version, const char *wanted, const char *name,
                                        struct error *err)
{
    if (version == NULL || strcmp(version, wanted) == 0)
        return STATUS_OK;
    return error_field(err, name, "is '%.20s', it must be %s", version, wanted);
}

static enum status connect_take_timeout(struct connect_call *c, struct error *err)
{
    const char *text = exchange_header(c->x, KEPT_TIMEOUT_MS);
    uint64_t ms;

    if (text == NULL)
        return STATUS_OK;
    if (strlen(text) > TIMEOUT_MAX_DIGITS || !number_read(&ms, text, UINT64_MAX))
        return error_field(err, "Connect-Timeout-Ms",
                           "is '%.20s', it must be milliseconds, of at "
                           "most %d digits",
                           text, TIMEOUT_MAX_DIGITS);
    c->base.deadline_us = env_now_us(exchange_server(c->x)->env) + ms * 1000;
    return STATUS_OK;
}

static enum status connect_take_query(const char **out, struct connect_call *c, const char *name,
                                      struct error *err)
{
    if (exchange_query(out, c->x, name, err) != STATUS_OK)
        return err->status;
    return *out != NULL ? STATUS_OK : error_field(err, name, "is missing in the query");
}

/* A GET's message, which is borrowed from the exchange or lies in the call's buffer. */
static enum status connect_take_get(const char **out, size_t *ret_len, struct connect_call *c,
                                    struct error *err)
{
    const char *is_base64, *coding;
    uint8_t *bytes;

    if (connect_take_query(out, c, "message", err) != STATUS_OK ||
        exchange_query(&is_base64, c->x, "base64", err) != STATUS_OK ||
        exchange_query(&coding, c->x, "compression", err) != STATUS_OK)
        return err->status;
    *ret_len = strlen(*out);
    if (is_base64 != NULL && strcmp(is_base64, "1") == 0) {
        bytes = arena_alloc(&c->base.arena, base64_max_bytes(*ret_len), 1);
        if (bytes == NULL)
            return error_no_memory(err, *ret_len, "a message");
        if (!base64_decode(bytes, ret_len, *out, *ret_len))
            return error_field(err, "message", "is no base64");
        *out = (const char *)bytes;
    }
    if (coding == NULL || coding[0] == '\0' || strcmp(coding, "identity") == 0)
        return STATUS_OK;
    if (strcmp(coding, "gzip") != 0)
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "compression '%.40s' is not read: gzip and identity are", coding);
    if (envelope_inflate(&c->in.inflated, *out, *ret_len, err) != STATUS_OK)
        return err->status;
    *out = c->in.inflated.len == 0 ? "" : c->in.inflated.data;
    *ret_len = c->in.inflated.len;
    return STATUS_OK;
}

/* The one message of a server's stream. */
static enum status connect_take_only(const char **out, size_t *ret_len, struct connect_call *c,
                                     struct error *err)
{
    if (envelope_read(out, ret_len, &c->in, err) != STATUS_OK)
        return err->status;
    if (*out == NULL)
        return error_set(err, STATUS_UNIMPLEMENTED, "the request has no message, it must have one");
    if (c->in.at < c->in.end)
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "the request has several messages, it may have one");
    return STATUS_OK;
}

/* Reads the request, if it is one message. */
static enum status connect_take_request(struct connect_call *c, bool is_get, struct error *err)
{
    ProtobufCMessage *request;
    const char *data, *body;
    size_t len, body_len;
    enum status rc;

    if (connect_take_version(exchange_header(c->x, KEPT_PROTOCOL), "1", "Connect-Protocol-Version",
                             err) != STATUS_OK ||
        connect_take_timeout(c, err) != STATUS_OK)
        return err->status;
    body = exchange_body(c->x, &body_len);
    rc = envelope_reader_init(&c->in, body, body_len,
                              c->is_stream ? exchange_header(c->x, KEPT_MESSAGE_CODING) : NULL,
                              exchange_max_body_bytes(c->x), err);
    if (rc != STATUS_OK || call_method_is_client_stream(c->base.method))
        return rc;
    if (is_get)
        rc = connect_take_get(&data, &len, c, err);
    else if (c->is_stream)
        rc = connect_take_only(&data, &len, c, err);
    else {
        data = body;
        len = body_len;
    }
    if (rc == STATUS_OK)
        rc = connect_call_decode(&request, c, data, len, &c->base.arena, err);
    if (rc == STATUS_OK)
        c->base.request = request;
    return rc;
}

/* --- the method --- */

static const struct call_method *connect_find_method(const char *path)
{
    size_t n;
    const struct call_table *const *tables = services_tables(&n);

    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < tables[i]->n; k++)
            if (strcmp(tables[i]->rows[k].path, path) == 0)
                return &tables[i]->rows[k];
    return NULL;
}

/* Its idempotency_level is NO_SIDE_EFFECTS. */
static bool is_reader(const struct call_method *method)
{
    const struct descriptor_symbol *symbol;
    char name[SYMBOL_MAX_BYTES];
    char *slash;

    (void)snprintf(name, sizeof(name), "%s", method->path + 1);
    slash = strchr(name, '/');
    if (slash != NULL)
        *slash = '.';
    symbol = descriptor_find_symbol(name);
    return symbol != NULL && symbol->kind == DESCRIPTOR_READER;
}

/* In a GET the query says how the message is written. */
static enum status connect_find_codec(const struct connect_codec **out, struct exchange *x,
                                      bool is_stream, bool is_get, int *ret_http_status,
                                      struct error *err)
{
    const char *name = NULL, *type = exchange_header(x, KEPT_CONTENT_TYPE), *version;

    *ret_http_status = 415;
    if (!is_get) {
        *out = codec_of_type(type, is_stream);
        return *out != NULL
                   ? STATUS_OK
                   : error_field(
                         err, "Content-Type", "is '%.60s', it must be %s or %s",
                         type == NULL ? "" : type,
                         is_stream ? connect_codecs[0].stream_type : connect_codecs[0].unary_type,
                         is_stream ? connect_codecs[1].stream_type : connect_codecs[1].unary_type);
    }
    if (exchange_query(&name, x, "encoding", err) != STATUS_OK ||
        exchange_query(&version, x, "connect", err) != STATUS_OK) {
        *ret_http_status = connect_api.status_of(err->status);
        return err->status;
    }
    *out = codec_of_name(name);
    if (*out == NULL)
        return error_field(err, "encoding", "is '%.40s' in the query, it must be json or proto",
                           name == NULL ? "" : name);
    *ret_http_status = 400;
    return connect_take_version(version, "v1", "connect", err);
}

static void connect_call_start(struct connect_call *c, bool is_get)
{
    struct error err;

    connect_call_adopt(c);
    if (connect_take_request(c, is_get, &err) != STATUS_OK) {
        connect_call_abandon(c, &err);
        return;
    }
    if (c->base.deadline_us > 0) {
        c->deadline.at_us = c->base.deadline_us;
        connect_calls_add(c->base.server->connected, &c->deadline);
    }
    c->base.method->start(&c->base);
    exchange_notify(c->x);
}

static void connect_serve(struct exchange *x)
{
    const struct call_method *method = connect_find_method(exchange_path(x));
    const bool is_get = strcmp(exchange_method(x), "POST") != 0;
    const struct connect_codec *codec = NULL;
    struct connect_call *c;
    struct error err;
    int http_status;

    if (connect_find_codec(&codec, x, method->kind != CALL_UNARY, is_get, &http_status, &err) !=
        STATUS_OK) {
        exchange_fail_as(x, http_status, &err);
        return;
    }
    if (connect_call_open(&c, x, method, codec, &err) != STATUS_OK) {
        exchange_fail(x, &err);
        return;
    }
    connect_call_start(c, is_get);
}

static void connect_serve_unknown(struct exchange *x)
{
    struct error err;

    (void)error_because(&err, STATUS_UNIMPLEMENTED, REASON_METHOD_NOT_FOUND, NULL,
                        "there is no method %.120s", exchange_path(x));
    exchange_fail_as(x, 404, &err);
}

static bool is_of_service(const char *path, const char *service)
{
    const size_t len = strlen(service);

    return strncmp(path + 1, service, len) == 0 && path[len + 1] == '/';
}

/* method: of the path; NULL: there is none. */
static bool make_route(struct route *out, const char *path, const struct call_method *method)
{
    if (path[0] != '/')
        return false;
    *out = (struct route){
        .path = path, .methods = METHOD_POST, .serve = connect_serve, .api = &connect_api};
    if (method != NULL) {
        out->path = method->path;
        out->access = method->access;
        out->always = method->access == ACCESS_OPEN; /* health */
        if (method->kind == CALL_UNARY && is_reader(method))
            out->methods = METHOD_GET | METHOD_HEAD | METHOD_POST;
        return true;
    }
    out->serve = connect_serve_unknown;
    out->methods = METHOD_GET | METHOD_HEAD | METHOD_POST;
    for (size_t i = 0; i < descriptor_n_services; i++)
        if (is_of_service(path, descriptor_services[i]))
            return true;
    return false;
}

bool connect_make_route(struct route *out, const char *path)
{
    return make_route(out, path, connect_find_method(path));
}

bool connect_make_public_route(struct route *out, const char *path)
{
    const struct call_method *method = connect_find_method(path);

    return make_route(out, path, method != NULL && method->access == ACCESS_ADMIN ? NULL : method);
}
