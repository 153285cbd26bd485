/* Any unary method of any gRPC server that has reflection, grpc://HOST:PORT/pkg.Service/Method:
 * each turn is one call with the same request, made of JSON once. The response is the reply's one
 * chunk; nobody counts its tokens. Leaving cancels a call in flight. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/list.h"
#include "cli/output/console.h"
#include "client/cli/bench/proto_json.h"
#include "client/cli/bench/target.h"
#include "client/cli/connection.h"
#include "client/lib/parley.h"

enum { METHOD_TIMEOUT_MS = 10 * 60 * 1000, MAX_REQUEST_BYTES = 64 << 20 };

struct grpc_target {
    struct target base;
    struct parley_channel *channel;
    char *address;        /* HOST:PORT */
    char *path;           /* "/pkg.Service/Method" */
    struct buf request;   /* as it is sent */
    pthread_mutex_t lock; /* guards the calls of the sessions */
};

struct grpc_session {
    struct target_session base;
    struct grpc_target *target;
    struct parley_call *call; /* in flight; NULL: none */
};

static struct grpc_target *grpc_target_of(struct target *t)
{
    return container_of(t, struct grpc_target, base);
}

static struct grpc_session *grpc_session_of(struct target_session *s)
{
    return container_of(s, struct grpc_session, base);
}

/* --- a turn --- */

static void on_answered(void *arg, void *data, size_t len, const struct parley_error *how)
{
    struct grpc_session *s = arg;
    struct error err = {0};

    free(data);
    (void)pthread_mutex_lock(&s->target->lock);
    parley_call_unref(s->call);
    s->call = NULL;
    (void)pthread_mutex_unlock(&s->target->lock);
    if (how->status == PARLEY_OK)
        session_chunk(&s->base);
    else
        (void)error_set(&err, (enum status)how->status, "%s", how->text);
    s->base.events->end(&s->base, &err);
}

static enum status grpc_send(struct target *base, struct target_session *session, struct error *err)
{
    struct grpc_target *t = grpc_target_of(base);
    struct grpc_session *s = grpc_session_of(session);
    bool is_sent;

    session_begin(session);
    s->target = t;
    /* The callback waits for the lock, so it finds the call stored here. */
    (void)pthread_mutex_lock(&t->lock);
    s->call = parley_unary_start(t->channel, t->path, t->request.data, t->request.len,
                                 METHOD_TIMEOUT_MS, on_answered, s);
    is_sent = s->call != NULL;
    (void)pthread_mutex_unlock(&t->lock);
    return is_sent ? STATUS_OK : error_no_memory(err, t->request.len, "a call");
}

static void grpc_leave(struct target *base, struct target_session *session)
{
    struct grpc_target *t = grpc_target_of(base);
    struct grpc_session *s = grpc_session_of(session);

    (void)pthread_mutex_lock(&t->lock);
    if (s->call != NULL)
        parley_call_cancel(s->call);
    (void)pthread_mutex_unlock(&t->lock);
}

static void grpc_session_deinit(struct target_session *s)
{
}

/* --- the method and its request --- */

/* The text, or the file that it names after an @. */
static json_t *read_request(const char *data, struct error *err)
{
    json_error_t why;
    json_t *json = data == NULL   ? json_object()
                   : *data == '@' ? json_load_file(data + 1, JSON_REJECT_DUPLICATES, &why)
                                  : json_loads(data, JSON_REJECT_DUPLICATES, &why);

    if (json == NULL)
        (void)error_set(err, STATUS_INVALID, "--data: %s", why.text);
    return json;
}

static enum status make_request(struct grpc_target *t, const struct proto_schema *schema,
                                const char *service, const char *method, const char *data,
                                struct error *err)
{
    const Google__Protobuf__MethodDescriptorProto *m = proto_schema_method(schema, service, method);
    enum status rc;
    json_t *json;

    if (m == NULL)
        return error_set(err, STATUS_NOT_FOUND, "%s has no method '%s'", service, method);
    if (m->client_streaming || m->server_streaming)
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "%s is a streaming method: only unary methods can be measured", method);
    json = read_request(data, err);
    if (json == NULL)
        return err->status;
    rc = proto_json_encode(&t->request, schema, m->input_type, json, err);
    if (rc != STATUS_OK)
        (void)error_prefix(err, "--data");
    json_decref(json);
    return rc;
}

static enum status describe_method(struct grpc_target *t, const char *data, struct error *err)
{
    char *service = xstrdup(t->path + 1), *method = strchr(service, '/');
    struct proto_schema schema;
    enum status rc;

    *method++ = '\0';
    proto_schema_init(&schema);
    rc = proto_schema_read(&schema, t->channel, service, err);
    if (rc == STATUS_OK)
        rc = make_request(t, &schema, service, method, data, err);
    proto_schema_deinit(&schema);
    free(service);
    return rc;
}

/* --- the server --- */

/* Where "/pkg.Service/Method" begins; NULL: the address has none. */
static const char *path_of(const char *address)
{
    const char *slash = strrchr(address, '/');

    if (slash == NULL || slash[1] == '\0')
        return NULL;
    while (slash > address && *--slash != '/')
        ;
    return slash > address && slash[1] != '/' ? slash : NULL;
}

static void grpc_target_close(struct target *base)
{
    struct grpc_target *t = grpc_target_of(base);

    parley_channel_close(t->channel);
    buf_deinit(&t->request);
    (void)pthread_mutex_destroy(&t->lock);
    free(t->address);
    free(t->path);
    free(t);
}

static struct target *grpc_target_open(const char *address, const struct target_config *config,
                                       enum exit_code *ret_code)
{
    struct connection_options where = config->connection;
    const char *path = path_of(address);
    struct error err = {0};
    struct grpc_target *t;

    if (path == NULL) {
        console_error("grpc:// needs a method: grpc://HOST:PORT/pkg.Service/Method");
        *ret_code = EXIT_MISUSE;
        return NULL;
    }
    t = xalloc(sizeof(*t));
    t->base.type = &grpc_target;
    t->address = xstrdup(address);
    t->address[path - address] = '\0';
    t->path = xstrdup(path);
    buf_init(&t->request, MAX_REQUEST_BYTES);
    (void)pthread_mutex_init(&t->lock, NULL); /* cannot fail on Linux */
    where.server = t->address;
    where.may_lack_health = true;
    t->channel = connection_open(&where, ret_code);
    if (t->channel != NULL && describe_method(t, config->data, &err) == STATUS_OK)
        return &t->base;
    if (t->channel != NULL)
        console_error("%s at %s: %s [%s]", t->path, t->address, err.text, status_name(err.status));
    grpc_target_close(&t->base);
    return NULL;
}

const struct target_type grpc_target = {
    .scheme = "grpc://",
    .counts_no_tokens = true,
    .session_size = sizeof(struct grpc_session),
    .open = grpc_target_open,
    .close = grpc_target_close,
    .send = grpc_send,
    .leave = grpc_leave,
    .session_deinit = grpc_session_deinit,
};
