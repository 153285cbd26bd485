/* A pull from a hub that lists two files; what is there of them was fetched before, so they are
 * only checked. */
#include "base/fetch/pull.h"

#include <arpa/inet.h>
#include <ftw.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fetch/hub_cache_write.h"
#include "tests/unit/base/suite.h"

#define COMMIT "0123456789abcdef0123456789abcdef01234567"
#define FIRST                                                                                      \
    "2e65efe2a145dda7ee51d1741299f848e5bf752e"            /* git's hash of a file with the text a, \
                                                           */
#define SECOND "63d8dbd40c23542e740659a7168a0ce3138ea748" /* and with the text b */

static const char list[] = "{\"sha\": \"" COMMIT "\", \"siblings\": ["
                           "{\"rfilename\": \"m-00001-of-00002.gguf\", \"size\": 1,"
                           " \"blobId\": \"" FIRST "\"},"
                           "{\"rfilename\": \"m-00002-of-00002.gguf\", \"size\": 1,"
                           " \"blobId\": \"" SECOND "\"}]}";

static char root[64], repository[128];

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    return remove(path);
}

static void put(const char *etag, const char *text)
{
    char *path = hub_cache_blob(repository, etag, ".parley");
    struct error err;
    FILE *file;

    ck_assert_int_eq(hub_cache_make_folders(path, &err), STATUS_OK);
    file = fopen(path, "we");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(text, file), 0);
    ck_assert_int_eq(fclose(file), 0);
    free(path);
}

/* Answers one request with the list. */
static void *serve_list(void *arg)
{
    const int *listener = arg;
    int fd = accept(*listener, NULL, NULL);
    char asked[4096], head[128];
    size_t len = 0;
    ssize_t n = 1;

    while (n > 0 && len + 1 < sizeof(asked)) {
        n = read(fd, asked + len, sizeof(asked) - 1 - len);
        len += n > 0 ? (size_t)n : 0;
        asked[len] = '\0';
        if (strstr(asked, "\r\n\r\n") != NULL)
            break;
    }
    (void)snprintf(head, sizeof(head), "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n",
                   strlen(list));
    (void)!write(fd, head, strlen(head));
    (void)!write(fd, list, strlen(list));
    (void)close(fd);
    return NULL;
}

struct outcome {
    struct pull *pull;
    uv_prepare_t prepare; /* before the loop takes the check's end */
    bool is_cancelled_while_checked;
    size_t n_checked;
    struct error why;
};

static void on_prepare(uv_prepare_t *prepare)
{
    const struct outcome *o = prepare->data;

    (void)uv_prepare_stop(prepare);
    pull_cancel(o->pull);
}

static void on_progress(void *arg, const struct pull_progress *now)
{
    struct outcome *o = arg;

    if (now->stage != PULL_CHECKING)
        return;
    o->n_checked++;
    if (o->is_cancelled_while_checked && o->n_checked == 1)
        (void)uv_prepare_start(&o->prepare, on_prepare);
}

static void on_done(void *arg, const char *path, const struct error *err)
{
    struct outcome *o = arg;

    o->why = *err;
    uv_close((uv_handle_t *)&o->prepare, NULL);
}

static void run_pull(struct outcome *o)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct pull_config config = {
        .n_connections = 1, .progress = on_progress, .done = on_done, .arg = o};
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t size = sizeof(at);
    char endpoint[64];
    pthread_t server;
    struct error err;
    uv_loop_t loop;

    ck_assert_int_eq(bind(listener, (struct sockaddr *)&at, sizeof(at)), 0);
    ck_assert_int_eq(listen(listener, 1), 0);
    ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&at, &size), 0);
    (void)snprintf(endpoint, sizeof(endpoint), "http://127.0.0.1:%u", ntohs(at.sin_port));
    ck_assert_int_eq(setenv("HF_ENDPOINT", endpoint, 1), 0);
    ck_assert_int_eq(pthread_create(&server, NULL, serve_list, &listener), 0);
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    ck_assert_int_eq(uv_prepare_init(&loop, &o->prepare), 0);
    o->prepare.data = o;
    ck_assert_int_eq(model_name_parse(&config.name, "hf:o/r", &err), STATUS_OK);
    config.loop = &loop;
    ck_assert_msg(pull_start(&o->pull, &config, &err) == STATUS_OK, "%s", err.text);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    ck_assert_int_eq(pthread_join(server, NULL), 0);
    (void)close(listener);
}

/* Files whose marks were cut off already are not fetched again. A cancel while the first one is
 * checked ends the pull before the second one begins, and the next pull goes on. */
START_TEST(a_cancel_is_kept)
{
    struct outcome cut = {.is_cancelled_while_checked = true}, whole = {0};

    (void)snprintf(root, sizeof(root), "/tmp/parley-test-pull-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(root));
    (void)snprintf(repository, sizeof(repository), "%s/models--o--r", root);
    ck_assert_int_eq(setenv("HF_HUB_CACHE", root, 1), 0);
    ck_assert_int_eq(setenv("HF_TOKEN", "none", 1), 0);
    ck_assert_int_eq(setenv("no_proxy", "127.0.0.1", 1), 0);
    ck_assert_int_eq(unsetenv("HF_HUB_OFFLINE"), 0);
    put(FIRST, "a");
    put(SECOND, "b");
    run_pull(&cut);
    ck_assert_msg(cut.why.status == STATUS_CANCELLED, "%s", cut.why.text);
    ck_assert_uint_eq(cut.n_checked, 1);
    ck_assert(hub_cache_has_blob(repository, FIRST));
    ck_assert(!hub_cache_has_blob(repository, SECOND));
    run_pull(&whole);
    ck_assert_msg(whole.why.status == STATUS_OK, "%s", whole.why.text);
    ck_assert_uint_eq(whole.n_checked, 1);
    ck_assert(hub_cache_has_blob(repository, SECOND));
    (void)nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}
END_TEST

SUITE_MAIN("base/fetch/pull", a_cancel_is_kept)
