/* A minimal HTTP server with libwebsockets' own HTTP: answers every POST with one text. Its cost is
 * the floor that parleyd's HTTP is compared with. Prints its port. usage: http_floor TEXT */
#include <libwebsockets.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static const char *text;
static volatile sig_atomic_t is_over;

static int answer(struct lws *wsi)
{
    unsigned char buffer[LWS_PRE + 2048];
    unsigned char *start = buffer + LWS_PRE, *p = start, *end = buffer + sizeof(buffer) - 1;
    size_t len = strlen(text);

    if (lws_add_http_common_headers(wsi, HTTP_STATUS_OK, "application/json", len, &p, end) != 0 ||
        lws_finalize_write_http_header(wsi, start, &p, end) != 0)
        return 1;
    memcpy(start, text, len);
    if (lws_write(wsi, start, len, LWS_WRITE_HTTP_FINAL) < 0)
        return 1;
    return lws_http_transaction_completed(wsi);
}

static int on_event(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
                    size_t len)
{
    if (reason == LWS_CALLBACK_HTTP)
        return 0; /* waits for the body */
    if (reason == LWS_CALLBACK_HTTP_BODY_COMPLETION)
        return answer(wsi) != 0 ? -1 : 0;
    return lws_callback_http_dummy(wsi, reason, user, in, len);
}

static void on_signal(int number)
{
    is_over = 1;
}

int main(int argc, char **argv)
{
    static const struct lws_protocols protocols[] = {{.name = "http", .callback = on_event}, {0}};
    struct lws_context_creation_info info = {
        .port = 0,
        .iface = "127.0.0.1",
        .protocols = protocols,
        .options = LWS_SERVER_OPTION_EXPLICIT_VHOSTS,
        .gid = (gid_t)-1,
        .uid = (uid_t)-1,
    };
    struct lws_context *context;
    struct lws_vhost *vhost;

    if (argc != 2 || strlen(argv[1]) > 1024)
        return 2;
    text = argv[1];
    (void)signal(SIGTERM, on_signal);
    lws_set_log_level(LLL_ERR, NULL);
    context = lws_create_context(&info);
    vhost = context == NULL ? NULL : lws_create_vhost(context, &info);
    if (vhost == NULL)
        return 1;
    (void)printf("%d\n", lws_get_vhost_listen_port(vhost));
    (void)fflush(stdout);
    while (!is_over && lws_service(context, 0) >= 0)
        ;
    lws_context_destroy(context);
    return 0;
}
