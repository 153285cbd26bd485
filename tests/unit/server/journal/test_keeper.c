/* Under a clock turned by hand and a journal in memory: when checkpoints begin, what they are
 * called when one fails, and that a start reads any number of them. */
#include "server/journal/keeper.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alarm.h"
#include "base/alloc.h"
#include "base/env.h"
#include "tests/unit/base/suite.h"

enum { INTERVAL_US = 1000, TOOK_US = 100, REST_US = 9 * TOOK_US };

/* --- the journal --- */

static struct {
    journal_done_fn done; /* NULL: nothing is being written */
    void *arg;
    enum journal_kind kind;
    uint8_t id[JOURNAL_ID_BYTES];
    journal_found_fn read_done;
    void *read_arg;
    bool refuses_keep;
} fake;

/* These three stand in for server/journal/journal.c. */
enum status journal_append(struct journal *j, const struct journal_record *r, journal_done_fn done,
                           void *arg, struct error *err)
{
    (void)j;
    ck_assert(fake.done == NULL);
    memcpy(fake.id, r->conversation, sizeof(fake.id));
    fake.kind = r->kind;
    if (fake.refuses_keep && r->kind == JOURNAL_KEEP)
        return error_set(err, STATUS_UNAVAILABLE, "the journal is behind");
    fake.done = done;
    fake.arg = arg;
    return STATUS_OK;
}

void journal_read(struct journal *j, struct journal_wait *w, const struct journal_query *q,
                  journal_found_fn done, void *arg)
{
    (void)j;
    (void)w;
    (void)q;
    fake.read_done = done;
    fake.read_arg = arg;
}

void journal_leave(struct journal_wait *w)
{
    (void)w;
}

/* What was appended is durable, or has failed. */
static void written(const struct error *err)
{
    journal_done_fn done = fake.done;

    ck_assert(done != NULL);
    fake.done = NULL;
    done(fake.arg, err);
}

/* --- things --- */

struct thing {
    struct kept_thing kept;
    uint32_t n_parts, at;
    bool is_writing;
    int n_written;
    uint64_t begun_us;
    struct kept_wait wait;
    int n_asked; /* it is asked for so often again, each time that it is written */
};

static struct keeper keeper;
static uint64_t now_us;
static uint8_t n_drawn;
static size_t n_made;

static uint64_t fake_now(void *self)
{
    (void)self;
    return now_us;
}

static void fake_random(void *self, void *out, size_t n_bytes)
{
    (void)self;
    memset(out, ++n_drawn, n_bytes);
}

static const struct env fake_env = {.now_us = fake_now, .random = fake_random};

static struct thing *thing_of(const struct kept_thing *k)
{
    return container_of(k, struct thing, kept);
}

static void thing_name(const struct kept_thing *k, const char **ret_principal,
                       const char **ret_name)
{
    (void)k;
    *ret_principal = "ann";
    *ret_name = "thing";
}

static enum status thing_begin(struct kept_thing *k, struct error *err)
{
    (void)err;
    thing_of(k)->at = 0;
    thing_of(k)->is_writing = true;
    thing_of(k)->begun_us = now_us;
    return STATUS_OK;
}

static void thing_part(struct kept_thing *k, struct body_writer *w, size_t about_bytes)
{
    (void)about_bytes;
    if (thing_of(k)->at < thing_of(k)->n_parts)
        body_put_u32(w, thing_of(k)->at++);
}

static void thing_body(struct kept_thing *k, struct body_writer *w)
{
    (void)k;
    (void)w;
}

static void thing_ended(struct kept_thing *k)
{
    thing_of(k)->is_writing = false;
    thing_of(k)->n_written++;
}

static enum status thing_make(struct keeper *kp, struct kept_thing **out,
                              const struct principal *owner, const char *name,
                              struct body_reader *body, struct error *err)
{
    struct thing *t;

    (void)kp;
    (void)owner;
    (void)name;
    if (body_take_u32(body) != 0)
        return error_set(err, STATUS_DATA_LOSS, "it cannot be made");
    t = xalloc(sizeof(*t));
    kept_init(&t->kept);
    *out = &t->kept;
    return STATUS_OK;
}

static enum status thing_made(struct kept_thing *k, struct error *err)
{
    (void)err;
    free(thing_of(k));
    n_made++;
    return STATUS_OK;
}

static void thing_drop(struct kept_thing *k)
{
    free(thing_of(k));
}

static const struct keeper_type thing_type = {.kind = 1,
                                              .version = 1,
                                              .noun = "thing",
                                              .name = thing_name,
                                              .begin = thing_begin,
                                              .part = thing_part,
                                              .body = thing_body,
                                              .ended = thing_ended,
                                              .make = thing_make,
                                              .made = thing_made,
                                              .drop = thing_drop};

static struct alarm due = {.tick = keeper_tick, .owner = &keeper};

static const struct principal *find_owner(void *self, const char *name)
{
    static const char owner;

    (void)self;
    (void)name;
    return (const struct principal *)(const void *)&owner;
}

static void on_asked(struct kept_wait *w, const struct error *err);

static void ask(struct thing *t)
{
    struct error err;

    t->wait = (struct kept_wait){.done = on_asked};
    ck_assert_int_eq(kept_settle(&keeper, &t->kept, &t->wait, &err), STATUS_OK);
}

static void on_asked(struct kept_wait *w, const struct error *err)
{
    struct thing *t = container_of(w, struct thing, wait);

    ck_assert_int_eq(err->status, STATUS_OK);
    if (t->n_asked > 0) {
        t->n_asked--;
        ask(t);
    }
}

static void start(void)
{
    const struct keeping keeping = {.journal = (struct journal *)(void *)&fake,
                                    .interval_us = INTERVAL_US,
                                    .find_owner = find_owner,
                                    .alarm = &due};

    memset(&fake, 0, sizeof(fake));
    now_us = 1;
    due.at_us = 0;
    keeper_init(&keeper, &thing_type, NULL, &fake_env);
    keeper_start(&keeper, &keeping);
}

/* The journal has none. */
static void start_empty(void)
{
    const struct error ok = {0};
    struct journal_found found;

    start();
    journal_found_init(&found);
    fake.read_done(fake.read_arg, &found, &ok);
}

static void thing_init(struct thing *t)
{
    *t = (struct thing){0};
    kept_init(&t->kept);
}

/* Turns the clock to the next that begins, by the alarm alone. */
static void begin_next(void)
{
    while (fake.done == NULL) {
        ck_assert(due.at_us != 0);
        now_us = due.at_us > now_us ? due.at_us : now_us;
        alarm_ring(&due);
    }
}

/* What is being written takes TOOK_US. */
static void end_this(void)
{
    const struct error ok = {0};

    now_us += TOOK_US;
    written(&ok);
}

/* --- the tests --- */

/* Repeated requests for one checkpoint do not starve the others: a checkpoint that is due waits for
 * the one being written, and for the pause that follows a periodic one. */
START_TEST(asking_without_end_starves_nobody)
{
    struct thing asked, first, second;

    start_empty();
    thing_init(&asked);
    thing_init(&first);
    thing_init(&second);
    kept_changed(&keeper, &first.kept);
    kept_changed(&keeper, &second.kept);
    asked.n_asked = 100;
    ask(&asked);
    while (second.n_written == 0) {
        ck_assert_uint_lt(now_us, 10 * INTERVAL_US);
        begin_next();
        end_this();
    }
    ck_assert_int_eq(first.n_written, 1);
    ck_assert_uint_ge(first.begun_us, 1 + INTERVAL_US);
    ck_assert_uint_le(first.begun_us, 1 + INTERVAL_US + TOOK_US);
    ck_assert_uint_ge(second.begun_us, first.begun_us + TOOK_US + REST_US);
    ck_assert_uint_le(second.begun_us, first.begun_us + TOOK_US + REST_US + TOOK_US);
    ck_assert_int_gt(asked.n_written, 10);
}
END_TEST

/* What is asked for while another is written begins as soon as that ends, the same thing too, and
 * in the order of asking; what nobody asks for rests. */
START_TEST(what_is_asked_for_does_not_rest)
{
    struct thing changed, other, asked;
    uint64_t ended_us;

    start_empty();
    thing_init(&changed);
    thing_init(&other);
    thing_init(&asked);
    kept_changed(&keeper, &changed.kept);
    kept_changed(&keeper, &other.kept);
    begin_next();
    ck_assert(changed.is_writing);
    ask(&asked);
    ask(&changed);
    end_this();
    ended_us = now_us;
    begin_next();
    ck_assert(asked.is_writing);
    ck_assert_uint_eq(now_us, ended_us);
    end_this();
    begin_next();
    ck_assert(changed.is_writing);
    ck_assert_uint_eq(now_us, ended_us + TOOK_US);
    end_this();
    begin_next();
    ck_assert(other.is_writing);
    ck_assert_uint_eq(now_us, ended_us + REST_US);
    end_this();
}
END_TEST

/* A checkpoint whose record was refused is written again under its id, which replaces its parts;
 * under another if the record may be there. */
START_TEST(a_refused_record_leaves_its_id)
{
    uint8_t id[JOURNAL_ID_BYTES];
    struct thing t;
    struct error err;

    start_empty();
    thing_init(&t);
    t.n_parts = 1;
    kept_changed(&keeper, &t.kept);
    begin_next();
    ck_assert_int_eq(fake.kind, JOURNAL_BLOCK);
    memcpy(id, fake.id, sizeof(id));
    fake.refuses_keep = true;
    end_this();
    ck_assert_int_eq(fake.kind, JOURNAL_KEEP);
    ck_assert(!t.is_writing);
    fake.refuses_keep = false;
    begin_next();
    ck_assert_int_eq(fake.kind, JOURNAL_BLOCK);
    ck_assert_mem_eq(fake.id, id, sizeof(id));
    end_this();
    ck_assert_int_eq(fake.kind, JOURNAL_KEEP);
    (void)error_set(&err, STATUS_UNAVAILABLE, "the disk has failed");
    written(&err);
    begin_next();
    ck_assert_int_eq(fake.kind, JOURNAL_BLOCK);
    ck_assert_mem_ne(fake.id, id, sizeof(id));
    end_this();
    end_this();
}
END_TEST

/* A stored thing without parts, which can be made or not. */
static void found_add(struct journal_found *found, bool can_be_made)
{
    static const uint8_t id[JOURNAL_ID_BYTES];
    struct journal_event *e;
    struct body_writer w;
    struct error err;
    struct buf buf;

    buf_init(&buf, 1000);
    w = (struct body_writer){.out = &buf};
    body_put_u32(&w, 0);
    body_put_u32(&w, thing_type.version);
    body_put_bytes(&w, id, sizeof(id));
    body_put_text(&w, "ann");
    body_put_text(&w, "thing");
    body_put_u32(&w, can_be_made ? 0 : 1);
    assert(body_written(&w, &err) == STATUS_OK);
    journal_put_sum(buf.data, buf.len);
    assert(journal_found_add(&e, found, buf.len, &err) == STATUS_OK);
    e->kind = JOURNAL_KEEP;
    memcpy(e->body, buf.data, buf.len);
    buf_deinit(&buf);
}

static void restore_many(void)
{
    const struct rlimit stack = {256 << 10, 256 << 10};
    const struct error ok = {0};
    struct journal_found found;
    struct error err;

    start();
    journal_found_init(&found);
    for (int i = 0; i < 10000; i++)
        found_add(&found, i % 2 == 0);
    assert(setrlimit(RLIMIT_STACK, &stack) == 0);
    fake.read_done(fake.read_arg, &found, &ok);
    assert(n_made == 5000);
    assert(keeper_ready(&keeper, &err) == STATUS_OK);
    journal_found_deinit(&found);
}

/* A start takes no more stack for more things, of which none waits for the journal. */
START_TEST(a_start_reads_any_number)
{
    ck_assert_int_eq(suite_fate(restore_many), 0);
}
END_TEST

SUITE_MAIN("keeper", asking_without_end_starves_nobody, what_is_asked_for_does_not_rest,
           a_refused_record_leaves_its_id, a_start_reads_any_number)
