#include "server/call/health.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "grpc/health/v1/health.pb-c.h"

typedef Grpc__Health__V1__HealthCheckRequest check_request;
typedef Grpc__Health__V1__HealthCheckResponse check_response;

struct service {
    struct link link;
    char *name;
    enum health_status status;
};

/* A call of Watch. The service's name is in the call's arena. */
struct health_watcher {
    struct link link;
    struct health *health;
    struct call *call;
    const char *service;
    bool has_told;
    enum health_status told;
};

void health_init(struct health *h)
{
    list_init(&h->services);
    list_init(&h->watchers);
}

void health_deinit(struct health *h)
{
    struct link *link;

    assert(list_is_empty(&h->watchers));
    while ((link = list_pop(&h->services)) != NULL) {
        struct service *s = container_of(link, struct service, link);

        free(s->name);
        free(s);
    }
}

static struct service *health_find(const struct health *h, const char *name)
{
    for (struct link *l = list_first(&h->services); l != NULL; l = list_next(&h->services, l)) {
        struct service *s = container_of(l, struct service, link);

        if (strcmp(s->name, name) == 0)
            return s;
    }
    return NULL;
}

void health_set(struct health *h, const char *name, enum health_status status)
{
    struct service *s = health_find(h, name);

    if (s == NULL) {
        s = xalloc(sizeof(*s));
        s->name = xstrdup(name);
        list_push(&h->services, &s->link);
    }
    s->status = status;
    for (struct link *l = list_first(&h->watchers); l != NULL; l = list_next(&h->watchers, l)) {
        struct health_watcher *w = container_of(l, struct health_watcher, link);

        if (strcmp(w->service, name) == 0)
            call_notify(w->call);
    }
}

void health_set_all(struct health *h, enum health_status status)
{
    for (struct link *l = list_first(&h->services); l != NULL; l = list_next(&h->services, l))
        health_set(h, container_of(l, struct service, link)->name, status);
}

static enum status health_check(struct call *call, const check_request *request,
                                check_response *response, struct error *err)
{
    const struct service *s = health_find(call_health(call), request->service);

    if (s == NULL)
        return error_because(err, STATUS_NOT_FOUND, REASON_SERVICE_NOT_FOUND, "service",
                             "there is no service '%s'", request->service);
    response->status = (Grpc__Health__V1__HealthCheckResponse__ServingStatus)s->status;
    return STATUS_OK;
}

static void health_watch_write_ready(struct call *call, void *state)
{
    struct health_watcher *w = state;
    const struct service *s = health_find(w->health, w->service);
    enum health_status now = s == NULL ? HEALTH_SERVICE_UNKNOWN : s->status;
    check_response response = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;

    if (w->has_told && w->told == now)
        return;
    w->has_told = true;
    w->told = now;
    response.status = (Grpc__Health__V1__HealthCheckResponse__ServingStatus)now;
    call_write(call, &response.base, false);
}

static void health_watch_on_close(struct call *call, void *state, enum status why)
{
    struct health_watcher *w = state;

    list_remove(&w->link);
    free(w);
}

static void health_watch(struct call *call, const check_request *request)
{
    static const struct call_handler handler = {.on_write_ready = health_watch_write_ready,
                                                .on_close = health_watch_on_close,
                                                .is_unawaited = true};
    struct health_watcher *w = xalloc(sizeof(*w));

    w->health = call_health(call);
    w->call = call;
    w->service = request->service;
    list_push(&w->health->watchers, &w->link);
    call_set_handler(call, &handler, w);
    call_notify(call);
}

#define HEALTH_METHODS(METHOD)                                                                   \
    METHOD(ANSWER, OPEN, "/grpc.health.v1.Health/Check", grpc__health__v1__health_check_request, \
           grpc__health__v1__health_check_response, health_check)                                \
    METHOD(SERVER_STREAM, OPEN, "/grpc.health.v1.Health/Watch",                                  \
           grpc__health__v1__health_check_request, grpc__health__v1__health_check_response,      \
           health_watch)

CALL_TABLE(health_methods, HEALTH_METHODS)
