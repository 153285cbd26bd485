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
    uint32_t turn;
    unsigned char body[64]; /* [size_bytes], as much as fits */
    size_t size_bytes;
    journal_found_fn read_done;
    void *read_arg;
    bool refuses_keep;
} fake;

/* These three stand in for server/journal/journal.c. */
enum status journal_append(struct journal *j, const struct journal_record *r, journal_done_fn done,
                           void *arg, struct error *err)
{
    ck_assert(fake.done == NULL);
    memcpy(fake.id, r->conversation, sizeof(fake.id));
    fake.kind = r->kind;
    fake.turn = r->turn;
    fake.size_bytes = r->size_bytes;
    memcpy(fake.body, r->body,
           r->size_bytes < sizeof(fake.body) ? r->size_bytes : sizeof(fake.body));
    if (fake.refuses_keep && r->kind == JOURNAL_KEEP)
        return error_set(err, STATUS_UNAVAILABLE, "the journal is behind");
    fake.done = done;
    fake.arg = arg;
    return STATUS_OK;
}

void journal_read(struct journal *j, struct journal_wait *w, const struct journal_query *q,
                  journal_found_fn done, void *arg)
{
    fake.read_done = done;
    fake.read_arg = arg;
}

void journal_leave(struct journal_wait *w)
{
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
    bool is_writing, lacks_memory;
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
    return now_us;
}

static void fake_random(void *self, void *out, size_t n_bytes)
{
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
    *ret_principal = "ann";
    *ret_name = "thing";
}

static enum status thing_begin(struct kept_thing *k, struct error *err)
{
    thing_of(k)->at = 0;
    thing_of(k)->is_writing = true;
    thing_of(k)->begun_us = now_us;
    return STATUS_OK;
}

static void thing_part(struct kept_thing *k, struct body_writer *w, size_t about_bytes)
{
    w->has_failed = thing_of(k)->lacks_memory;
    if (!w->has_failed && thing_of(k)->at < thing_of(k)->n_parts)
        body_put_u32(w, thing_of(k)->at++);
}

static void thing_body(struct kept_thing *k, struct body_writer *w)
{
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

    if (body_take_u32(body) != 0)
        return error_set(err, STATUS_DATA_LOSS, "it cannot be made");
    t = xalloc(sizeof(*t));
    kept_init(&t->kept);
    *out = &t->kept;
    return STATUS_OK;
}

static enum status thing_made(struct kept_thing *k, struct error *err)
{
    free(thing_of(k));
    n_made++;
    return STATUS_OK;
}

static void thing_drop(struct kept_thing *k)
{
    free(thing_of(k));
}

static const struct keeper_type thing_type = {.kind = KEEPER_KEY,
                                              .version = 1,
                                              .max_body_bytes = KEEPER_BODY_BYTES,
                                              .noun = "thing",
                                              .name = thing_name,
                                              .begin = thing_begin,
                                              .part = thing_part,
                                              .body = thing_body,
                                              .ended = thing_ended,
                                              .make = thing_make,
                                              .made = thing_made,
                                              .drop = thing_drop};

/* --- things that are slow, in the form of sets of parameters --- */

static struct thing *slow_made; /* whose made is not over */
static size_t n_slow_made, n_dropped;

static const void *slow_bytes(struct kept_thing *k, size_t *ret_len)
{
    struct thing *t = thing_of(k);

    *ret_len = 3;
    return t->at < t->n_parts ? t->at++, "abc" : NULL;
}

static uint32_t slow_n_parts(const struct kept_thing *k)
{
    return 1;
}

static enum status slow_take(struct kept_thing *k, struct body_reader *part, struct error *err)
{
    return part->end - part->at == 3 && memcmp(part->at, "abc", 3) == 0
               ? STATUS_OK
               : error_set(err, STATUS_DATA_LOSS, "the part is another");
}

static enum status slow_made_later(struct kept_thing *k, struct error *err)
{
    slow_made = thing_of(k);
    n_slow_made++;
    return STATUS_OK;
}

static void slow_drop(struct kept_thing *k);

static const struct keeper_type slow_type = {.kind = KEEPER_PARAMS,
                                             .version = 1,
                                             .max_body_bytes = KEEPER_BODY_BYTES,
                                             .noun = "slow",
                                             .is_slow = true,
                                             .is_untimed = true,
                                             .name = thing_name,
                                             .begin = thing_begin,
                                             .bytes = slow_bytes,
                                             .body = thing_body,
                                             .ended = thing_ended,
                                             .make = thing_make,
                                             .n_parts = slow_n_parts,
                                             .take = slow_take,
                                             .made = slow_made_later,
                                             .drop = slow_drop};

static void slow_drop(struct kept_thing *k)
{
    const struct error why = {.status = STATUS_DATA_LOSS};

    kept_deinit(&keeper, k, &why);
    free(thing_of(k));
    n_dropped++;
}

static struct alarm due = {.tick = keeper_tick, .owner = &keeper};

static const struct principal *find_owner(void *self, const char *name)
{
    static const char owner;

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

static void start_as(const struct keeper_type *type)
{
    const struct keeping keeping = {.journal = (struct journal *)(void *)&fake,
                                    .interval_us = INTERVAL_US,
                                    .find_owner = find_owner,
                                    .alarm = &due};

    memset(&fake, 0, sizeof(fake));
    now_us = 1;
    due.at_us = 0;
    keeper_init(&keeper, type, NULL, &fake_env);
    keeper_start(&keeper, &keeping);
}

static void start(void)
{
    start_as(&thing_type);
}

/* The journal has none. */
static void start_empty_as(const struct keeper_type *type)
{
    const struct error ok = {0};
    struct journal_found found;

    start_as(type);
    journal_found_init(&found);
    fake.read_done(fake.read_arg, &found, &ok);
}

static void start_empty(void)
{
    start_empty_as(&thing_type);
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

/* A part for which there is no memory is not taken for the end of the parts. */
START_TEST(a_part_without_memory_fails)
{
    struct thing t;

    start_empty();
    thing_init(&t);
    t.n_parts = 1;
    t.lacks_memory = true;
    kept_changed(&keeper, &t.kept);
    now_us = due.at_us;
    alarm_ring(&due);
    ck_assert(fake.done == NULL && !t.is_writing);
    t.lacks_memory = false;
    begin_next();
    ck_assert_int_eq(fake.kind, JOURNAL_BLOCK);
    end_this();
    ck_assert_int_eq(fake.kind, JOURNAL_KEEP);
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

static enum status told; /* of the last wait that is over */

static void on_told(struct kept_wait *w, const struct error *err)
{
    told = err->status;
}

static void begin_slow(struct thing *t, uint32_t n_parts)
{
    thing_init(t);
    t->n_parts = n_parts;
    t->wait = (struct kept_wait){.done = on_told};
    told = STATUS_UNKNOWN;
    kept_begin(&keeper, &t->kept, &t->wait);
    ck_assert(t->is_writing);
}

/* Slow things are written beside each other, each when its begin is over: parts as they are, and a
 * body of version, id and principal, without a sum. One that failed is not written again. */
START_TEST(slow_things_write_beside_each_other)
{
    static const unsigned char version[] = {1, 0, 0, 0};
    const struct error ok = {0};
    struct thing a, b;
    struct error err;

    start_empty_as(&slow_type);
    begin_slow(&a, 1);
    begin_slow(&b, 0);
    ck_assert(fake.done == NULL);
    kept_go_on(&keeper, &b.kept, &ok);
    ck_assert_int_eq(fake.kind, JOURNAL_CHECKPOINT);
    ck_assert_mem_eq(fake.body, version, sizeof(version));
    ck_assert_uint_eq(fake.size_bytes, 4 + 8 + JOURNAL_ID_BYTES + 8 + strlen("ann"));
    written(&ok);
    ck_assert_int_eq(told, STATUS_OK);
    ck_assert(a.is_writing && !b.is_writing);
    kept_go_on(&keeper, &a.kept, &ok);
    ck_assert_int_eq(fake.kind, JOURNAL_BLOCK);
    ck_assert_uint_eq(fake.turn, 0);
    ck_assert_uint_eq(fake.size_bytes, 3);
    ck_assert_mem_eq(fake.body, "abc", 3);
    (void)error_set(&err, STATUS_UNAVAILABLE, "the disk has failed");
    written(&err);
    ck_assert_int_eq(told, STATUS_UNAVAILABLE);
    ck_assert(fake.done == NULL && due.at_us == 0);
    ck_assert(keeper_is_idle(&keeper));
}
END_TEST

/* A slow thing that closes before its begin is over has written nothing, and nothing is awaited;
 * one that closes later is over when the journal has what it was given. */
START_TEST(slow_things_are_given_up)
{
    const struct error ok = {0}, why = {.status = STATUS_CANCELLED};
    struct thing t;

    start_empty_as(&slow_type);
    begin_slow(&t, 1);
    kept_deinit(&keeper, &t.kept, &why);
    ck_assert_int_eq(told, STATUS_CANCELLED);
    ck_assert(!t.is_writing && fake.done == NULL);
    ck_assert_uint_eq(keeper.n_attempts, 0);
    begin_slow(&t, 1);
    kept_go_on(&keeper, &t.kept, &ok);
    kept_deinit(&keeper, &t.kept, &why);
    ck_assert(!t.is_writing);
    ck_assert_uint_eq(keeper.n_attempts, 1);
    written(&ok);
    ck_assert_uint_eq(keeper.n_attempts, 0);
}
END_TEST

/* A stored slow thing. */
static void found_add_slow(struct journal_found *found)
{
    static const uint8_t id[JOURNAL_ID_BYTES];
    struct journal_event *e;
    struct body_writer w;
    struct error err;
    struct buf buf;

    buf_init(&buf, 1000);
    w = (struct body_writer){.out = &buf};
    body_put_u32(&w, slow_type.version);
    body_put_bytes(&w, id, sizeof(id));
    body_put_text(&w, "ann");
    body_put_u32(&w, 0);
    ck_assert_int_eq(body_written(&w, &err), STATUS_OK);
    ck_assert_int_eq(journal_found_add(&e, found, buf.len, &err), STATUS_OK);
    memcpy(e->body, buf.data, buf.len);
    buf_deinit(&buf);
}

/* The journal has the part that is being read. */
static void read_part(const char *bytes)
{
    const struct error ok = {0};
    journal_found_fn done = fake.read_done;
    struct journal_found found;
    struct journal_event *e;
    struct error err;

    ck_assert(done != NULL);
    fake.read_done = NULL;
    journal_found_init(&found);
    ck_assert_int_eq(journal_found_add(&e, &found, strlen(bytes), &err), STATUS_OK);
    memcpy(e->body, bytes, strlen(bytes));
    done(fake.read_arg, &found, &ok);
    journal_found_deinit(&found);
}

/* The start waits for each slow thing, goes on behind one that closes or is damaged, and is over
 * with the last. */
START_TEST(a_start_waits_for_slow_things)
{
    const struct error ok = {0}, why = {.status = STATUS_CANCELLED};
    struct journal_found found;
    struct error err;

    n_slow_made = n_dropped = 0;
    start_as(&slow_type);
    journal_found_init(&found);
    for (int i = 0; i < 5; i++)
        found_add_slow(&found);
    fake.read_done(fake.read_arg, &found, &ok);
    journal_found_deinit(&found);
    read_part("abc");
    ck_assert_uint_eq(n_slow_made, 1);
    ck_assert_int_eq(keeper_ready(&keeper, &err), STATUS_UNAVAILABLE);
    kept_go_on(&keeper, &slow_made->kept, &ok);
    free(slow_made);
    read_part("abd"); /* the second is damaged */
    ck_assert_uint_eq(n_dropped, 1);
    read_part("abc"); /* the third closes before it is made */
    kept_deinit(&keeper, &slow_made->kept, &why);
    free(slow_made);
    read_part("abc"); /* the fourth is made badly */
    ck_assert_uint_eq(n_slow_made, 3);
    kept_go_on(&keeper, &slow_made->kept, &why);
    ck_assert_uint_eq(n_dropped, 2);
    read_part("abc");
    ck_assert_int_eq(keeper_ready(&keeper, &err), STATUS_UNAVAILABLE);
    kept_go_on(&keeper, &slow_made->kept, &ok);
    free(slow_made);
    ck_assert_int_eq(keeper_ready(&keeper, &err), STATUS_OK);
}
END_TEST

/* An end drops the slow thing that is being made. */
START_TEST(an_end_drops_what_is_being_made)
{
    const struct error ok = {0};
    struct journal_found found;

    n_dropped = 0;
    start_as(&slow_type);
    journal_found_init(&found);
    found_add_slow(&found);
    fake.read_done(fake.read_arg, &found, &ok);
    journal_found_deinit(&found);
    read_part("abc");
    ck_assert(keeper_is_idle(&keeper));
    ck_assert_uint_eq(n_dropped, 1);
}
END_TEST

SUITE_MAIN("keeper", asking_without_end_starves_nobody, what_is_asked_for_does_not_rest,
           a_refused_record_leaves_its_id, a_part_without_memory_fails,
           slow_things_write_beside_each_other, slow_things_are_given_up,
           a_start_waits_for_slow_things, an_end_drops_what_is_being_made, a_start_reads_any_number)
