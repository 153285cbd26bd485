#include "server/conversation/verification.h"

#include <string.h>

#include "server/conversation/body.h"
#include "server/journal/chain.h"
#include "tests/support/fake_server.h"
#include "tests/unit/base/suite.h"

/* A conversation of records, and the verification of it. */
struct rig {
    struct fake_server server;
    struct models models;
    struct verification_request request;
    struct journal_chain chain;
    uint8_t at[SHA256_BYTES]; /* the value of the chain behind the last record */
    struct journal_found found;
    size_t n_records, n_notified;
};

static void on_notified(void *arg)
{
    struct rig *r = arg;

    r->n_notified++;
}

static void rig_add(struct rig *r, enum journal_kind kind, const void *body, size_t size_bytes)
{
    const struct journal_record record = {.kind = kind,
                                          .generation = 1 + (uint32_t)r->n_records,
                                          .body = body,
                                          .size_bytes = size_bytes,
                                          .principal = r->request.owner};
    struct journal_proof *proof;
    struct error err;

    ck_assert_int_eq(journal_found_take(&r->found, &record, SIZE_MAX, &err), STATUS_OK);
    proof = &container_of(list_last(&r->found.events), struct journal_event, link)->proof;
    proof->seq = ++r->n_records;
    chain_content(&r->chain, &record, proof->content);
    chain_add(&r->chain, r->at, proof->content);
    memcpy(proof->chain, r->at, sizeof(r->at));
}

/* The first record opens a conversation. */
static void rig_open(struct rig *r)
{
    const struct body_terms terms = {.model = "fake", .version = "1", .system = ""};
    struct buf body;
    struct error err;

    *r = (struct rig){.request = {.owner = "", .model = ""}};
    fake_server_open(&r->server, "fake", 0, NULL);
    list_init(&r->models.entries);
    r->models.loaded[r->models.n_loaded++] = &r->server.model;
    r->request.models = &r->models;
    r->server.all.keeping.binding = "here";
    journal_found_init(&r->found);
    ck_assert_int_eq(chain_open(&r->chain, &err), STATUS_OK);
    buf_init(&body, SIZE_MAX);
    ck_assert_int_eq(body_write_terms(&body, &terms, &err), STATUS_OK);
    rig_add(r, JOURNAL_OPEN, body.data, body.len);
    buf_deinit(&body);
}

static void rig_close(struct rig *r)
{
    chain_close(&r->chain);
    fake_server_close(&r->server);
}

/* Verifies all records. Returns in how many slices, between which others have their turn. */
static size_t rig_verify(struct rig *r, size_t n_turns)
{
    struct verification *v;
    bool is_done = false;
    struct error err;
    size_t n, at;

    ck_assert_int_eq(
        verification_open(&v, &r->server.all, &r->request, &r->found, on_notified, r, &err),
        STATUS_OK);
    for (n = 0; !is_done; n++) {
        r->n_notified = 0;
        ck_assert_int_eq(verification_advance(v, &is_done, &err), STATUS_OK);
        ck_assert(is_done || r->n_notified > 0);
    }
    ck_assert_ptr_null(verification_chain_problem(v, &at));
    ck_assert_mem_eq(verification_chain(v), r->at, sizeof(r->at));
    ck_assert_ptr_eq(verification_model(v), &r->server.model);
    (void)verification_turns(v, &at);
    ck_assert_uint_eq(at, n_turns);
    verification_close(v);
    return n;
}

/* Records without a body end a slice, too: some 7,000 are hashed at a time, and 900 are applied. */
START_TEST(empty_records_let_others_in)
{
    enum { N = 30000 };
    static struct rig r;
    size_t n;

    rig_open(&r);
    for (size_t i = 0; i < N; i++)
        rig_add(&r, JOURNAL_REWIND, NULL, 0);
    n = rig_verify(&r, 0);
    ck_assert_uint_ge(n, N / 8000 + N / 1000);
    ck_assert_uint_lt(n, N / 100); /* a slice is worth its turn */
    rig_close(&r);
}
END_TEST

/* Of large records each is hashed in a slice of its own, and applied in one. The first of them
 * cannot be applied, and is judged. */
START_TEST(large_records_let_others_in)
{
    enum { N = 8, BYTES = 2 << 20 };
    static char body[BYTES];
    static struct rig r;

    rig_open(&r);
    for (size_t i = 0; i < N; i++)
        rig_add(&r, JOURNAL_UPDATE, body, sizeof(body));
    ck_assert_uint_ge(rig_verify(&r, 1), 2 * N);
    rig_close(&r);
}
END_TEST

SUITE_MAIN("server/conversation/verification", empty_records_let_others_in,
           large_records_let_others_in)
