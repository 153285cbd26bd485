#include "server/model/models.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/base/suite.h"

static uv_loop_t loop;
static struct models all;
static uint64_t now_us;
static bool is_serving;
static char said[400]; /* the callbacks of users and waiters, in order */

static uint64_t get_now(void *self)
{
    return now_us;
}

static void note(const char *what, const char *name)
{
    size_t len = strlen(said);

    ck_assert_uint_lt(len + strlen(what) + strlen(name) + 3, sizeof(said));
    (void)snprintf(said + len, sizeof(said) - len, "%s %s; ", what, name);
}

static void expect_said(const char *text)
{
    ck_assert_str_eq(said, text);
    said[0] = '\0';
}

static enum status check_serving(void *arg, struct error *err)
{
    return is_serving ? STATUS_OK : error_set(err, STATUS_UNAVAILABLE, "the server is loading");
}

static void on_change(void *arg, struct model *m)
{
    note(model_state_name(m->state), m->name);
}

static void on_idle(void *arg)
{
    ++*(unsigned *)arg;
}

/* --- a user of models --- */

struct user {
    struct model_user base;
    const char *name;
    bool is_busy, refuses;
};

static bool is_busy(const struct model_user *u, const struct model *m)
{
    return container_of(u, const struct user, base)->is_busy;
}

static enum status refuse(const struct model_user *u, const struct model *m, struct error *err)
{
    return container_of(u, const struct user, base)->refuses
               ? error_set(err, STATUS_PRECONDITION, "model '%s' is needed", m->name)
               : STATUS_OK;
}

static void retire(struct model_user *u, struct model *m)
{
    note("retired by", container_of(u, struct user, base)->name);
}

static void close_all(struct model_user *u, struct model *m)
{
    note("closed by", container_of(u, struct user, base)->name);
}

static struct user first, second;
static const struct user user = {
    .base = {.is_busy = is_busy, .refuse_unload = refuse, .retire = retire, .close = close_all}};

/* --- a waiter --- */

struct waits {
    struct models_wait base;
    unsigned n_done;
    struct error err;
};

static void on_done(struct models_wait *w, const struct error *err)
{
    struct waits *waits = container_of(w, struct waits, base);

    waits->n_done++;
    waits->err = *err;
}

static void until(const unsigned *n, unsigned wanted)
{
    while (*n < wanted)
        (void)uv_run(&loop, UV_RUN_ONCE);
}

/* --- */

static unsigned n_idle;
static struct env env = {.now_us = get_now};

static void open_all(void)
{
    const struct models_config config = {
        .loop = &loop,
        .env = &env,
        .drain_timeout_ms = 1000,
        .model = {.options.backend = "ref", .env = &env_real},
        .check_serving = check_serving,
        .on_change = on_change,
        .on_idle = on_idle,
        .arg = &n_idle,
    };
    struct error err;

    now_us = 1;
    n_idle = 0;
    is_serving = false;
    said[0] = '\0';
    first = second = user;
    first.name = "first";
    second.name = "second";
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    models_init(&all, &config);
    models_open(&all);
    models_add_user(&all, &first.base);
    models_add_user(&all, &second.base);
    ck_assert_int_eq(models_start(&all, "one", NULL, NULL, &err), STATUS_OK);
    ck_assert_int_eq(models_start(&all, "two", NULL, NULL, &err), STATUS_OK);
    until(&n_idle, 2);
    ck_assert_uint_eq(all.n_loading, 0);
    is_serving = true;
    said[0] = '\0'; /* threads load in any order */
}

static void close_all_models(void)
{
    if (!all.has_ended)
        models_end(&all);
    (void)!models_stop(&all); /* the loop runs until they have */
    while (all.n_running > 0)
        (void)uv_run(&loop, UV_RUN_ONCE);
    models_close(&all);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    models_deinit(&all);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}

/* The first registered model is the default; a wrong name lists the known ones. */
START_TEST(names)
{
    struct model *m;
    struct error err;

    open_all();
    ck_assert_int_eq(models_get(&m, &all, "", &err), STATUS_OK);
    ck_assert_str_eq(m->name, "one");
    ck_assert_int_eq(models_get(&m, &all, "two", &err), STATUS_OK);
    ck_assert_str_eq(m->name, "two");
    ck_assert_int_eq(models_get(&m, &all, "three", &err), STATUS_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(err.text, "one, two"));
    close_all_models();
}
END_TEST

/* An agent that is no file is added once, under a name that no other model has. */
START_TEST(types_are_added)
{
    static const struct agent_type some = {.name = "some"};
    struct error err;

    open_all();
    ck_assert_int_eq(models_add_type(&all, "mine", &some, NULL, &err), STATUS_OK);
    ck_assert_int_eq(models_add_type(&all, "mine", &some, NULL, &err), STATUS_OK);
    ck_assert_int_eq(models_find(&all, "mine")->state, MODEL_ENTRY_UNLOADED);
    ck_assert_int_eq(models_add_type(&all, "one", &some, NULL, &err), STATUS_EXISTS);
    ck_assert_int_eq(models_add_type(&all, "", &some, NULL, &err), STATUS_INVALID);
    ck_assert_int_eq(models_add_type(&all, "a b", &some, NULL, &err), STATUS_INVALID);
    close_all_models();
}
END_TEST

/* An unload: users retire, close in order, and the model is stopped when none is busy; then it is
 * known but not loaded, and can be loaded again. */
START_TEST(unload_and_load)
{
    struct waits w = {.base.done = on_done};
    struct model *m;
    struct error err;
    bool is_done;

    open_all();
    ck_assert_int_eq(models_get(&m, &all, "one", &err), STATUS_OK);
    m->statistics.n_open = 1; /* a request is in flight */
    second.is_busy = true;
    ck_assert_int_eq(models_unload(&all, "one", &w.base, &is_done, &err), STATUS_OK);
    ck_assert(!is_done);
    expect_said("unloading one; retired by first; retired by second; ");
    ck_assert_int_eq(models_load(&all, "one", &w.base, &is_done, &err), STATUS_UNAVAILABLE);
    for (int i = 0; i < 3; i++)
        (void)uv_run(&loop, UV_RUN_ONCE);
    expect_said("");
    now_us += 1000 * 1000; /* the drain has timed out */
    while (said[0] == '\0')
        (void)uv_run(&loop, UV_RUN_ONCE);
    expect_said("closed by first; closed by second; ");
    m->statistics.n_open = 0;
    for (int i = 0; i < 3; i++)
        (void)uv_run(&loop, UV_RUN_ONCE);
    ck_assert_uint_eq(w.n_done, 0); /* a user is busy */
    second.is_busy = false;
    until(&w.n_done, 1);
    ck_assert_int_eq(w.err.status, STATUS_OK);
    ck_assert_int_eq(models_get(&m, &all, "one", &err), STATUS_UNAVAILABLE);
    ck_assert_int_eq(models_get(&m, &all, "", &err), STATUS_OK);
    ck_assert_str_eq(m->name, "two");
    ck_assert_uint_eq(all.n_running, 1);
    expect_said("");
    ck_assert_int_eq(models_load(&all, "one", &w.base, &is_done, &err), STATUS_OK);
    until(&w.n_done, 2);
    expect_said("loading one; ready one; ");
    ck_assert_int_eq(models_get(&m, &all, "", &err), STATUS_OK);
    ck_assert_str_eq(m->name, "one");
    close_all_models();
}
END_TEST

/* A model that a user refuses to unload stays; without a serving server no load or unload
 * begins. */
START_TEST(refused)
{
    struct waits w = {.base.done = on_done};
    struct error err;
    bool is_done;

    open_all();
    second.refuses = true;
    ck_assert_int_eq(models_unload(&all, "one", &w.base, &is_done, &err), STATUS_PRECONDITION);
    ck_assert_str_eq(err.text, "model 'one' is needed");
    second.refuses = false;
    is_serving = false;
    ck_assert_int_eq(models_unload(&all, "one", &w.base, &is_done, &err), STATUS_UNAVAILABLE);
    ck_assert_int_eq(models_load(&all, "one", &w.base, &is_done, &err), STATUS_UNAVAILABLE);
    expect_said("");
    close_all_models();
}
END_TEST

/* models_end notifies the waiters, and an unloading model stops with the others. */
START_TEST(ends)
{
    struct waits w = {.base.done = on_done};
    struct error err;
    bool is_done;

    open_all();
    first.is_busy = true;
    ck_assert_int_eq(models_unload(&all, "two", &w.base, &is_done, &err), STATUS_OK);
    models_end(&all);
    ck_assert_uint_eq(w.n_done, 1);
    ck_assert_int_eq(w.err.status, STATUS_UNAVAILABLE);
    first.is_busy = false;
    close_all_models();
    ck_assert_uint_eq(w.n_done, 1);
}
END_TEST

/* A file that is not a model: the waiter gets the error, and it is not loaded. */
START_TEST(load_fails)
{
    struct waits w = {.base.done = on_done};
    struct model *m;
    struct error err;
    bool is_done;

    open_all();
    ck_assert_int_eq(models_unload(&all, "two", &w.base, &is_done, &err), STATUS_OK);
    until(&w.n_done, 1);
    models_find(&all, "two")->path = strdup("/nowhere/two.gguf");
    said[0] = '\0';
    ck_assert_int_eq(models_load(&all, "two", &w.base, &is_done, &err), STATUS_OK);
    until(&w.n_done, 2);
    expect_said("loading two; failed two; ");
    ck_assert_int_ne(w.err.status, STATUS_OK);
    ck_assert_ptr_nonnull(strstr(w.err.text, "/nowhere/two.gguf"));
    ck_assert_int_eq(models_get(&m, &all, "two", &err), STATUS_UNAVAILABLE);
    ck_assert_uint_eq(all.n_running, 1);
    close_all_models();
}
END_TEST

static void make_file(const char *folder, const char *name)
{
    char path[128];
    int fd;

    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(close(fd), 0);
}

/* The folder's models are known by their files' names; a split one is one model, by its first file.
 */
START_TEST(a_folder_is_scanned)
{
    static const char *const files[] = {"red.gguf", "blue-00001-of-00002.gguf",
                                        "blue-00002-of-00002.gguf", "green.txt", ".grey.gguf"};
    char folder[] = "/tmp/parley-test-models-XXXXXX", path[128];
    struct error err;

    ck_assert_ptr_nonnull(mkdtemp(folder));
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        make_file(folder, files[i]);
    open_all();
    all.config.model_dir = folder;
    ck_assert_int_eq(models_scan(&all, &err), STATUS_OK);
    ck_assert_uint_eq(all.n_entries, 4); /* with one and two */
    ck_assert_ptr_nonnull(models_find(&all, "red"));
    ck_assert_ptr_nonnull(models_find(&all, "blue"));
    (void)snprintf(path, sizeof(path), "%s/%s", folder, files[1]);
    ck_assert_str_eq(models_find(&all, "blue")->path, path);
    close_all_models();
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", folder, files[i]);
        ck_assert_int_eq(unlink(path), 0);
    }
    ck_assert_int_eq(rmdir(folder), 0);
}
END_TEST

/* Another configuration: a model that is gone is unloaded and forgotten, a user may refuse that
 * beforehand, and one that is wanted again while it unloads is loaded afterwards. */
START_TEST(configured)
{
    const struct models_wanted both[] = {{"one", "/nowhere/one.gguf"},
                                         {"two", "/nowhere/two.gguf"}};
    struct error err;
    unsigned n;

    open_all();
    models_find(&all, "one")->path = strdup(both[0].path);
    models_find(&all, "two")->path = strdup(both[1].path);
    ck_assert_int_eq(models_check(&all, both, 2, &err), STATUS_OK);
    models_configure(&all, both, 2);
    expect_said(""); /* nothing has changed */
    first.refuses = true;
    ck_assert_int_eq(models_check(&all, both + 1, 1, &err), STATUS_PRECONDITION);
    ck_assert_str_eq(err.text, "model 'one' is needed");
    first.refuses = false;
    ck_assert_int_eq(models_check(&all, both + 1, 1, &err), STATUS_OK);
    n = n_idle;
    models_configure(&all, both + 1, 1);
    expect_said("unloading one; retired by first; retired by second; ");
    until(&n_idle, n + 1);
    ck_assert_ptr_null(models_find(&all, "one"));
    said[0] = '\0';
    n = n_idle;
    models_configure(&all, NULL, 0);
    models_configure(&all, both + 1, 1); /* it still unloads */
    until(&n_idle, n + 3);               /* stopped; loaded in vain; stopped */
    expect_said("unloading two; retired by first; retired by second; closed by first; "
                "closed by second; loading two; failed two; ");
    ck_assert_ptr_nonnull(models_find(&all, "two"));
    close_all_models();
}
END_TEST

/* A model that loads cannot go, and is named; so many new ones cannot be had. */
START_TEST(configured_in_vain)
{
    const struct models_wanted other = {"three", "/nowhere/three.gguf"};
    static struct models_wanted many[MODELS_MAX_LOADED];
    static char numbers[MODELS_MAX_LOADED][16];
    struct error err;

    open_all();
    for (int i = 0; i < MODELS_MAX_LOADED; i++) {
        (void)snprintf(numbers[i], sizeof(numbers[i]), "m%d", i);
        many[i] = (struct models_wanted){numbers[i], "/nowhere/m.gguf"};
    }
    ck_assert_int_eq(models_check(&all, many, MODELS_MAX_LOADED, &err), STATUS_EXHAUSTED);
    models_configure(&all, &other, 1);
    expect_said("loading three; ");
    ck_assert_int_eq(models_check(&all, NULL, 0, &err), STATUS_UNAVAILABLE);
    ck_assert_str_eq(err.text, "model 'three' is being loaded");
    until(&n_idle, 4);
    close_all_models();
}
END_TEST

SUITE_MAIN("server/models", names, types_are_added, unload_and_load, refused, ends, load_fails,
           a_folder_is_scanned, configured, configured_in_vain)
