/* Conversations whose KV pages come back from disk: the same replies, for their own principal
 * alone, whatever happens to the files. */
#include <check.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agents/lm/lm.h"
#include "tests/support/lm_driver.h"
#include "tests/support/stride.h"

enum { MAX_REPLY = 12, PLENTY = 512, TEXT = 700 };

static struct error err;
static char folder[64];
static size_t disk_bytes = 64 << 20, n_host_pages;

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    return remove(path);
}

static void make_folder(void)
{
    (void)snprintf(folder, sizeof(folder), "/tmp/parley-test-lm-disk-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void remove_folder(void)
{
    (void)nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* The principals of the tests: names stay, salts are numbers of a process. */
static const char *const *names;

static const char *name_of(void *arg, uint64_t salt)
{
    return salt < 3 ? names[salt] : NULL;
}

struct setting {
    const char *backend;
    enum kv_type kv;
    size_t n_pages, max_grant;
    bool has_no_disk;
    uint32_t seed;  /* of the model */
    bool has_state; /* recurrent: snapshots come back, too */
};

static struct agent *open_agent(const struct setting *s)
{
    const struct tiny_config tiny = {
        .type = DTYPE_Q8_0, .seed = s->seed != 0 ? s->seed : 7, .has_state = s->has_state};
    struct agent_config config = drive_config(s->backend, s->n_pages);
    struct agent *a;

    config.options.kv_type = s->kv;
    config.options.speculate = SPECULATE_ON;
    config.options.kv_host_bytes = config.options.kv_bytes / s->n_pages * n_host_pages;
    if (!s->has_no_disk) {
        config.options.kv_disk_bytes = disk_bytes;
        config.options.kv_disk_folder = folder;
        config.owner_name = name_of;
    }
    ck_assert_msg(drive_open(&a, &tiny, &config, &err) == STATUS_OK, "%s", err.text);
    return a;
}

static struct lm_disk *disk_of(struct agent *a)
{
    return &container_of(a, struct lm, base)->cache.disk;
}

static void settle_stores(struct lm_disk *d)
{
    kv_disk_settle(d->store);
    if (d->states != NULL)
        kv_disk_settle(d->states);
}

/* Until all pages and snapshots are on disk, and all that was asked for is read. */
static void settle(struct agent *a)
{
    struct lm_disk *d = disk_of(a);

    do {
        if (d->store == NULL)
            return;
        settle_stores(d);
        a->type->woken(a);
    } while (!list_is_empty(&d->unsaved) || !list_is_empty(&d->unsaved_states));
    settle_stores(d);
}

struct said {
    int32_t ids[MAX_REPLY];
    size_t n, n_prompt, n_cached, n_disk;
};

static void say(struct agent *a, struct clone *c, const char *text, const struct setting *s,
                struct said *out)
{
    struct sampling how;
    struct drive d, *all = &d;

    sampling_init(&how);
    how.temperature = 0.8f;
    how.seed = 5;
    how.max_tokens = MAX_REPLY;
    how.ignore_eos = true;
    ck_assert_msg(drive_begin(&d, c, text, &how, &err) == STATUS_OK, "%s", err.text);
    if (d.turn.wants_preparing)
        settle(a);
    drive_run(a, &all, 1, s->max_grant);
    ck_assert_msg(d.turn.row.outcome != ROW_FAILED, "%s", d.turn.row.err.text);
    *out = (struct said){.n = d.turn.reply.n_tokens,
                         .n_prompt = d.turn.reply.n_prompt,
                         .n_cached = d.turn.reply.n_cached,
                         .n_disk = d.turn.reply.n_cached_disk};
    for (size_t i = 0; i < out->n; i++)
        out->ids[i] = d.turn.reply.tokens[i].id;
    drive_end(&d, true);
}

static struct clone *open_clone(struct agent *a, uint64_t salt)
{
    const struct clone_config config = {.salt = salt};
    struct clone *c;

    ck_assert_int_eq(clone_open(&c, a, &config, &err), STATUS_OK);
    return c;
}

/* One turn of a new conversation. */
static void ask(struct agent *a, uint64_t salt, const char *text, const struct setting *s,
                struct said *out)
{
    struct clone *c = open_clone(a, salt);

    say(a, c, text, s, out);
    clone_close(c);
}

static void expect_same(const struct said *a, const struct said *b)
{
    ck_assert_uint_eq(a->n, b->n);
    ck_assert_mem_eq(a->ids, b->ids, a->n * sizeof(*a->ids));
    ck_assert_uint_eq(a->n_prompt, b->n_prompt);
}

static void long_text(char out[TEXT], const char *begin)
{
    size_t at = (size_t)snprintf(out, TEXT, "%s", begin);

    for (int i = 0; at + 24 < TEXT; i++)
        at += (size_t)snprintf(out + at, TEXT - at, " hello %d in the hell", i * 7919 % 1000);
}

static const char *const three[] = {"", "ann", "bob"};

/* After a restart a prompt is read from disk, all but what is always computed, and the reply and
 * the next turns have the bits of a process that never wrote anything. */
static void comes_back(const struct setting *s)
{
    struct setting without = *s;
    struct agent *a = open_agent(s), *plain;
    struct clone *c, *fork, *own, *own_fork;
    struct said first, again, there, more[2], other[2];
    char text[TEXT];

    long_text(text, "Read this.");
    ask(a, 0, text, s, &first);
    ck_assert_uint_eq(first.n_cached, 0);
    if (s->kv == KV_F32) {
        a->type->settle(a); /* which writes what is left; else the end does */
        ck_assert(list_is_empty(&disk_of(a)->unsaved));
        ck_assert(list_is_empty(&disk_of(a)->unsaved_states));
    }
    agent_unref(a);

    without.has_no_disk = true;
    plain = open_agent(&without);
    a = open_agent(s);
    c = open_clone(a, 0);
    own = open_clone(plain, 0);
    say(a, c, text, s, &again);
    say(plain, own, text, &without, &there);
    expect_same(&again, &first);
    expect_same(&again, &there);
    ck_assert_uint_eq(there.n_disk, 0);
    ck_assert_uint_eq(again.n_cached, (first.n_prompt - 1) / KV_PAGE_TOKENS * KV_PAGE_TOKENS);
    ck_assert_uint_eq(again.n_disk, again.n_cached);

    ck_assert_int_eq(clone_fork(&fork, c, 1, &err), STATUS_OK);
    ck_assert_int_eq(clone_fork(&own_fork, own, 1, &err), STATUS_OK);
    say(a, c, "And then?", s, &more[0]);
    say(a, fork, "But why?", s, &more[1]);
    say(plain, own, "And then?", &without, &other[0]);
    say(plain, own_fork, "But why?", &without, &other[1]);
    expect_same(&more[0], &other[0]);
    expect_same(&more[1], &other[1]);
    ck_assert_int_eq(a->type->rewind(c, 1, &err), STATUS_OK);
    say(a, c, "But why?", s, &more[0]);
    expect_same(&more[0], &other[1]);
    clone_close(c);
    clone_close(fork);
    clone_close(own);
    clone_close(own_fork);
    agent_unref(a);
    agent_unref(plain);
}

START_TEST(replies_are_the_same)
{
    static const struct setting settings[] = {
        {"cpu", KV_F32, PLENTY, 256, false, 0, false}, {"cpu", KV_Q8, PLENTY, 37, false, 0, false},
        {"ref", KV_F16, PLENTY, 100, false, 0, false}, {"cpu", KV_F32, PLENTY, 256, false, 0, true},
        {"cpu", KV_Q8, PLENTY, 37, false, 0, true},    {"ref", KV_F16, PLENTY, 100, false, 0, true},
    };

    names = three;
    comes_back(&settings[_i]);
}
END_TEST

/* Five conversations of which memory holds one: each comes back from disk in its turn, and fewer
 * pages than a prompt has may be on their way at once. */
START_TEST(memory_may_be_small)
{
    const bool has_state = _i == 1;
    const struct setting small = {"cpu", KV_F32, has_state ? 120 : 60, 64, false, 0, has_state},
                         plenty = {"cpu", KV_F32, PLENTY, 256, true, 0, has_state};
    struct agent *a, *plain;
    struct clone *c[5], *own[5];
    struct said said, right;
    size_t n_disk = 0;
    char text[TEXT], begin[32];

    names = three;
    a = open_agent(&small);
    plain = open_agent(&plenty);
    for (int i = 0; i < 5; i++) {
        c[i] = open_clone(a, 0);
        own[i] = open_clone(plain, 0);
    }
    for (int turn = 0; turn < 3; turn++)
        for (int i = 0; i < 5; i++) {
            (void)snprintf(begin, sizeof(begin), "%d of %d.", turn, i);
            long_text(text, begin);
            text[turn == 0 ? TEXT - 1 : 40] = '\0';
            say(a, c[i], text, &small, &said);
            say(plain, own[i], text, &plenty, &right);
            expect_same(&said, &right);
            n_disk += said.n_disk;
            settle(a);
        }
    ck_assert_uint_gt(n_disk, 500);
    for (int i = 0; i < 5; i++) {
        clone_close(c[i]);
        clone_close(own[i]);
    }
    agent_unref(a);
    agent_unref(plain);
}
END_TEST

/* Pages are their principal's, by name: in the next process its number may be another's. One
 * without a name writes none. */
START_TEST(principals_do_not_share)
{
    static const char *const swapped[] = {"", "bob", "ann"};
    const struct setting s = {"cpu", KV_F32, PLENTY, 256, false, 0, _i == 1};
    struct agent *a;
    struct said said;
    char text[TEXT], nameless[TEXT];

    names = three;
    a = open_agent(&s);
    long_text(text, "Ann's.");
    long_text(nameless, "Nobody's.");
    ask(a, 1, text, &s, &said);
    ask(a, 9, nameless, &s, &said);
    agent_unref(a);
    names = swapped;
    a = open_agent(&s);
    ask(a, 9, nameless, &s, &said);
    ck_assert_uint_eq(said.n_cached, 0);
    ask(a, 1, text, &s, &said); /* bob */
    ck_assert_uint_eq(said.n_cached, 0);
    ck_assert_uint_gt(disk_of(a)->n_missed_tokens[KV_MISS_OWNER], said.n_prompt - 20);
    ask(a, 0, text, &s, &said);
    ck_assert_uint_eq(said.n_cached, 0);
    ask(a, 2, text, &s, &said); /* ann */
    ck_assert_uint_gt(said.n_disk, said.n_prompt - 20);
    agent_unref(a);
}
END_TEST

/* Pages of another model are not found, and are counted. */
START_TEST(models_do_not_share)
{
    const struct setting s = {"cpu", KV_F32, PLENTY, 256, false, 0, _i == 1},
                         other = {"cpu", KV_F32, PLENTY, 256, false, 8, _i == 1};
    struct agent *a;
    struct said said;
    char text[TEXT];

    names = three;
    a = open_agent(&s);
    long_text(text, "Read this.");
    ask(a, 0, text, &s, &said);
    agent_unref(a);
    a = open_agent(&other);
    ask(a, 0, text, &other, &said);
    ck_assert_uint_eq(said.n_cached, 0);
    ck_assert_uint_gt(disk_of(a)->n_missed_tokens[KV_MISS_REVISION], said.n_prompt - 20);
    agent_unref(a);
}
END_TEST

/* A turn that is dropped while its pages are read leaves nothing behind; so does an agent that is
 * closed. */
START_TEST(reads_may_be_given_up)
{
    const struct setting s = {"cpu", KV_F32, PLENTY, 256, false, 0, _i == 1};
    struct agent *a;
    struct clone *c;
    struct said said, again;
    struct sampling how;
    struct drive d;
    char text[TEXT];

    names = three;
    sampling_init(&how);
    a = open_agent(&s);
    long_text(text, "Read this.");
    ask(a, 0, text, &s, &said);
    agent_unref(a);
    for (int i = 0; i < 3; i++) {
        a = open_agent(&s);
        c = open_clone(a, 0);
        ck_assert_int_eq(drive_begin(&d, c, text, &how, &err), STATUS_OK);
        ck_assert(d.turn.wants_preparing);
        if (i == 1)
            settle_stores(disk_of(a));
        drive_end(&d, false);
        ck_assert_uint_eq(disk_of(a)->n_readers, 0);
        if (i == 2) { /* the next turn reads them again */
            say(a, c, text, &s, &again);
            how.ignore_eos = true;
            ck_assert_uint_eq(again.n_disk, again.n_cached);
            ck_assert_uint_gt(again.n_disk, 100);
        }
        clone_close(c);
        agent_unref(a);
    }
}
END_TEST

/* A turn that is prepared after its reads have ended, as one of a kept conversation may be, does
 * not wait for them. */
START_TEST(reads_that_ended_are_not_waited_for)
{
    const struct setting s = {"cpu", KV_F32, PLENTY, 256, false, 0, _i == 1};
    struct agent *a;
    struct clone *c;
    struct said said;
    struct sampling how;
    struct drive d;
    char text[TEXT];

    names = three;
    sampling_init(&how);
    a = open_agent(&s);
    long_text(text, "Read this.");
    ask(a, 0, text, &s, &said);
    agent_unref(a);
    for (int i = 0; i < 2; i++) {
        a = open_agent(&s);
        c = open_clone(a, 0);
        ck_assert_int_eq(drive_begin(&d, c, text, &how, &err), STATUS_OK);
        ck_assert(d.turn.wants_preparing);
        if (i == 1)
            settle(a);
        ck_assert_int_eq(lm_prepare(c, &d.turn, &err), STATUS_OK);
        ck_assert_int_eq(d.turn.is_preparing, i == 0);
        ck_assert_int_eq(list_is_empty(&disk_of(a)->waiters), i == 1);
        lm_unprepare(c, &d.turn);
        drive_end(&d, false);
        clone_close(c);
        agent_unref(a);
    }
}
END_TEST

/* Where the bytes of pages begin in a file of them. */
static size_t pages_at(size_t file_bytes, size_t page_bytes)
{
    size_t n = 1;

    while (kv_slab_bytes(page_bytes, n) < file_bytes)
        n++;
    ck_assert_uint_eq(kv_slab_bytes(page_bytes, n), file_bytes);
    return file_bytes - n * (kv_slab_bytes(page_bytes, 2) - kv_slab_bytes(page_bytes, 1));
}

/* A byte of a file changes between two processes: the reply stays. */
START_TEST(changed_bytes_change_no_reply)
{
    const bool is_state = _i == 1;
    const struct setting s = {"cpu", KV_Q8, PLENTY, 256, false, 0, is_state};
    const char *more = getenv("PARLEY_KV_FLIPS");
    const long n_usual = test_stride() > 2 ? 6 : 10 / test_stride() + 2; /* fewer hit nothing */
    const long n_flips = more != NULL ? strtol(more, NULL, 10) : n_usual;
    struct agent *a;
    struct said said, right;
    struct stat st;
    char text[TEXT], path[128];
    uint64_t drawn = 88172645463325252u;
    uint8_t byte;
    size_t n_less = 0, first = 4096, n_bytes = 600 << 10; /* the pages of the prompt */
    int fd;

    names = three;
    a = open_agent(&s);
    long_text(text, "Read this.");
    ask(a, 0, text, &s, &right);
    (void)snprintf(path, sizeof(path), "%s/tiny/%sslab-00000.kv", folder,
                   is_state ? "states/" : "");
    if (is_state) { /* those of its snapshots */
        settle(a);
        n_bytes = disk_of(a)->config.states.page_bytes;
        ck_assert_int_eq(stat(path, &st), 0);
        first = pages_at((size_t)st.st_size, n_bytes);
        n_bytes *= 2;
    }
    agent_unref(a);
    for (long i = 0; i < n_flips; i++) {
        fd = open(path, O_RDWR);
        ck_assert_int_ge(fd, 0);
        ck_assert_int_eq(fstat(fd, &st), 0);
        /* the file's own head is compute/kv/test_disk.c's */
        drawn ^= drawn << 13;
        drawn ^= drawn >> 7;
        drawn ^= drawn << 17;
        st.st_size = (off_t)(first + drawn % n_bytes);
        ck_assert_int_eq(pread(fd, &byte, 1, st.st_size), 1);
        byte ^= 1;
        ck_assert_int_eq(pwrite(fd, &byte, 1, st.st_size), 1);
        a = open_agent(&s);
        ask(a, 0, text, &s, &said);
        expect_same(&said, &right);
        n_less += said.n_disk < said.n_prompt - 20;
        agent_unref(a);
        if (i % 4 == 3)
            (void)close(fd);
        else if (pread(fd, &byte, 1, st.st_size) == 1) {
            byte ^= 1;
            ck_assert_int_eq(pwrite(fd, &byte, 1, st.st_size), 1);
            (void)close(fd);
        }
    }
    ck_assert_uint_ge(n_less, 1);
}
END_TEST

/* The prompts have a beginning in common, which is in memory. */
static void ask_several(struct agent *a, const struct setting *s, const char *ends,
                        struct said *out)
{
    char text[2 * TEXT], shared[TEXT], own[TEXT], begin[2] = "";

    long_text(shared, "Read this.");
    for (; *ends != '\0'; ends++) {
        begin[0] = *ends;
        long_text(own, begin);
        (void)snprintf(text, sizeof(text), "%.300s%.300s", shared, own);
        ask(a, 0, text, s, out);
        settle(a);
    }
}

/* What prompts find in memory is used on disk, too: a beginning that they share does not make room,
 * and what made room is written again once it is used. */
START_TEST(used_pages_stay)
{
    struct setting s = {"cpu", KV_F32, PLENTY, 64, .has_state = _i == 1};
    struct agent *a;
    struct said said;
    size_t n_all;

    names = three;
    a = open_agent(&s);
    ask_several(a, &s, "a", &said);
    n_all = (said.n_prompt - 1) / KV_PAGE_TOKENS * KV_PAGE_TOKENS;
    disk_bytes = kv_slab_bytes(disk_of(a)->config.store.page_bytes,
                               2 * (n_all + MAX_REPLY) / KV_PAGE_TOKENS);
    disk_bytes += s.has_state ? disk_bytes : 0; /* states take half */
    agent_unref(a);
    remove_folder();
    a = open_agent(&s);
    ask_several(a, &s, "abcdefgh", &said);
    agent_unref(a);
    a = open_agent(&s);
    ask_several(a, &s, "h", &said);
    ck_assert_uint_eq(said.n_disk, n_all);
    ask_several(a, &s, "bcdefgb", &said); /* the first b's made room */
    ck_assert_uint_ge(said.n_cached, n_all);
    ck_assert_uint_eq(said.n_disk, 0);
    agent_unref(a);
    a = open_agent(&s);
    ask_several(a, &s, "b", &said);
    ck_assert_uint_eq(said.n_disk, n_all);
    agent_unref(a);
}
END_TEST

/* So many prompts of the length of the first one, which has said, fit the disk. */
static void limit_disk(const struct agent *a, const struct said *said, double n_prompts)
{
    const size_t n_pages = (said->n_prompt + MAX_REPLY) / KV_PAGE_TOKENS;
    const struct lm_disk *d = &container_of(a, struct lm, base)->cache.disk;

    disk_bytes = kv_slab_bytes(d->config.store.page_bytes, (size_t)(n_prompts * (double)n_pages));
}

/* Of a prompt that is used again in memory the end makes room on disk, before its beginning. */
START_TEST(beginnings_stay)
{
    const struct setting s = {"cpu", KV_F32, PLENTY, 64, false, 0, false};
    char first[TEXT], second[TEXT];
    struct agent *a;
    struct said said;

    names = three;
    long_text(first, "Read this.");
    long_text(second, "Or that.");
    a = open_agent(&s);
    ask(a, 0, first, &s, &said);
    limit_disk(a, &said, 1.5);
    agent_unref(a);
    remove_folder();
    a = open_agent(&s);
    ask(a, 0, first, &s, &said);
    settle(a);
    ask(a, 0, first, &s, &said);
    ask(a, 0, second, &s, &said);
    agent_unref(a);
    a = open_agent(&s);
    ask(a, 0, first, &s, &said);
    ck_assert_uint_gt(said.n_disk, said.n_prompt / 4);
    ck_assert_uint_lt(said.n_disk, said.n_prompt * 3 / 4);
    agent_unref(a);
}
END_TEST

/* A page that the next step reloads from the host, and that has left the disk, is found by another
 * turn before that step. What goes to disk is what the step makes of it. */
START_TEST(pages_are_written_once_they_are_reloaded)
{
    const struct setting s = {"ref", KV_F32, 60, 256, false, 0, false};
    char text[TEXT], other[TEXT], begin[2] = "";
    struct drive d[2], *both[] = {&d[0], &d[1]};
    struct clone *c[2];
    struct said first, again;
    struct sampling how;
    struct agent *a;
    size_t n_cost;

    names = three;
    n_host_pages = PLENTY;
    sampling_init(&how);
    how.max_tokens = 1;
    long_text(text, "Read this.");
    a = open_agent(&s);
    ask(a, 0, text, &s, &first);
    limit_disk(a, &first, 2);
    agent_unref(a);
    remove_folder();
    a = open_agent(&s);
    ask(a, 0, text, &s, &first);
    for (begin[0] = 'b'; begin[0] < 'f'; begin[0]++) {
        settle(a);
        long_text(other, begin);
        ask(a, 0, other, &s, &again);
    }
    settle(a);
    for (size_t i = 0; i < 2; i++) {
        c[i] = open_clone(a, 0);
        ck_assert_int_eq(drive_begin(&d[i], c[i], text, &how, &err), STATUS_OK);
        ck_assert(!d[i].turn.wants_preparing);
        n_cost = a->type->cost(a, &d[i].turn.row);
        if (i == 0) { /* as it begins a step, which has not run */
            d[i].turn.row.n_scheduled = n_cost < s.max_grant ? n_cost : s.max_grant;
            ck_assert_int_eq(a->type->reserve(a, &d[i].turn.row, &err), STATUS_OK);
            ck_assert_uint_gt(container_of(a, struct lm, base)->cache.n_reloaded, 0);
        }
    }
    settle(a);
    a->type->batch_act(a, &(struct row *){&d[0].turn.row}, 1);
    a->type->stepped(a, &d[0].turn.row);
    drive_run(a, both, 2, s.max_grant);
    for (size_t i = 0; i < 2; i++) {
        ck_assert_uint_gt(d[i].turn.reply.n_cached, 0);
        drive_end(&d[i], true);
        clone_close(c[i]);
    }
    settle(a);
    agent_unref(a);
    a = open_agent(&s);
    ask(a, 0, text, &s, &again);
    expect_same(&again, &first);
    ck_assert_uint_eq(again.n_disk, (first.n_prompt - 1) / KV_PAGE_TOKENS * KV_PAGE_TOKENS);
    agent_unref(a);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("agents/lm/disk");
    TCase *all = tcase_create("all");
    SRunner *runner;
    int n_failed;

    tcase_add_checked_fixture(all, make_folder, remove_folder);
    tcase_set_timeout(all, 600);
    tcase_add_loop_test(all, replies_are_the_same, 0, 6);
    tcase_add_loop_test(all, memory_may_be_small, 0, 2);
    tcase_add_loop_test(all, principals_do_not_share, 0, 2);
    tcase_add_loop_test(all, models_do_not_share, 0, 2);
    tcase_add_loop_test(all, reads_may_be_given_up, 0, 2);
    tcase_add_loop_test(all, reads_that_ended_are_not_waited_for, 0, 2);
    tcase_add_loop_test(all, changed_bytes_change_no_reply, 0, 2);
    tcase_add_loop_test(all, used_pages_stay, 0, 2);
    tcase_add_test(all, beginnings_stay);
    tcase_add_test(all, pages_are_written_once_they_are_reloaded);
    suite_add_tcase(s, all);
    runner = srunner_create(s);
    srunner_run_all(runner, CK_NORMAL);
    n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
