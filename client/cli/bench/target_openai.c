/* A server that speaks OpenAI's API over HTTP: completions, chat completions or responses, streamed
 * as server-sent events. There the client keeps the conversation: each turn sends all of it.
 *
 * The target's thread drives libcurl's multi interface. Send and leave only put the session on a
 * list and wake the thread, which starts or removes the transfer. The end of a transfer calls the
 * session's end. */
#include <assert.h>
#include <curl/curl.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/env.h"
#include "base/list.h"
#include "cli/output/console.h"
#include "cli/output/interrupt.h"
#include "client/cli/bench/openai.h"
#include "client/cli/bench/target.h"

enum {
    MAX_ANSWER_BYTES = 16 << 20, /* bound on the list of models */
    POLL_MS = 1000,
    PAUSE_MS = 100, /* between two attempts to reach the server */
    PROBE_MS = 5000,
};

struct openai_target {
    struct target base;
    struct target_config config;
    char url[512], model[256];
    struct curl_slist *headers;
    CURLM *multi;
    pthread_t thread;
    pthread_mutex_t lock;
    struct list wanted; /* guarded by lock: sessions whose transfer is to start or be removed */
    bool is_closing;    /* guarded by lock */
    struct list live;   /* the thread's: transfers in flight */
};

struct openai_session {
    struct target_session base;
    struct openai_target *target;
    struct link wanted, live;
    bool is_wanted_off; /* guarded by the target's lock, as is whether it is in flight */
    bool is_in_flight;
    CURL *easy; /* NULL until the first turn */
    char *body; /* of the request in flight */
    struct openai conversation;
};

static struct openai_session *openai_session_of(struct target_session *s)
{
    return container_of(s, struct openai_session, base);
}

static struct openai_target *openai_target_of(struct target *t)
{
    return container_of(t, struct openai_target, base);
}

/* 0 before the response. */
static long response_code(CURL *easy)
{
    long code = 0;

    (void)curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &code); /* code stays if it fails */
    return code;
}

static size_t on_bytes(char *bytes, size_t size, size_t n, void *arg)
{
    struct openai_session *s = arg;

    return openai_feed(&s->conversation, response_code(s->easy), bytes, size * n) ? size * n : 0;
}

/* --- the thread --- */

/* The transfer is over and removed from the multi handle. */
static void openai_session_end(struct openai_session *s)
{
    struct openai_target *t = s->target;

    list_remove(&s->live);
    free(s->body);
    s->body = NULL;
    (void)pthread_mutex_lock(&t->lock);
    s->is_in_flight = false;
    if (link_is_on(&s->wanted))
        list_remove(&s->wanted);
    (void)pthread_mutex_unlock(&t->lock);
    s->base.events->end(&s->base, &s->conversation.err);
}

static void on_over(struct openai_session *s, CURLcode how)
{
    /* Cannot fail: the handle is in this multi handle. */
    (void)curl_multi_remove_handle(s->target->multi, s->easy);
    if (how == CURLE_OK)
        openai_end(&s->conversation, response_code(s->easy));
    else
        openai_fail(&s->conversation, STATUS_UNAVAILABLE, "the connection failed",
                    curl_easy_strerror(how));
    openai_session_end(s);
}

/* Starts or removes the transfers of the wanted sessions. False: the target is closing and no
 * transfer is in flight. */
static bool take_wanted(struct openai_target *t)
{
    struct list wanted;
    struct link *l;
    bool is_closing;

    list_init(&wanted);
    (void)pthread_mutex_lock(&t->lock);
    list_move(&t->wanted, &wanted);
    is_closing = t->is_closing;
    for (l = list_first(&t->live); is_closing && l != NULL; l = list_next(&t->live, l))
        container_of(l, struct openai_session, live)->is_wanted_off = true;
    (void)pthread_mutex_unlock(&t->lock);
    while ((l = list_pop(&wanted)) != NULL) {
        struct openai_session *s = container_of(l, struct openai_session, wanted);

        if (!link_is_on(&s->live)) {
            list_push(&t->live, &s->live);
            if (curl_multi_add_handle(t->multi, s->easy) != CURLM_OK)
                openai_fail(&s->conversation, STATUS_EXHAUSTED,
                            "libcurl cannot start another transfer", "");
        }
    }
    for (l = list_first(&t->live); l != NULL;) {
        struct openai_session *s = container_of(l, struct openai_session, live);
        bool is_wanted_off;

        l = list_next(&t->live, l);
        (void)pthread_mutex_lock(&t->lock);
        is_wanted_off = s->is_wanted_off;
        (void)pthread_mutex_unlock(&t->lock);
        if (is_wanted_off || s->conversation.err.status != STATUS_OK) {
            /* Harmless if the handle is not in this multi handle. */
            (void)curl_multi_remove_handle(t->multi, s->easy);
            openai_fail(&s->conversation, STATUS_CANCELLED, "left", "");
            openai_session_end(s);
        }
    }
    return !is_closing || !list_is_empty(&t->live);
}

static void *drive(void *arg)
{
    struct openai_target *t = arg;

    while (take_wanted(t)) {
        const CURLMsg *message;
        int n;

        (void)curl_multi_perform(t->multi, &n); /* failures are reported for each transfer */
        while ((message = curl_multi_info_read(t->multi, &n)) != NULL) {
            CURLcode how = message->data.result; /* freed with the handle */
            char *owner = NULL;

            if (message->msg != CURLMSG_DONE)
                continue;
            (void)curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &owner);
            on_over((struct openai_session *)(void *)owner, how);
        }
        (void)curl_multi_poll(t->multi, NULL, 0, POLL_MS, NULL); /* woken by want() */
    }
    return NULL;
}

static void want(struct openai_session *s)
{
    struct openai_target *t = s->target;

    (void)pthread_mutex_lock(&t->lock);
    if (!link_is_on(&s->wanted))
        list_push(&t->wanted, &s->wanted);
    /* Fails only if the pipe is full, which wakes the thread as well. */
    (void)curl_multi_wakeup(t->multi);
    (void)pthread_mutex_unlock(&t->lock);
}

/* A handle for this server. NULL: libcurl has no memory. */
static CURL *open_easy(const struct openai_target *t)
{
    const struct connection_options *how = &t->config.connection;
    CURL *easy = curl_easy_init();

    if (easy == NULL)
        return NULL;
    (void)curl_easy_setopt(easy, CURLOPT_HTTPHEADER, t->headers);
    (void)curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    /* A connection for each request, with TLS as without. */
    (void)curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
    (void)curl_easy_setopt(easy, CURLOPT_NOPROXY, "*"); /* proxies are meant for the web */
    if (how->ca != NULL)
        (void)curl_easy_setopt(easy, CURLOPT_CAINFO, how->ca);
    if (how->cert != NULL)
        (void)curl_easy_setopt(easy, CURLOPT_SSLCERT, how->cert);
    if (how->tls_key != NULL)
        (void)curl_easy_setopt(easy, CURLOPT_SSLKEY, how->tls_key);
    return easy;
}

/* --- a turn --- */

static enum status make_easy(struct openai_session *s)
{
    CURL *easy = open_easy(s->target);

    if (easy == NULL)
        return STATUS_EXHAUSTED;
    s->easy = easy;
    (void)curl_easy_setopt(easy, CURLOPT_URL, s->target->url);
    (void)curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_bytes);
    (void)curl_easy_setopt(easy, CURLOPT_WRITEDATA, s);
    (void)curl_easy_setopt(easy, CURLOPT_PRIVATE, s);
    openai_init(&s->conversation, &s->base, openai_api_of(&s->target->config));
    return STATUS_OK;
}

static enum status openai_send(struct target *base, struct target_session *b, struct error *err)
{
    struct openai_session *s = openai_session_of(b);
    enum status rc;

    session_begin(b);
    s->target = openai_target_of(base);
    if (s->easy == NULL && make_easy(s) != STATUS_OK)
        return error_set(err, STATUS_EXHAUSTED, "libcurl cannot start another transfer");
    rc = openai_request(&s->body, &s->conversation, &s->target->config, s->target->model, err);
    if (rc != STATUS_OK)
        return rc;
    (void)curl_easy_setopt(s->easy, CURLOPT_POSTFIELDS, s->body);
    (void)pthread_mutex_lock(&s->target->lock);
    s->is_wanted_off = false;
    s->is_in_flight = true;
    (void)pthread_mutex_unlock(&s->target->lock);
    want(s);
    return STATUS_OK;
}

static void openai_leave(struct target *base, struct target_session *b)
{
    struct openai_target *t = openai_target_of(base);
    struct openai_session *s = openai_session_of(b);
    bool is_in_flight;

    (void)pthread_mutex_lock(&t->lock);
    is_in_flight = s->is_in_flight;
    s->is_wanted_off = is_in_flight;
    (void)pthread_mutex_unlock(&t->lock);
    if (is_in_flight)
        want(s);
}

static void openai_session_deinit(struct target_session *b)
{
    struct openai_session *s = openai_session_of(b);

    if (s->easy == NULL)
        return;
    curl_easy_cleanup(s->easy);
    openai_deinit(&s->conversation);
}

/* --- the server --- */

static size_t openai_keep_text(char *bytes, size_t size, size_t n, void *arg)
{
    return buf_append(arg, bytes, size * n) == STATUS_OK ? size * n : 0;
}

/* GET /v1/models: true when the server answers without a server error. */
static bool ask_models(const struct openai_target *t, const char *url, struct buf *answer,
                       CURLcode *ret_why)
{
    CURL *easy = open_easy(t);
    long code;

    buf_clear(answer);
    *ret_why = CURLE_OUT_OF_MEMORY;
    if (easy == NULL)
        return false;
    (void)curl_easy_setopt(easy, CURLOPT_URL, url);
    (void)curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, openai_keep_text);
    (void)curl_easy_setopt(easy, CURLOPT_WRITEDATA, answer);
    (void)curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)PROBE_MS);
    *ret_why = curl_easy_perform(easy);
    code = *ret_why == CURLE_OK ? response_code(easy) : 0;
    curl_easy_cleanup(easy);
    return code >= 200 && code < 500;
}

static const struct probe_cause {
    CURLcode why;
    bool is_final; /* a longer wait does not change it */
    const char *said;
} causes[] = {
    {CURLE_UNSUPPORTED_PROTOCOL, true, /* HTTP/0.9, which libcurl takes all other bytes for */
     "what answers there is not HTTP: it may be the port of gRPC (parley://), or want https://"},
    {CURLE_WEIRD_SERVER_REPLY, true,
     "what answers there is not HTTP: it may be the port of gRPC (parley://), or want https://"},
    {CURLE_SSL_CONNECT_ERROR, false, /* also where what begins resets a connection */
     "the TLS handshake fails there: http:// may be right"},
    {CURLE_PEER_FAILED_VERIFICATION, true,
     "its certificate is for another name, or signed by an authority that is not known here: "
     "--ca names the authority's file"},
};

/* NULL: a longer wait may help, and libcurl's words do. */
static const struct probe_cause *cause_of_probe(CURLcode why)
{
    for (size_t i = 0; i < sizeof(causes) / sizeof(causes[0]); i++)
        if (causes[i].why == why)
            return &causes[i];
    return NULL;
}

/* Waits for the server at this URL, and takes the name of its first model, "" where it lists none.
 */
static bool find_server(struct openai_target *t, const char *server)
{
    double wait_s = t->config.connection.wait_s;
    uint64_t end_us = env_now_us(&env_real) + (uint64_t)(wait_s * 1e6);
    struct buf answer;
    char url[512];
    CURLcode why;
    const struct probe_cause *cause = NULL;
    bool is_there;
    json_t *list;
    const char *name;

    buf_init(&answer, MAX_ANSWER_BYTES);
    (void)snprintf(url, sizeof(url), "%s/v1/models", server); /* fits: its length was checked */
    while (!(is_there = ask_models(t, url, &answer, &why)) &&
           ((cause = cause_of_probe(why)) == NULL || !cause->is_final) &&
           env_now_us(&env_real) < end_us && interrupt_sleep(PAUSE_MS))
        console_progress("waiting for the server at %s …", server);
    console_clear();
    if (!is_there && cause != NULL)
        console_error("%s: %s", server, cause->said);
    else if (!is_there)
        console_error("no server is ready at %s: %s (waited %.1f s)", server,
                      why == CURLE_OK ? "it answers with an error" : curl_easy_strerror(why),
                      wait_s);
    list = json_loadb(answer.data, answer.len, 0, NULL);
    name =
        json_string_value(json_object_get(json_array_get(json_object_get(list, "data"), 0), "id"));
    (void)snprintf(t->model, sizeof(t->model), "%s", name == NULL ? "" : name);
    json_decref(list);
    buf_deinit(&answer);
    return is_there;
}

/* Sent with every request. False, with an error printed, if the key cannot be read. */
static bool make_headers(struct openai_target *t)
{
    char *key, *line;
    size_t size;

    if (!connection_read_key(&key, &t->config.connection))
        return false;
    t->headers = curl_slist_append(NULL, "Content-Type: application/json");
    t->headers = curl_slist_append(t->headers, "Expect:"); /* no round trip before a long prompt */
    if (key != NULL) {
        size = strlen(key) + sizeof("Authorization: Bearer ");
        line = xalloc(size);
        (void)snprintf(line, size, "Authorization: Bearer %s", key);
        t->headers = curl_slist_append(t->headers, line);
        free(line);
    }
    free(key);
    return true;
}

/* Starts the thread. */
static bool start(struct openai_target *t, const char *server)
{
    (void)snprintf(t->url, sizeof(t->url), "%s/v1/%s", server,
                   openai_path(openai_api_of(&t->config)));
    if (t->config.model != NULL)
        (void)snprintf(t->model, sizeof(t->model), "%s", t->config.model);
    t->multi = curl_multi_init();
    list_init(&t->wanted);
    list_init(&t->live);
    (void)pthread_mutex_init(&t->lock, NULL); /* cannot fail on Linux */
    if (t->multi != NULL && pthread_create(&t->thread, NULL, drive, t) == 0)
        return true;
    console_error("out of memory for a connection to %s", server);
    (void)curl_multi_cleanup(t->multi);
    return false;
}

static struct target *openai_target_new(const struct target_type *type, const char *address,
                                        const struct target_config *config)
{
    char server[300];
    size_t len = strcspn(address, "/");
    struct openai_target *t;

    if (len == 0 || len >= sizeof(server) - sizeof("https://") ||
        (strcmp(address + len, "") != 0 && strcmp(address + len, "/") != 0 &&
         strcmp(address + len, "/v1") != 0)) {
        console_error("'%s%s' is not %sHOST:PORT", type->scheme, address, type->scheme);
        return NULL;
    }
    (void)snprintf(server, sizeof(server), "%s%.*s", type->scheme, (int)len, address);
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
        console_error("libcurl cannot be initialised");
        return NULL;
    }
    t = xalloc(sizeof(*t));
    t->base.type = type;
    t->config = *config;
    if (make_headers(t) && find_server(t, server) && start(t, server))
        return &t->base;
    curl_slist_free_all(t->headers);
    free(t);
    return NULL;
}

static struct target *openai_target_open(const char *address, const struct target_config *config,
                                         enum exit_code *ret_code)
{
    return openai_target_new(&openai_target, address, config);
}

static struct target *openai_tls_open(const char *address, const struct target_config *config,
                                      enum exit_code *ret_code)
{
    return openai_target_new(&openai_tls_target, address, config);
}

static void openai_target_close(struct target *base)
{
    struct openai_target *t = openai_target_of(base);

    (void)pthread_mutex_lock(&t->lock);
    t->is_closing = true;
    (void)curl_multi_wakeup(t->multi);
    (void)pthread_mutex_unlock(&t->lock);
    (void)pthread_join(t->thread, NULL);
    (void)curl_multi_cleanup(t->multi); /* all handles were removed before */
    curl_slist_free_all(t->headers);
    (void)pthread_mutex_destroy(&t->lock);
    free(t);
    curl_global_cleanup();
}

const struct target_type openai_target = {
    .scheme = "http://",
    .can_constrain = true,
    .session_size = sizeof(struct openai_session),
    .open = openai_target_open,
    .close = openai_target_close,
    .send = openai_send,
    .leave = openai_leave,
    .session_deinit = openai_session_deinit,
};

const struct target_type openai_tls_target = {
    .scheme = "https://",
    .can_constrain = true,
    .session_size = sizeof(struct openai_session),
    .open = openai_tls_open,
    .close = openai_target_close,
    .send = openai_send,
    .leave = openai_leave,
    .session_deinit = openai_session_deinit,
};
