/* Checkpoints of a set of one number, in a real journal whose store is in memory and fails. */
#include "server/params/checkpoint.h"

#include "tests/support/params_rig.h"
#include "tests/unit/base/suite.h"

enum { MAX_RECORDS = 64 };

/* The journal's thread writes it, and the test reads it when it was told of the record. */
static struct {
    struct journal_store base;
    struct stored {
        enum journal_kind kind;
        uint8_t id[JOURNAL_ID_BYTES];
        uint32_t part;
    } records[MAX_RECORDS]; /* that were tried */
    size_t n;
    size_t fails_at; /* the transaction with this record, from 1; 0: none */
} fake;

static enum status fake_open(struct journal_store **out, const char *dir, struct error *err);

static void fake_close(struct journal_store *s)
{
    ck_assert_ptr_eq(s, &fake.base);
}

static enum status fake_commit(struct journal_store *s, const struct journal_record *const *records,
                               size_t n, struct error *err)
{
    bool fails = false;

    ck_assert_ptr_eq(s, &fake.base);
    for (size_t i = 0; i < n; i++) {
        struct stored *to = &fake.records[fake.n++];

        ck_assert_uint_le(fake.n, MAX_RECORDS);
        to->kind = records[i]->kind;
        to->part = records[i]->turn;
        memcpy(to->id, records[i]->conversation, sizeof(to->id));
        fails = fails || fake.n == fake.fails_at;
    }
    return fails ? error_set(err, STATUS_UNAVAILABLE, "the disk fails") : STATUS_OK;
}

static enum status fake_read(struct journal_store *s, const struct journal_query *q,
                             size_t max_bytes, struct journal_found *out, struct error *err)
{
    ck_assert_ptr_eq(s, &fake.base);
    ck_assert_int_eq(q->by, JOURNAL_CHECKPOINTS);
    return STATUS_OK;
}

static const struct journal_store_type fake_type = {.name = "fake",
                                                    .open = fake_open,
                                                    .close = fake_close,
                                                    .commit = fake_commit,
                                                    .read = fake_read};

static enum status fake_open(struct journal_store **out, const char *dir, struct error *err)
{
    fake.base.type = &fake_type;
    *out = &fake.base;
    return STATUS_OK;
}

static struct journal *journal;

static void begin(struct params_rig *r)
{
    const struct journal_config config = {.dir = "/nowhere", .type = &fake_type};
    struct keeping keeping = {.on_idle = rig_on_idle};

    memset(&fake, 0, sizeof(fake));
    rig_open(r, 1000);
    ck_assert_int_eq(journal_open(&journal, &r->loop, &config, &r->err), STATUS_OK);
    keeping.journal = journal;
    r->sets.checkpoint_rounds = 1;
    keeper_start(&r->sets.keeper, &keeping);
    while (r->sets.keeper.restore != NULL)
        (void)uv_run(&r->loop, UV_RUN_NOWAIT);
}

static void on_journal_stopped(void *arg)
{
}

static void end(struct params_rig *r)
{
    params_sets_stop(&r->sets);
    journal_stop(journal, on_journal_stopped, NULL);
    rig_close(r);
}

/* A set of one number and two moments, whose first checkpoint is records 0 to 3. */
static struct params_set *make_kept(struct params_rig *r)
{
    struct params_spec spec = {
        .schedule = {.rate = 1.0},
        .round_size = 1,
        .optim = {.kind = OPTIM_ADAM, .beta1 = 0.9f, .beta2 = 0.99f, .epsilon = 1e-8f}};
    struct params_set *set = rig_make_described(r, spec, "described");

    ck_assert_msg(set != NULL, "%s", r->err.text);
    ck_assert_uint_eq(fake.n, 4);
    return set;
}

/* A round, and its checkpoint to the end. */
static void round_of(struct params_rig *r, struct params_set *set, uint64_t step)
{
    ck_assert_int_eq(rig_contribute(r, set, "a", step, 1.0f), STATUS_OK);
    while (set->checkpoint != NULL)
        (void)uv_run(&r->loop, UV_RUN_NOWAIT);
}

static void expect(size_t at, enum journal_kind kind, const uint8_t *id)
{
    ck_assert_uint_lt(at, fake.n);
    ck_assert_int_eq(fake.records[at].kind, kind);
    ck_assert_mem_eq(fake.records[at].id, id, JOURNAL_ID_BYTES);
}

/* A checkpoint whose record was never appended is written again under its id, which replaces its
 * parts, though the last of them failed; under another where the record may be there. */
START_TEST(a_part_that_failed_leaves_its_id)
{
    struct params_set *set;
    uint8_t id[JOURNAL_ID_BYTES];
    struct params_rig r;

    begin(&r);
    set = make_kept(&r);
    fake.fails_at = 7; /* the last part */
    round_of(&r, set, 1);
    ck_assert_uint_eq(fake.n, 7);
    ck_assert(set->has_failed_to_keep);
    memcpy(id, fake.records[4].id, sizeof(id));
    ck_assert_mem_ne(id, fake.records[3].id, sizeof(id));
    fake.fails_at = 11; /* the record */
    round_of(&r, set, 2);
    ck_assert_uint_eq(fake.n, 11);
    for (size_t i = 7; i < 10; i++) {
        expect(i, JOURNAL_BLOCK, id);
        ck_assert_uint_eq(fake.records[i].part, i - 7);
    }
    expect(10, JOURNAL_CHECKPOINT, id);
    ck_assert(set->has_failed_to_keep);
    round_of(&r, set, 3);
    ck_assert_uint_eq(fake.n, 15);
    ck_assert_mem_ne(fake.records[11].id, id, sizeof(id));
    expect(14, JOURNAL_CHECKPOINT, fake.records[11].id);
    ck_assert(!set->has_failed_to_keep);
    ck_assert_uint_eq(set->kept_version, 3);
    end(&r);
}
END_TEST

SUITE_MAIN("server/params/checkpoint", a_part_that_failed_leaves_its_id)
