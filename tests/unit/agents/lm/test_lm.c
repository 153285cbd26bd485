#include "agents/lm/lm.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "tests/support/lm_driver.h"
#include "tests/unit/base/suite.h"

enum { N = 24 }; /* tokens of a reply here */

static const struct tiny_config tiny = {.type = DTYPE_Q8_0, .seed = 7};

static struct agent *open_on(const char *backend, size_t kv_pages)
{
    struct agent_config config = drive_config(backend, kv_pages);
    struct agent *a;
    struct error err;

    ck_assert_msg(drive_open(&a, &tiny, &config, &err) == STATUS_OK, "%s", err.text);
    return a;
}

static struct sampling brief(void)
{
    struct sampling s;

    sampling_init(&s);
    s.temperature = 0.8f;
    s.seed = 42;
    s.has_seed = true;
    s.max_tokens = N;
    s.ignore_eos = true;
    s.want_logprobs = true;
    s.n_logprobs = 3;
    return s;
}

static struct clone *open_clone(struct agent *a, const char *system)
{
    struct clone_config config = {.system = system,
                                  .system_len = system != NULL ? strlen(system) : 0};
    struct clone *c;
    struct error err;

    ck_assert_int_eq(clone_open(&c, a, &config, &err), STATUS_OK);
    return c;
}

static struct lm *lm_of(struct agent *a)
{
    return container_of(a, struct lm, base);
}

static size_t n_free(struct agent *a)
{
    struct kv_usage usage;

    kv_pages_usage(lm_of(a)->cache.pages, &usage);
    return usage.n_free;
}

/* Three turns in one conversation; ids [3][N]. */
static void converse(struct agent *a, struct clone *c, size_t max_grant, int32_t ids[3][N])
{
    static const char *const generated[3] = {"the hello", "hello, what is in the hell", "a the a"};
    struct sampling s = brief();

    for (size_t i = 0; i < 3; i++)
        ck_assert_uint_eq(drive_turn(a, c, generated[i], &s, max_grant, ids[i], N), N);
}

/* A reply does not depend on how the prompt was chunked. */
START_TEST(chunks_do_not_matter)
{
    static const size_t grants[] = {256, 64, 16, 5, 1};
    int32_t want[3][N], got[3][N];

    for (size_t i = 0; i < sizeof(grants) / sizeof(grants[0]); i++) {
        struct agent *a = open_on("ref", 64);
        struct clone *c = open_clone(a, NULL);

        converse(a, c, grants[i], i == 0 ? want : got);
        if (i != 0)
            ck_assert_mem_eq(got, want, sizeof(want));
        clone_close(c);
        agent_unref(a);
    }
}
END_TEST

/* A reply does not depend on other rows of the batch: sixteen at once give what each gives alone,
 * to the last bit of the log-probabilities. */
START_TEST(company_does_not_matter)
{
    struct agent *a = open_on("cpu", 512);
    struct sampling s = brief();
    struct drive alone[16], together[16], *all[16];
    char texts[16][40];
    struct error err;

    for (int i = 0; i < 16; i++) {
        struct drive *only = &alone[i];
        struct clone *c = open_clone(a, i % 3 == 0 ? "be brief" : NULL);

        (void)snprintf(texts[i], sizeof(texts[i]), "hello number %d%.*s", i, i, "aaaaaaaaaaaaaaaa");
        ck_assert_int_eq(drive_begin(&alone[i], c, texts[i], &s, &err), STATUS_OK);
        drive_run(a, &only, 1, 256);
    }
    for (int i = 0; i < 16; i++) {
        all[i] = &together[i];
        ck_assert_int_eq(
            drive_begin(all[i], open_clone(a, i % 3 == 0 ? "be brief" : NULL), texts[i], &s, &err),
            STATUS_OK);
        if (i % 4 == 3) /* not all begin in the same step */
            (void)drive_step(a, all, (size_t)i + 1, 7);
    }
    drive_run(a, all, 16, 9);
    for (int i = 0; i < 16; i++) {
        const struct reply *x = &alone[i].turn.reply, *y = &together[i].turn.reply;

        ck_assert_uint_eq(x->n_tokens, y->n_tokens);
        ck_assert_uint_eq(x->text.len, y->text.len);
        ck_assert_mem_eq(x->text.data, y->text.data, x->text.len);
        for (size_t t = 0; t < x->n_tokens; t++) {
            ck_assert_int_eq(x->tokens[t].id, y->tokens[t].id);
            ck_assert_mem_eq(&x->tokens[t].logprob, &y->tokens[t].logprob, sizeof(float));
            ck_assert_uint_eq(x->tokens[t].n_top, 3);
            ck_assert_mem_eq(x->tokens[t].top, y->tokens[t].top, 3 * sizeof(*x->tokens[t].top));
        }
        drive_end(&alone[i], true);
        drive_end(&together[i], true);
        clone_close(alone[i].clone);
        clone_close(together[i].clone);
    }
    agent_unref(a);
}
END_TEST

/* A fork copies no page; both continue as a single conversation would, and the parent is unchanged.
 */
START_TEST(fork_shares_all_pages)
{
    struct agent *a = open_on("cpu", 256);
    struct sampling s = brief();
    struct clone *c = open_clone(a, NULL), *child, *twin = open_clone(a, NULL);
    int32_t past[3][N], parent_says[N], child_says[N], twin_says[N];
    struct clone_info info;
    struct error err;
    size_t before;

    converse(a, c, 256, past);
    converse(a, twin, 256, past);
    before = n_free(a);
    ck_assert_int_eq(clone_fork(&child, c, 3, &err), STATUS_OK);
    ck_assert_uint_eq(n_free(a), before);
    clone_describe(child, &info);
    ck_assert_uint_gt(info.n_pages, 0);
    ck_assert_uint_eq(info.n_pages_shared, info.n_pages);

    (void)drive_turn(a, twin, "and the hello", &s, 256, twin_says, N);
    (void)drive_turn(a, child, "and the hello", &s, 256, child_says, N);
    (void)drive_turn(a, c, "and the hello", &s, 256, parent_says, N);
    ck_assert_mem_eq(child_says, twin_says, sizeof(twin_says));
    ck_assert_mem_eq(parent_says, twin_says, sizeof(twin_says));

    clone_close(c);
    clone_close(child);
    clone_close(twin);
    agent_unref(a);
}
END_TEST

/* A fork taken while its parent's next turn runs sees nothing of that turn. */
START_TEST(fork_while_the_parent_speaks)
{
    struct agent *a = open_on("cpu", 256);
    struct sampling s = brief();
    struct clone *c = open_clone(a, NULL), *twin = open_clone(a, NULL), *child;
    int32_t past[3][N], child_says[N], twin_says[N];
    struct drive d, *only = &d;
    struct error err;

    converse(a, twin, 256, past);
    converse(a, c, 256, past);
    ck_assert_int_eq(drive_begin(&d, c, "something else", &s, &err), STATUS_OK);
    for (int i = 0; i < 5; i++)
        (void)drive_step(a, &only, 1, 256);
    ck_assert_int_eq(clone_fork(&child, c, 3, &err), STATUS_OK);
    drive_run(a, &only, 1, 256);
    (void)drive_turn(a, child, "and the hello", &s, 256, child_says, N);
    drive_end(&d, true);
    (void)drive_turn(a, twin, "and the hello", &s, 256, twin_says, N);
    ck_assert_mem_eq(child_says, twin_says, sizeof(twin_says));
    clone_close(c);
    clone_close(child);
    clone_close(twin);
    agent_unref(a);
}
END_TEST

/* A rewound conversation replies as without the removed turns; so do a saved and restored one, and
 * one that was reset and given the same turns. */
START_TEST(rewind_save_restore_reset)
{
    struct agent *a = open_on("cpu", 256);
    struct sampling s = brief();
    struct clone *c = open_clone(a, "be kind"), *other = open_clone(a, NULL);
    int32_t past[3][N], again[3][N], want[N], got[N];
    struct error err;
    struct buf saved;

    buf_init(&saved, 1 << 20);
    converse(a, c, 256, past);
    ck_assert_int_eq(c->agent->type->save(c, &saved, &err), STATUS_OK);
    (void)drive_turn(a, c, "one more", &s, 256, want, N);
    ck_assert_int_eq(c->agent->type->rewind(c, 3, &err), STATUS_OK);
    (void)drive_turn(a, c, "one more", &s, 256, got, N);
    ck_assert_mem_eq(got, want, sizeof(want));

    ck_assert_int_eq(other->agent->type->restore(other, saved.data, saved.len, &err), STATUS_OK);
    (void)drive_turn(a, other, "one more", &s, 256, got, N);
    ck_assert_mem_eq(got, want, sizeof(want));
    for (size_t cut = 0; cut < saved.len; cut += 13)
        ck_assert_int_eq(other->agent->type->restore(other, saved.data, cut, &err),
                         STATUS_DATA_LOSS);
    saved.data[10] ^= 1; /* as if of another model */
    ck_assert_int_eq(other->agent->type->restore(other, saved.data, saved.len, &err),
                     STATUS_PRECONDITION);

    ck_assert_int_eq(c->agent->type->rewind(c, 9, &err), STATUS_RANGE);
    ck_assert_int_eq(c->agent->type->rewind(c, 0, &err), STATUS_OK);
    converse(a, c, 256, again);
    ck_assert_mem_eq(again, past, sizeof(past));
    c->agent->type->reset(c);
    converse(a, c, 256, again);
    ck_assert_mem_eq(again, past, sizeof(past));

    buf_deinit(&saved);
    clone_close(c);
    clone_close(other);
    agent_unref(a);
}
END_TEST

/* A dropped turn leaves the clone unchanged. */
START_TEST(drop_leaves_the_clone_as_it_was)
{
    struct agent *a = open_on("cpu", 256);
    struct sampling s = brief();
    struct clone *c = open_clone(a, NULL);
    int32_t want[3][N], got[3][N];
    struct drive d, *only = &d;
    struct error err;

    converse(a, c, 256, want);
    clone_close(c);
    c = open_clone(a, NULL);
    for (int steps = 0; steps < 6; steps += 2) {
        ck_assert_int_eq(drive_begin(&d, c, "never mind the hello", &s, &err), STATUS_OK);
        for (int i = 0; i < steps; i++)
            (void)drive_step(a, &only, 1, 8);
        drive_end(&d, false);
    }
    converse(a, c, 256, got);
    ck_assert_mem_eq(got, want, sizeof(want));
    clone_close(c);
    agent_unref(a);
}
END_TEST

/* When pages run out, the least recently used idle conversation loses its pages; its later replies
 * are the same. */
START_TEST(eviction_changes_no_reply)
{
    struct agent *roomy = open_on("cpu", 512), *tight = open_on("cpu", 40);
    struct sampling s = brief();
    struct agent_info info;
    int32_t want[4][2][N], got[4][2][N];

    for (int round = 0; round < 2; round++) {
        struct agent *a = round == 0 ? roomy : tight;
        struct clone *c[4];
        char text[200];

        for (int i = 0; i < 4; i++)
            c[i] = open_clone(a, NULL);
        for (int turn = 0; turn < 2; turn++)
            for (int i = 0; i < 4; i++) {
                (void)snprintf(text, sizeof(text), "%d %0100d hello", i, turn);
                (void)drive_turn(a, c[i], text, &s, 256, round == 0 ? want[i][turn] : got[i][turn],
                                 N);
            }
        for (int i = 0; i < 4; i++)
            clone_close(c[i]);
    }
    ck_assert_mem_eq(got, want, sizeof(want));
    agent_describe(tight, &info);
    ck_assert_uint_gt(info.cache.evictions, 0);
    ck_assert_uint_gt(info.cache.recomputes, 0);
    agent_describe(roomy, &info);
    ck_assert_uint_eq(info.cache.evictions, 0);
    agent_unref(roomy);
    agent_unref(tight);
}
END_TEST

/* Waiting conversations do not block each other's pages: the first in the queue gets what it needs,
 * the last are evicted first, and all replies are the same. Pages lost while a turn waited do not
 * count as cached. */
START_TEST(those_who_wait_give_way)
{
    enum { ROOMY = 512, N_CLONES = 4 };
    struct sampling s = brief();
    int32_t want[N_CLONES][N];
    size_t n_pages = ROOMY;

    for (int round = 0; round < 2; round++) {
        struct agent *a = open_on("cpu", n_pages);
        struct clone *c[N_CLONES];
        struct drive d[N_CLONES];
        struct agent_info info;
        struct error err;
        char text[200];

        for (int i = 0; i < N_CLONES; i++) {
            int32_t ids[N];

            c[i] = open_clone(a, NULL);
            (void)snprintf(text, sizeof(text), "%d %0100d hello", i, i);
            ck_assert_uint_eq(drive_turn(a, c[i], text, &s, 256, ids, N), N);
        }
        n_pages = ROOMY - n_free(a) + 1; /* then no conversation has room for its next turn */
        for (int i = 0; i < N_CLONES; i++)
            ck_assert_int_eq(drive_begin(&d[i], c[i], text, &s, &err), STATUS_OK);
        for (int i = 0; i < N_CLONES; i++) {
            struct drive *one = &d[i];
            struct reply *r = &d[i].turn.reply;

            drive_run(a, &one, 1, 256);
            ck_assert_msg(r->n_tokens == N, "%d: %s", i, d[i].turn.row.err.text);
            for (size_t k = 0; k < N; k++)
                if (round == 0)
                    want[i][k] = r->tokens[k].id;
                else
                    ck_assert_int_eq(r->tokens[k].id, want[i][k]);
            if (round == 0 || i == 0)
                ck_assert_uint_gt(r->n_cached, r->n_prompt / 2);
            else if (i == N_CLONES - 1)
                ck_assert_uint_lt(r->n_cached, r->n_prompt / 2);
            drive_end(&d[i], true);
        }
        agent_describe(a, &info);
        ck_assert_int_eq(info.cache.evictions > 0, round == 1);
        ck_assert_int_eq(info.cache.recomputes > 0, round == 1);
        ck_assert_uint_le(info.cache.hit_tokens, info.cache.lookup_tokens);
        for (int i = 0; i < N_CLONES; i++)
            clone_close(c[i]);
        agent_unref(a);
    }
}
END_TEST

/* Too small a --kv-bytes is refused by the flag's name, with the least valid size. */
START_TEST(too_few_kv_bytes_are_refused)
{
    static const char named[] = "--kv-bytes must be at least ";
    struct agent_config config = drive_config("cpu", 2);
    const char *at;
    struct agent *a;
    struct error err;

    config.options.kv_bytes = 1;
    ck_assert_int_eq(drive_open(&a, &tiny, &config, &err), STATUS_INVALID);
    at = strstr(err.text, named);
    ck_assert_msg(at != NULL, "%s", err.text);
    config.options.kv_bytes = strtoull(at + strlen(named), NULL, 10) - 1;
    ck_assert_int_eq(drive_open(&a, &tiny, &config, &err), STATUS_INVALID);
    config.options.kv_bytes++;
    ck_assert_msg(drive_open(&a, &tiny, &config, &err) == STATUS_OK, "%s", err.text);
    agent_unref(a);
}
END_TEST

/* A row that is preempted in the middle of its reply gives the same reply. */
START_TEST(preemption_changes_no_reply)
{
    struct agent *a = open_on("cpu", 256);
    struct sampling s = brief();
    struct clone *c = open_clone(a, NULL);
    int32_t want[N];
    struct drive d, *only = &d;
    struct error err;

    (void)drive_turn(a, c, "the hello", &s, 256, want, N);
    c->agent->type->reset(c);
    ck_assert_int_eq(drive_begin(&d, c, "the hello", &s, &err), STATUS_OK);
    for (int i = 0; i < 10; i++) {
        (void)drive_step(a, &only, 1, 16);
        if (i % 4 == 3)
            a->type->release(a, &d.turn.row);
    }
    drive_run(a, &only, 1, 16);
    ck_assert_uint_eq(d.turn.reply.n_tokens, N);
    for (size_t i = 0; i < N; i++)
        ck_assert_int_eq(d.turn.reply.tokens[i].id, want[i]);
    drive_end(&d, true);
    clone_close(c);
    agent_unref(a);
}
END_TEST

static const char passage[] =
    "the hello in a hell of the hello, and what the hello said to a hello "
    "in the hell of hello: the a in the hello is a the";

struct heard {
    uint64_t n_evicted, n_recomputed;
};

static void hear(void *arg, struct clone *c, enum clone_event what, const char *reason)
{
    struct heard *h = arg;

    *(what == CLONE_EVICTED ? &h->n_evicted : &h->n_recomputed) += 1;
}

/* Evictions and recomputations are reported as they are counted, each once: for a preempted row, an
 * idle clone, and one that loses found pages while it waits. */
START_TEST(what_is_told_is_counted)
{
    struct agent *a = open_on("cpu", 256);
    struct sampling s = brief();
    struct clone *c = open_clone(a, NULL);
    struct heard heard = {0};
    struct agent_info info;
    struct drive d, *only = &d;
    struct error err;
    int32_t ids[N];

    a->on_event = hear;
    a->on_event_arg = &heard;
    ck_assert_int_eq(drive_begin(&d, c, passage, &s, &err), STATUS_OK);
    for (int i = 0; i < 4; i++)
        (void)drive_step(a, &only, 1, 256);
    a->type->release(a, &d.turn.row);
    ck_assert_uint_eq(heard.n_evicted, 1);
    ck_assert_uint_eq(heard.n_recomputed, 0); /* not before its next step */
    kv_pages_forget(lm_of(a)->cache.pages);
    drive_run(a, &only, 1, 256);
    drive_end(&d, true);
    ck_assert_uint_eq(heard.n_recomputed, 1);

    ck_assert(lm_cache_evict_one(&lm_of(a)->cache));
    ck_assert_int_eq(drive_begin(&d, c, "hello", &s, &err), STATUS_OK); /* finds the cached pages */
    ck_assert(lm_cache_evict_one(&lm_of(a)->cache));
    kv_pages_forget(lm_of(a)->cache.pages);
    ck_assert_uint_eq(heard.n_evicted, 3);
    drive_run(a, &only, 1, 256);
    drive_end(&d, true);
    ck_assert_uint_eq(heard.n_recomputed, 2);

    ck_assert(lm_cache_evict_one(&lm_of(a)->cache));
    (void)drive_turn(a, c, "the", &s, 256, ids, N); /* all pages are found: nothing is recomputed */
    ck_assert_uint_eq(heard.n_evicted, 4);
    ck_assert_uint_eq(heard.n_recomputed, 2);
    agent_describe(a, &info);
    ck_assert_uint_eq(info.cache.evictions, heard.n_evicted);
    ck_assert_uint_eq(info.cache.recomputes, heard.n_recomputed);
    clone_close(c);
    agent_unref(a);
}
END_TEST

/* Only the first clone computes the system prompt; later clones start after it. */
START_TEST(system_prompt_is_computed_once)
{
    struct agent *a = open_on("cpu", 256);
    struct sampling s = brief();
    struct clone *first = open_clone(a, "the hello hello hello the the a in hello hello hello"),
                 *second = open_clone(a, "the hello hello hello the the a in hello hello hello");
    struct drive d;
    struct error err;
    int32_t ids[N];

    (void)drive_turn(a, first, "the hello", &s, 256, ids, N);
    ck_assert_int_eq(drive_begin(&d, second, "hello", &s, &err), STATUS_OK);
    ck_assert_uint_gt(d.turn.reply.n_cached, 16);
    ck_assert_uint_lt(d.turn.reply.n_cached, d.turn.reply.n_prompt);
    drive_end(&d, false);
    clone_close(first);
    clone_close(second);
    agent_unref(a);
}
END_TEST

/* A prefix is computed once for all conversations, even if the first one is closed or its turn was
 * dropped; but tenants do not share prefixes. */
START_TEST(a_beginning_is_computed_once)
{
    struct agent *a = open_on("cpu", 256);
    struct sampling s = brief();
    struct clone *first = open_clone(a, NULL), *second = open_clone(a, NULL), *stranger;
    const struct clone_config tenant = {.salt = 1};
    int32_t want[N], got[N];
    struct agent_info info;
    struct drive d, *only = &d;
    struct error err;

    ck_assert_int_eq(drive_begin(&d, first, passage, &s, &err), STATUS_OK);
    for (int i = 0; i < 3; i++)
        (void)drive_step(a, &only, 1, 64);
    drive_end(&d, false);
    (void)drive_turn(a, first, passage, &s, 256, want, N);
    clone_close(first);
    ck_assert_uint_eq(n_free(a), 256);

    ck_assert_int_eq(drive_begin(&d, second, passage, &s, &err), STATUS_OK);
    ck_assert_uint_eq(d.turn.reply.n_cached, (d.turn.reply.n_prompt - 1) / 16 * 16);
    ck_assert_uint_eq(a->type->cost(a, &d.turn.row), d.turn.reply.n_prompt - d.turn.reply.n_cached);
    drive_run(a, &only, 1, 256);
    drive_end(&d, true);
    agent_describe(a, &info);
    ck_assert_uint_gt(info.cache.pages_cached, 0);
    ck_assert_uint_gt(info.cache.hit_tokens, 100);
    ck_assert_uint_le(info.cache.hit_tokens, info.cache.lookup_tokens);
    second->agent->type->reset(second);
    (void)drive_turn(a, second, passage, &s, 256, got, N);
    ck_assert_mem_eq(got, want, sizeof(want));
    clone_close(second);

    ck_assert_int_eq(clone_open(&stranger, a, &tenant, &err), STATUS_OK);
    ck_assert_int_eq(drive_begin(&d, stranger, passage, &s, &err), STATUS_OK);
    ck_assert_uint_eq(d.turn.reply.n_cached, 0);
    drive_end(&d, false);
    clone_close(stranger);
    agent_unref(a);
}
END_TEST

/* Rows that compute the same prefix at the same time share its pages afterwards, and a row that
 * waited finds them. */
START_TEST(neighbours_share_what_both_computed)
{
    struct agent *a = open_on("cpu", 256);
    struct sampling s = brief();
    struct drive d[3], *all[3] = {&d[0], &d[1], &d[2]};
    struct clone_info info;
    struct error err;

    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(drive_begin(&d[i], open_clone(a, NULL), passage, &s, &err), STATUS_OK);
    while (d[0].turn.reply.n_tokens == 0) {
        ck_assert_uint_eq(d[0].turn.reply.n_cached + d[2].turn.reply.n_cached, 0);
        (void)drive_step(a, all, 2, 32);
    }
    for (int i = 0; i < 2; i++) {
        clone_describe(d[i].clone, &info);
        ck_assert_uint_ge(info.n_pages_shared, d[0].turn.reply.n_prompt / 16);
    }
    (void)drive_step(a, all, 3, 256);
    ck_assert_uint_eq(d[2].turn.reply.n_cached, (d[2].turn.reply.n_prompt - 1) / 16 * 16);
    drive_run(a, all, 3, 256);
    for (int i = 0; i < 3; i++) {
        ck_assert_uint_eq(d[i].turn.reply.n_tokens, N);
        for (int t = 0; t < N; t++)
            ck_assert_int_eq(d[i].turn.reply.tokens[t].id, d[0].turn.reply.tokens[t].id);
    }
    for (int i = 0; i < 3; i++) {
        drive_end(&d[i], true);
        clone_close(d[i].clone);
    }
    ck_assert_uint_eq(n_free(a), 256);
    agent_unref(a);
}
END_TEST

/* A turn computes only its own tokens. */
START_TEST(a_turn_continues_from_its_pages)
{
    struct agent *a = open_on("cpu", 256);
    struct sampling s = brief();
    struct clone *c = open_clone(a, NULL);
    struct clone_info info;
    int32_t ids[3][N];
    struct drive d;
    struct error err;

    converse(a, c, 256, ids);
    clone_describe(c, &info);
    ck_assert_int_eq(drive_begin(&d, c, "go on", &s, &err), STATUS_OK);
    /* the previous reply's last token and its end have no keys and values yet */
    ck_assert_uint_ge(d.turn.reply.n_cached + 3, info.n_tokens);
    ck_assert_uint_gt(d.turn.reply.n_prompt, info.n_tokens);
    drive_end(&d, false);
    clone_close(c);
    agent_unref(a);
}
END_TEST

/* Unused cached pages are evicted before an idle conversation loses its pages. */
START_TEST(cached_pages_give_way_before_conversations)
{
    struct agent *a = open_on("cpu", 40);
    struct sampling s = brief();
    struct clone *kept = open_clone(a, NULL), *c;
    int32_t ids[N], again[N];
    struct agent_info info;
    char text[120];

    (void)drive_turn(a, kept, "keep the hello", &s, 256, ids, N);
    for (int i = 0; i < 12; i++) { /* about nine pages each, one after the other */
        c = open_clone(a, NULL);
        (void)snprintf(text, sizeof(text), "%d %080d", i, i);
        (void)drive_turn(a, c, text, &s, 256, again, N);
        clone_close(c);
    }
    agent_describe(a, &info);
    ck_assert_uint_eq(info.cache.evictions, 0);
    ck_assert_uint_gt(info.cache.pages_evicted, 40);
    clone_close(kept);
    agent_unref(a);
}
END_TEST

/* Sixteen forks of a conversation of nearly 1,900 tokens: its pages exist once, and each fork has
 * pages of its own tokens and a copy of the half-full page. */
START_TEST(sixteen_forks_of_a_long_conversation)
{
    enum { N_FORKS = 16, N_NEW = 64 };
    static char text[1830];
    struct agent *a = open_on("cpu", 512);
    struct sampling s = brief();
    struct clone *c = open_clone(a, NULL), *child;
    struct drive d[N_FORKS], *all[N_FORKS];
    size_t before = n_free(a), n_one, n_own = 0, n_computed = 0;
    struct kv_usage usage;
    struct clone_info info;
    struct error err;
    int32_t ids[N];

    memset(text, 'x', sizeof(text) - 1);
    (void)drive_turn(a, c, text, &s, 256, ids, N);
    clone_describe(c, &info);
    n_one = before - n_free(a);
    s.max_tokens = N_NEW;
    for (int i = 0; i < N_FORKS; i++) {
        all[i] = &d[i];
        s.seed = (uint64_t)i; /* equal replies would share pages again */
        ck_assert_int_eq(clone_fork(&child, c, 1, &err), STATUS_OK);
        ck_assert_int_eq(drive_begin(&d[i], child, "go on", &s, &err), STATUS_OK);
        n_computed += d[i].turn.reply.n_prompt - d[i].turn.reply.n_cached;
        n_own += d[i].turn.reply.n_prompt - info.n_tokens + N_NEW;
    }
    ck_assert_uint_eq(before - n_free(a), n_one);
    drive_run(a, all, N_FORKS, 256);
    for (int i = 0; i < N_FORKS; i++)
        ck_assert_uint_eq(d[i].turn.reply.n_tokens, N_NEW);
    kv_pages_usage(lm_of(a)->cache.pages, &usage);
    printf(
        "%zu tokens in %zu pages, %d forks with %zu new tokens: %zu pages, %zu tokens of prompts "
        "computed\n",
        info.n_tokens, n_one, N_FORKS, n_own, before - usage.n_free, n_computed);
    ck_assert_uint_le(10 * (before - usage.n_free), 11 * n_one + 10 * (n_own / 16));
    ck_assert_uint_le(usage.n_copies, N_FORKS);
    ck_assert_uint_le(n_computed, N_FORKS * (d[0].turn.reply.n_prompt - info.n_tokens + 3));
    for (int i = 0; i < N_FORKS; i++) {
        drive_end(&d[i], true);
        clone_close(d[i].clone);
    }
    clone_close(c);
    ck_assert_uint_eq(n_free(a), before);
    agent_unref(a);
}
END_TEST

/* A prompt longer than the context is refused with both sizes and changes nothing. */
START_TEST(prompt_beyond_the_context)
{
    static char text[3 * TINY_CONTEXT];
    struct agent *a = open_on("cpu", 256);
    struct sampling s = brief();
    struct clone *c = open_clone(a, NULL);
    struct drive d;
    struct error err;
    size_t n_generated = 0;

    memset(text, 'x', sizeof(text) - 1);
    ck_assert_int_eq(drive_begin(&d, c, text, &s, &err), STATUS_RANGE);
    ck_assert_ptr_nonnull(strstr(err.text, "the context holds only 2048"));
    ck_assert_int_eq(sscanf(err.text, "the prompt has %zu tokens", &n_generated), 1);
    ck_assert_uint_gt(n_generated,
                      sizeof(text) - 1); /* one token per byte, and those of the template */
    drive_end(&d, false);
    s.temperature = -1;
    ck_assert_int_eq(drive_begin(&d, c, "hello", &s, &err), STATUS_INVALID);
    ck_assert_str_eq(err.field, "temperature");
    drive_end(&d, false);
    clone_close(c);
    agent_unref(a);
}
END_TEST

/* A context that is full ends the reply with "length". */
START_TEST(full_context_ends_the_reply)
{
    static char text[TINY_CONTEXT - 200];
    struct agent *a = open_on("cpu", 256);
    struct sampling s = brief();
    struct clone *c = open_clone(a, NULL);
    struct drive d, *only = &d;
    struct error err;

    memset(text, 'x', sizeof(text) - 1);
    s.max_tokens = 0;
    ck_assert_int_eq(drive_begin(&d, c, text, &s, &err), STATUS_OK);
    drive_run(a, &only, 1, 256);
    ck_assert_int_eq(d.turn.reply.finish, FINISH_LENGTH);
    ck_assert_uint_eq(d.turn.reply.n_prompt + d.turn.reply.n_tokens, TINY_CONTEXT);
    drive_end(&d, true);
    clone_close(c);
    agent_unref(a);
}
END_TEST

/* A reply whose text passes its bound fails for good: no memory would help. */
START_TEST(reply_beyond_its_bound)
{
    struct agent *a = open_on("cpu", 256);
    struct sampling s = brief();
    struct clone *c = open_clone(a, NULL);
    struct drive d, *only = &d;
    struct error err;

    ck_assert_int_eq(drive_begin(&d, c, "hello", &s, &err), STATUS_OK);
    d.turn.reply.text.limit_bytes = 1;
    drive_run(a, &only, 1, 256);
    ck_assert_int_eq(d.turn.row.outcome, ROW_FAILED);
    ck_assert_int_eq(d.turn.row.err.status, STATUS_RANGE);
    ck_assert_str_eq(error_reason(&d.turn.row.err), "REPLY_TOO_LONG");
    drive_end(&d, false);
    clone_close(c);
    agent_unref(a);
}
END_TEST

/* A model tells the architecture of its file. */
START_TEST(architecture_is_told)
{
    struct tiny_config qwen2 = {.seed = 1, .architecture = "qwen2", .has_own_keys = true};
    struct agent_config config = drive_config("ref", 64);
    struct agent_info info;
    struct agent *a;
    struct error err;

    ck_assert_msg(drive_open(&a, &qwen2, &config, &err) == STATUS_OK, "%s", err.text);
    agent_describe(a, &info);
    ck_assert_str_eq(info.architecture, "qwen2");
    agent_unref(a);
}
END_TEST

SUITE_MAIN("lm", chunks_do_not_matter, company_does_not_matter, fork_shares_all_pages,
           fork_while_the_parent_speaks, rewind_save_restore_reset, drop_leaves_the_clone_as_it_was,
           eviction_changes_no_reply, those_who_wait_give_way, too_few_kv_bytes_are_refused,
           preemption_changes_no_reply, what_is_told_is_counted, system_prompt_is_computed_once,
           a_beginning_is_computed_once, neighbours_share_what_both_computed,
           a_turn_continues_from_its_pages, cached_pages_give_way_before_conversations,
           sixteen_forks_of_a_long_conversation, prompt_beyond_the_context,
           full_context_ends_the_reply, reply_beyond_its_bound, architecture_is_told)
