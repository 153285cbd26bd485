/* libcurl says which sockets it watches and when its next timer is due; the loop tells it what
 * happens. A finished transfer is taken from libcurl's queue after each call into libcurl, and its
 * on_end may start others. */
#include "base/fetch/transfers.h"

#include <assert.h>
#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/number.h"

enum {
    CONNECT_MS = 20000,
    SILENCE_S = 60, /* without a byte */
    MAX_REDIRECTS = 8,
    BUFFER_BYTES = 128 << 10,
    RETRY_AFTER_MAX_S = 86400
};

struct transfers {
    uv_loop_t *loop;
    uv_timer_t timer;
    CURLM *multi;
    const char *ca_file; /* NULL: libcurl's own */
    size_t n_handles;    /* open handles of the loop */
    int n_collecting;    /* calls of transfers_collect under way */
    bool is_closing;
};

/* A socket that libcurl watches. */
struct watched_socket {
    uv_poll_t poll;
    struct transfers *t;
    curl_socket_t fd;
};

struct web_transfer {
    struct transfers *t;
    CURL *easy;
    struct transfer_request request;
    struct transfer_answer answer;
    bool has_token;
    char message[CURL_ERROR_SIZE];
    char text[200]; /* the beginning of an error's body */
    size_t text_len;
};

/* --- the loop --- */

static void transfers_free(struct transfers *t)
{
    if (t->n_handles == 0 && t->is_closing)
        free(t);
}

static void on_socket_closed(uv_handle_t *handle)
{
    struct watched_socket *s = handle->data;
    struct transfers *t = s->t;

    t->n_handles--;
    free(s);
    transfers_free(t);
}

static void transfers_collect(struct transfers *t);

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct watched_socket *s = poll->data;
    struct transfers *t = s->t;
    int flags = status < 0 ? CURL_CSELECT_ERR : 0, n_running;

    flags |= (events & UV_READABLE) != 0 ? CURL_CSELECT_IN : 0;
    flags |= (events & UV_WRITABLE) != 0 ? CURL_CSELECT_OUT : 0;
    (void)curl_multi_socket_action(t->multi, s->fd, flags, &n_running); /* may close s */
    transfers_collect(t);
}

static int on_curl_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *socket_arg)
{
    struct transfers *t = arg;
    struct watched_socket *s = socket_arg;
    int events = 0;

    if (what == CURL_POLL_REMOVE) {
        if (s != NULL)
            uv_close((uv_handle_t *)&s->poll, on_socket_closed);
        (void)curl_multi_assign(t->multi, fd, NULL);
        return 0;
    }
    if (s == NULL) {
        s = xalloc(sizeof(*s));
        s->t = t;
        s->fd = fd;
        if (uv_poll_init_socket(t->loop, &s->poll, fd) != 0) {
            free(s);
            return -1;
        }
        s->poll.data = s;
        t->n_handles++;
        (void)curl_multi_assign(t->multi, fd, s);
    }
    events |= (what & CURL_POLL_IN) != 0 ? UV_READABLE : 0;
    events |= (what & CURL_POLL_OUT) != 0 ? UV_WRITABLE : 0;
    return uv_poll_start(&s->poll, events, on_poll) == 0 ? 0 : -1;
}

static void on_timer(uv_timer_t *timer)
{
    struct transfers *t = timer->data;
    int n_running;

    (void)curl_multi_socket_action(t->multi, CURL_SOCKET_TIMEOUT, 0, &n_running);
    transfers_collect(t);
}

static int on_curl_timer(CURLM *multi, long timeout_ms, void *arg)
{
    struct transfers *t = arg;

    if (timeout_ms < 0)
        (void)uv_timer_stop(&t->timer); /* neither can fail while the timer is open */
    else
        (void)uv_timer_start(&t->timer, on_timer, (uint64_t)timeout_ms, 0);
    return 0;
}

/* Where certificates are that TLS trusts; Debian's libcurl looks in Debian's place alone. */
static const char *find_ca_file(void)
{
    static const char *const places[] = {"/etc/ssl/certs/ca-certificates.crt",
                                         "/etc/pki/tls/certs/ca-bundle.crt",
                                         "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"};
    const char *given = getenv("SSL_CERT_FILE");

    if (given != NULL && given[0] != '\0')
        return given;
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
        if (access(places[i], R_OK) == 0)
            return i == 0 ? NULL : places[i];
    return NULL;
}

enum status transfers_open(struct transfers **out, uv_loop_t *loop, struct error *err)
{
    struct transfers *t;

    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return error_set(err, STATUS_INTERNAL, "libcurl cannot begin");
    t = xalloc(sizeof(*t));
    t->loop = loop;
    t->ca_file = find_ca_file();
    t->multi = curl_multi_init();
    if (t->multi == NULL) {
        free(t);
        return error_no_memory(err, 0, "transfers");
    }
    (void)uv_timer_init(loop, &t->timer); /* cannot fail */
    t->timer.data = t;
    t->n_handles = 1;
    (void)curl_multi_setopt(t->multi, CURLMOPT_SOCKETFUNCTION, on_curl_socket);
    (void)curl_multi_setopt(t->multi, CURLMOPT_SOCKETDATA, t);
    (void)curl_multi_setopt(t->multi, CURLMOPT_TIMERFUNCTION, on_curl_timer);
    (void)curl_multi_setopt(t->multi, CURLMOPT_TIMERDATA, t);
    *out = t;
    return STATUS_OK;
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct transfers *t = handle->data;

    t->n_handles--;
    transfers_free(t);
}

static void transfers_end(struct transfers *t)
{
    (void)curl_multi_cleanup(t->multi); /* closes kept connections, and thereby their sockets */
    uv_close((uv_handle_t *)&t->timer, on_timer_closed);
}

void transfers_close(struct transfers *t)
{
    if (t == NULL)
        return;
    t->is_closing = true;
    if (t->n_collecting == 0) /* else libcurl's queue is being read */
        transfers_end(t);
}

/* --- an answer's head --- */

/* Where line is the header of this name, its value. */
static const char *header_value(const char *line, const char *name)
{
    size_t len = strlen(name);

    if (strncasecmp(line, name, len) != 0 || line[len] != ':')
        return NULL;
    line += len + 1;
    return line + strspn(line, " \t");
}

static void take_header(char *out, size_t size, const char *line, const char *name)
{
    const char *value = header_value(line, name);

    if (value != NULL)
        (void)snprintf(out, size, "%.*s", (int)strcspn(value, "\r\n"), value);
}

static size_t on_header(char *data, size_t size, size_t n, void *arg)
{
    struct web_transfer *x = arg;
    char line[512];
    size_t len = size * n < sizeof(line) - 1 ? size * n : sizeof(line) - 1;
    const char *value;
    uint64_t seconds;

    memcpy(line, data, len);
    line[len] = '\0';
    take_header(x->answer.error_code, sizeof(x->answer.error_code), line, "X-Error-Code");
    value = header_value(line, "Retry-After");
    if (value != NULL && number_take(&seconds, value, 8, RETRY_AFTER_MAX_S) > 0)
        x->answer.retry_after_s = seconds;
    return size * n;
}

/* --- an answer's body --- */

static long transfer_status(const struct web_transfer *x)
{
    long status = 0;

    (void)curl_easy_getinfo(x->easy, CURLINFO_RESPONSE_CODE, &status);
    return status;
}

static bool is_wanted(const struct web_transfer *x, long status)
{
    return status == (x->request.to != 0 ? 206 : 200);
}

static size_t on_body(char *data, size_t size, size_t n, void *arg)
{
    struct web_transfer *x = arg;
    size_t len = size * n, kept;
    long status = transfer_status(x);

    if (!is_wanted(x, status)) {
        kept = sizeof(x->text) - 1 - x->text_len;
        kept = len < kept ? len : kept;
        memcpy(x->text + x->text_len, data, kept);
        x->text_len += kept;
        return status == 200 ? 0 : len; /* a whole file where a part was asked for is not read */
    }
    switch (x->request.on_data(x->request.arg, data, len)) {
    case TRANSFER_TAKEN:
        return len;
    case TRANSFER_PAUSE:
        return CURL_WRITEFUNC_PAUSE;
    default:
        return 0;
    }
}

/* --- a transfer --- */

static enum status transfer_set(struct web_transfer *x, struct error *err)
{
    const struct transfer_request *r = &x->request;
    CURL *c = x->easy;
    char range[64];
    CURLcode rc;

    (void)snprintf(range, sizeof(range), "%llu-%llu", (unsigned long long)r->from,
                   (unsigned long long)(r->to - 1));
    rc = curl_easy_setopt(c, CURLOPT_URL, r->url);
#define SET(option, value) rc = rc != CURLE_OK ? rc : curl_easy_setopt(c, option, value)
    SET(CURLOPT_PRIVATE, x);
    SET(CURLOPT_ERRORBUFFER, x->message);
    SET(CURLOPT_USERAGENT, "parley/" PARLEY_VERSION);
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_PROTOCOLS_STR, "http,https");
    SET(CURLOPT_REDIR_PROTOCOLS_STR,
        strncasecmp(r->url, "https:", 6) == 0 ? "https" : "http,https");
    SET(CURLOPT_FOLLOWLOCATION, 1L);
    SET(CURLOPT_MAXREDIRS, (long)MAX_REDIRECTS);
    SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1); /* several connections, not one */
    SET(CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    SET(CURLOPT_LOW_SPEED_LIMIT, 1L);
    SET(CURLOPT_LOW_SPEED_TIME, (long)SILENCE_S);
    SET(CURLOPT_BUFFERSIZE, (long)BUFFER_BYTES);
    SET(CURLOPT_HEADERFUNCTION, on_header);
    SET(CURLOPT_HEADERDATA, x);
    SET(CURLOPT_WRITEFUNCTION, on_body);
    SET(CURLOPT_WRITEDATA, x);
    if (x->t->ca_file != NULL)
        SET(CURLOPT_CAINFO, x->t->ca_file);
    if (r->token != NULL) {
        SET(CURLOPT_HTTPAUTH, (long)CURLAUTH_BEARER);
        SET(CURLOPT_XOAUTH2_BEARER, r->token);
    }
    if (r->to != 0)
        SET(CURLOPT_RANGE, range);
#undef SET
    if (rc != CURLE_OK)
        return error_set(err, STATUS_INVALID, "%.100s: %s", r->url, curl_easy_strerror(rc));
    return STATUS_OK;
}

static void transfer_free(struct web_transfer *x)
{
    curl_easy_cleanup(x->easy);
    free(x);
}

enum status transfer_start(struct web_transfer **out, struct transfers *t,
                           const struct transfer_request *request, struct error *err)
{
    struct web_transfer *x = xalloc(sizeof(*x));

    enum status rc = STATUS_OK;

    x->t = t;
    x->request = *request;
    x->easy = curl_easy_init();
    if (x->easy == NULL)
        rc = error_no_memory(err, 0, "a transfer");
    if (rc == STATUS_OK)
        rc = transfer_set(x, err);
    if (rc == STATUS_OK && curl_multi_add_handle(t->multi, x->easy) != CURLM_OK)
        rc = error_no_memory(err, 0, "a transfer");
    if (rc != STATUS_OK) {
        transfer_free(x);
        return rc;
    }
    x->has_token = request->token != NULL;
    x->request.url = x->request.token = NULL; /* libcurl has copies */
    *out = x;
    return STATUS_OK;
}

void transfer_go_on(struct web_transfer *x)
{
    struct transfers *t = x->t;

    (void)curl_easy_pause(x->easy, CURLPAUSE_CONT); /* the piece comes by a timer, or inside */
    transfers_collect(t);
}

void transfer_cancel(struct web_transfer *x)
{
    (void)curl_multi_remove_handle(x->t->multi, x->easy);
    transfer_free(x);
}

const struct transfer_answer *transfer_answer(const struct web_transfer *x)
{
    return &x->answer;
}

/* --- ends --- */

/* What to do about an answer of the hub that is an error. */
static enum status transfer_refused(const struct web_transfer *x, struct error *err)
{
    const struct transfer_answer *a = &x->answer;
    bool is_gated = strcmp(a->error_code, "GatedRepo") == 0;

    switch (a->http_status) {
    case 200:
        return error_set(err, STATUS_UNIMPLEMENTED, "the server sends no parts of files");
    case 401:
    case 403:
        if (is_gated)
            return error_set(err, STATUS_DENIED,
                             "its owner gives access on request: accept its conditions on the "
                             "hub's page, and set HF_TOKEN to a token of that account");
        if (x->has_token && a->http_status == 401)
            return error_set(err, STATUS_UNAUTHENTICATED,
                             "HTTP 401: the token of HF_TOKEN, or of 'hf auth login', is not valid "
                             "there, or may not read the repository");
        return error_set(err, a->http_status == 401 ? STATUS_UNAUTHENTICATED : STATUS_DENIED,
                         "HTTP %ld: the repository is private or does not exist; set HF_TOKEN to a "
                         "token that may read it",
                         a->http_status);
    case 404:
        return error_set(err, STATUS_NOT_FOUND, "HTTP 404: there is no such %s",
                         strcmp(a->error_code, "EntryNotFound") == 0  ? "file"
                         : strcmp(a->error_code, "RepoNotFound") == 0 ? "repository"
                                                                      : "repository or file");
    case 416:
        return error_set(err, STATUS_DATA_LOSS, "HTTP 416: the file is shorter than the hub said");
    case 429:
        return error_set(err, STATUS_UNAVAILABLE,
                         "HTTP 429: too many requests; come back in %llu s",
                         (unsigned long long)(a->retry_after_s > 0 ? a->retry_after_s : 60));
    default:
        return error_set(err,
                         a->http_status >= 500 || a->http_status == 408 ? STATUS_UNAVAILABLE
                                                                        : STATUS_INVALID,
                         "HTTP %ld: %.100s", a->http_status, x->text);
    }
}

static enum status transfer_judge(struct web_transfer *x, CURLcode code, struct error *err)
{
    const char *message = x->message[0] != '\0' ? x->message : curl_easy_strerror(code);

    x->answer.http_status = transfer_status(x);
    if (x->answer.http_status != 0 && !is_wanted(x, x->answer.http_status) &&
        (code == CURLE_OK || code == CURLE_WRITE_ERROR))
        return transfer_refused(x, err);
    switch (code) {
    case CURLE_OK:
        return STATUS_OK;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT:
    case CURLE_TOO_MANY_REDIRECTS:
    case CURLE_WRITE_ERROR: /* on_data's own stop */
        return error_set(err, STATUS_PRECONDITION, "%s", message);
    default:
        return error_set(err, STATUS_UNAVAILABLE, "%s", message);
    }
}

static void transfer_end(struct web_transfer *x, CURLcode code)
{
    struct error err = {0};

    (void)transfer_judge(x, code, &err);
    (void)curl_multi_remove_handle(x->t->multi, x->easy);
    x->request.on_end(x->request.arg, x, &err);
    transfer_free(x);
}

static void transfers_collect(struct transfers *t)
{
    CURLMsg *message;
    int n;

    t->n_collecting++;
    while (!t->is_closing && (message = curl_multi_info_read(t->multi, &n)) != NULL) {
        CURLcode code = message->data.result;
        struct web_transfer *x = NULL;

        (void)curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&x);
        assert(x != NULL);
        transfer_end(x, code); /* message is gone; may start and cancel others */
    }
    if (--t->n_collecting == 0 && t->is_closing)
        transfers_end(t);
}
