/* Conversations with a model that carries a recurrent state: what is computed again, and that the
 * slots' number changes no reply. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agents/lm/lm.h"
#include "base/alloc.h"
#include "compute/cpu/cpu.h"
#include "tests/support/lm_driver.h"
#include "tests/unit/base/suite.h"

enum { MAX_REPLY = 40, CLONES = 3, PLENTY = 512 };

static const struct tiny_config tiny = {.type = DTYPE_Q8_0, .seed = 7, .has_state = true};
static struct error err;
static struct sampling greedy;

/* cpu, of whose calls of sync the one after the next syncs_left fails; -1: none. */
static struct backend_type failing;
static long syncs_left = -1;

static enum status failing_sync(struct backend *b, struct error *why)
{
    if (syncs_left >= 0 && syncs_left-- == 0)
        return error_set(why, STATUS_EXHAUSTED, "the device has no memory for the step");
    return cpu_backend.sync(b, why);
}

static struct agent *open_with(size_t kv_bytes, bool has_cache, enum speculate speculate)
{
    struct agent_config config = drive_config("cpu", PLENTY);
    struct agent *a;

    failing = cpu_backend;
    failing.sync = failing_sync;
    config.backend_type = &failing;
    sampling_init(&greedy);
    greedy.temperature = 0;
    greedy.max_tokens = MAX_REPLY;
    greedy.ignore_eos = true;
    config.options.no_prefix_cache = !has_cache;
    config.options.speculate = speculate;
    if (kv_bytes != 0)
        config.options.kv_bytes = kv_bytes;
    ck_assert_msg(drive_open(&a, &tiny, &config, &err) == STATUS_OK, "%s", err.text);
    return a;
}

static struct agent *open_agent(size_t kv_bytes, bool has_cache)
{
    return open_with(kv_bytes, has_cache, SPECULATE_ON);
}

static struct lm *lm_in(struct agent *a)
{
    return container_of(a, struct lm, base);
}

static struct clone *open_clone(struct agent *a, const char *system)
{
    const struct clone_config config = {.system = system,
                                        .system_len = system == NULL ? 0 : strlen(system)};
    struct clone *c;

    ck_assert_int_eq(clone_open(&c, a, &config, &err), STATUS_OK);
    return c;
}

static struct lm_clone_pages *pages_of(struct clone *c)
{
    return &container_of(c, struct lm_clone, base)->pages;
}

struct said {
    int32_t ids[MAX_REPLY];
    size_t n;
    size_t n_prompt, n_cached;
};

static void say(struct agent *a, struct clone *c, const char *text, size_t max_grant,
                struct said *out)
{
    struct drive d, *all = &d;

    ck_assert_msg(drive_begin(&d, c, text, &greedy, &err) == STATUS_OK, "%s", err.text);
    drive_run(a, &all, 1, max_grant);
    ck_assert_msg(d.turn.row.outcome != ROW_FAILED, "%s", d.turn.row.err.text);
    out->n = d.turn.reply.n_tokens;
    for (size_t i = 0; i < out->n; i++)
        out->ids[i] = d.turn.reply.tokens[i].id;
    out->n_prompt = d.turn.reply.n_prompt;
    out->n_cached = d.turn.reply.n_cached;
    drive_end(&d, true);
}

static void expect_same(const struct said *a, const struct said *b)
{
    ck_assert_uint_eq(a->n, b->n);
    ck_assert_mem_eq(a->ids, b->ids, a->n * sizeof(*a->ids));
}

static void long_text(char *out, size_t n, const char *begin)
{
    size_t at = (size_t)snprintf(out, n, "%s", begin);

    for (int i = 0; at + 24 < n; i++)
        at += (size_t)snprintf(out + at, n - at, " hello %d in the hell", i * 7919 % 1000);
}

/* Of a step that fails behind its logits, where it moves the state on behind accepted draft tokens,
 * no draft token counts, and the conversation goes on as if the turn had not been. */
START_TEST(lost_drafts_are_not_accepted)
{
    struct agent *a = open_with(0, true, SPECULATE_OFF);
    struct clone *c = open_clone(a, NULL);
    struct said want, got;
    size_t n_failed = 0;

    say(a, c, "Name a river.", 64, &want);
    clone_close(c);
    for (long n = 0;; n++) {
        const uint64_t n_accepted = lm_in(a)->n_accepted, n_drafted = lm_in(a)->n_drafted;
        struct drive d, *only = &d;
        bool has_failed;

        c = open_clone(a, NULL);
        ck_assert_int_eq(drive_begin(&d, c, "Name a river.", &greedy, &err), STATUS_OK);
        d.turn.seen.predicted = want.ids;
        d.turn.seen.n_predicted = MAX_REPLY;
        syncs_left = n;
        drive_run(a, &only, 1, 64);
        syncs_left = -1;
        has_failed = d.turn.row.outcome == ROW_FAILED;
        ck_assert_uint_le(lm_in(a)->n_accepted - n_accepted, d.turn.reply.n_tokens);
        ck_assert_uint_le(lm_in(a)->n_drafted - n_drafted, d.turn.reply.n_tokens);
        drive_end(&d, !has_failed);
        if (has_failed) {
            say(a, c, "Name a river.", 64, &got);
            expect_same(&got, &want);
        }
        clone_close(c);
        n_failed += has_failed;
        if (!has_failed)
            break;
    }
    ck_assert_uint_gt(lm_in(a)->n_accepted, 0);
    ck_assert_uint_ge(n_failed, 4); /* two of each step */
    agent_unref(a);
}
END_TEST

/* The second conversation with a system prompt computes none of it again but for a page. */
START_TEST(system_prompts_are_found)
{
    struct agent *a = open_agent(0, true);
    char system[600];
    struct clone *c[2];
    struct said first, second, alone;
    struct agent *other = open_agent(0, false);
    struct clone *lone;
    size_t n_system;

    long_text(system, sizeof(system), "You are a guide.");
    c[0] = open_clone(a, system);
    c[1] = open_clone(a, system);
    lone = open_clone(other, system);
    say(a, c[0], "Name a river.", 64, &first);
    say(a, c[1], "Which hills are there? All of them.", 16, &second);
    say(other, lone, "Which hills are there? All of them.", 256, &alone);
    n_system = container_of(c[0], struct lm_clone, base)->system->n_ids;
    ck_assert_uint_eq(first.n_cached, 0);
    ck_assert_uint_ge(n_system, 200);
    ck_assert_uint_ge(second.n_cached + KV_PAGE_TOKENS, n_system);
    expect_same(&second, &alone);
    clone_close(c[0]);
    clone_close(c[1]);
    clone_close(lone);
    agent_unref(a);
    agent_unref(other);
}
END_TEST

/* A text that several prompts share up to a place that nobody named: the second one leaves a
 * snapshot there, the third begins behind it. */
START_TEST(junctions_are_found_from_the_third_on)
{
    struct agent *a = open_agent(0, true);
    char shared[1200], tail[200], text[1400];
    struct said said[3];

    long_text(shared, sizeof(shared), "Read this.");
    for (int i = 0; i < 3; i++) {
        struct clone *c = open_clone(a, NULL);

        long_text(tail, sizeof(tail), i == 0 ? "And a?" : i == 1 ? "But b?" : "Or c?");
        (void)snprintf(text, sizeof(text), "%s %s", shared, tail);
        say(a, c, text, 100, &said[i]);
        clone_close(c);
    }
    ck_assert_uint_lt(said[1].n_cached, 100);
    ck_assert_uint_ge(said[2].n_cached, 500);
    ck_assert_uint_ge(said[2].n_prompt - said[2].n_cached, 50);
    agent_unref(a);
}
END_TEST

/* After a rewind a turn is said again: the same reply, and only a page before it is computed. */
START_TEST(rewinds_go_back_to_a_snapshot)
{
    struct agent *a = open_agent(0, true);
    struct clone *c = open_clone(a, NULL);
    struct said first, again, before;
    uint32_t n_ids;

    say(a, c, "Name a river in the hell, and one that is not in it, hello?", 64, &before);
    n_ids = container_of(c, struct lm_clone, base)->n_ids;
    say(a, c, "Another one.", 64, &first);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(lm_clone_rewind(c, 1, &err), STATUS_OK);
        ck_assert_uint_ge(pages_of(c)->kv.n_tokens + 2 * KV_PAGE_TOKENS, n_ids);
        ck_assert_int_ge(pages_of(c)->state, 0);
        say(a, c, "Another one.", i == 0 ? 1 : 7, &again);
        expect_same(&first, &again);
    }
    ck_assert_int_eq(lm_clone_rewind(c, 0, &err), STATUS_OK);
    ck_assert_int_eq(pages_of(c)->state, KV_NO_SLOT);
    say(a, c, "Name a river in the hell, and one that is not in it, hello?", 16, &again);
    expect_same(&before, &again);
    clone_close(c);
    agent_unref(a);
}
END_TEST

/* A fork at the end holds its parent's slot; both go on alike, and apart. */
START_TEST(forks_share_a_slot)
{
    struct agent *a = open_agent(0, true);
    struct clone *parent = open_clone(a, NULL), *child, *early;
    struct said said[3];
    struct kv_slot_usage usage;

    say(a, parent, "Name a river.", 64, &said[0]);
    say(a, parent, "And a hill.", 64, &said[0]);
    ck_assert_int_eq(clone_fork(&child, parent, 2, &err), STATUS_OK);
    ck_assert_int_eq(pages_of(child)->state, pages_of(parent)->state);
    kv_slots_usage(lm_in(a)->cache.states.slots, &usage);
    ck_assert_uint_ge(usage.n_shared, 1);
    ck_assert_int_eq(clone_fork(&early, parent, 1, &err), STATUS_OK);
    say(a, parent, "And a tree.", 64, &said[0]);
    say(a, early, "And a hill.", 64, &said[2]);
    say(a, early, "And a tree.", 64, &said[2]);
    say(a, child, "And a tree.", 7, &said[1]);
    expect_same(&said[0], &said[1]);
    expect_same(&said[0], &said[2]);
    clone_close(parent);
    clone_close(child);
    clone_close(early);
    agent_unref(a);
}
END_TEST

/* Turns that are dropped in the middle leave the conversation as it was. */
START_TEST(dropped_turns_leave_nothing)
{
    struct agent *a = open_agent(0, true);
    struct clone *c = open_clone(a, NULL);
    struct drive d, *all = &d;
    struct said want, got;

    say(a, c, "Name a river.", 64, &want);
    say(a, c, "And a hill.", 64, &want);
    ck_assert_int_eq(lm_clone_rewind(c, 1, &err), STATUS_OK);
    ck_assert_int_eq(drive_begin(&d, c, "Something else that is long enough.", &greedy, &err),
                     STATUS_OK);
    for (int i = 0; i < 30; i++)
        (void)drive_step(a, &all, 1, 5);
    drive_end(&d, false);
    say(a, c, "And a hill.", 64, &got);
    expect_same(&want, &got);
    clone_close(c);
    agent_unref(a);
}
END_TEST

static void expect_same_state(struct agent *a, struct clone *x, struct agent *b, struct clone *y)
{
    const size_t size_bytes = transformer_slot_bytes(lm_in(a)->transformer);
    unsigned char *states = xalloc(2 * size_bytes);

    ck_assert_uint_eq(pages_of(x)->kv.n_tokens, pages_of(y)->kv.n_tokens);
    transformer_read_slot(lm_in(a)->transformer, pages_of(x)->state, states);
    transformer_read_slot(lm_in(b)->transformer, pages_of(y)->state, states + size_bytes);
    ck_assert_mem_eq(states, states + size_bytes, size_bytes);
    free(states);
}

/* A reply that is predicted, to its end, up to a wrong token, or wrongly from the first token on,
 * is the same, and leaves the same state. A right prediction takes a step for each page. */
START_TEST(drafts_leave_the_same_state)
{
    enum { RIGHT, HALF, WRONG, WAYS };
    struct agent *a = open_with(0, true, SPECULATE_OFF);
    struct agent *on = open_with(0, true, SPECULATE_ON);
    struct clone *plain = open_clone(a, NULL), *guessed = open_clone(on, NULL), *c[WAYS];
    struct said want, got;
    uint64_t n_accepted = lm_in(a)->n_accepted;

    for (int way = 0; way < WAYS; way++)
        c[way] = open_clone(a, NULL);
    for (int turn = 0; turn < 3; turn++) {
        say(a, plain, "Name a river.", 64, &want);
        say(on, guessed, "Name a river.", 64, &got);
        expect_same(&want, &got);
        expect_same_state(a, plain, on, guessed);
        for (int way = 0; way < WAYS; way++) {
            int32_t ids[MAX_REPLY];
            struct drive d, *only = &d;
            size_t n_steps = 1;

            memcpy(ids, want.ids, sizeof(ids));
            ids[0] ^= way == WRONG;
            ids[MAX_REPLY / 2] ^= way == HALF;
            ck_assert_int_eq(drive_begin(&d, c[way], "Name a river.", &greedy, &err), STATUS_OK);
            d.turn.seen.predicted = ids;
            d.turn.seen.n_predicted = MAX_REPLY;
            while (drive_step(a, &only, 1, 64) != 0)
                n_steps++;
            ck_assert_uint_eq(d.turn.reply.n_tokens, MAX_REPLY);
            for (size_t i = 0; i < MAX_REPLY; i++)
                ck_assert_int_eq(d.turn.reply.tokens[i].id, want.ids[i]);
            drive_end(&d, true);
            expect_same_state(a, plain, a, c[way]);
            if (way == RIGHT)
                ck_assert_uint_le(n_steps, 2 + MAX_REPLY / KV_PAGE_TOKENS + 1);
            else
                ck_assert_uint_ge(n_steps, way == HALF ? MAX_REPLY / 2 - 1 : MAX_REPLY);
        }
    }
    ck_assert_uint_gt(lm_in(on)->n_accepted, 0);
    ck_assert_uint_ge(lm_in(a)->n_accepted - n_accepted, 3 * MAX_REPLY);
    for (int way = 0; way < WAYS; way++)
        clone_close(c[way]);
    clone_close(plain);
    clone_close(guessed);
    agent_unref(a);
    agent_unref(on);
}
END_TEST

/* Rows that take turns at the fewest slots give the replies that they give alone. */
START_TEST(few_slots_change_no_reply)
{
    static const char *const texts[CLONES] = {"Name a river.", "hello in the hell",
                                              "Who is there?"};
    struct agent *plenty = open_agent(0, true);
    const size_t slot_bytes = transformer_slot_bytes(lm_in(plenty)->transformer);
    struct agent *a = open_agent(9 * slot_bytes, true);
    struct clone *clones[CLONES];
    struct said want, got;

    ck_assert_uint_eq(lm_in(a)->cache.n_state_slots, 4);
    ck_assert_uint_gt(lm_in(plenty)->cache.n_state_slots, 100);
    for (int i = 0; i < CLONES; i++)
        clones[i] = open_clone(a, NULL);
    for (int turn = 0; turn < 2; turn++)
        for (int i = 0; i < CLONES; i++) {
            struct clone *lone = open_clone(plenty, NULL);

            for (int k = 0; k <= turn; k++)
                say(plenty, lone, texts[(i + k) % CLONES], 64, &want);
            say(a, clones[i], texts[(i + turn) % CLONES], 7, &got);
            expect_same(&want, &got);
            clone_close(lone);
        }
    ck_assert_uint_gt(lm_in(a)->cache.n_evictions, 0);
    ck_assert_uint_gt(lm_in(a)->cache.states.n_evicted, 0);
    for (int i = 0; i < CLONES; i++)
        clone_close(clones[i]);
    agent_unref(a);
    agent_unref(plenty);
}
END_TEST

/* Memory that holds neither slots nor pages is refused, with the least that does. */
START_TEST(too_little_memory_is_refused)
{
    struct agent_config config = drive_config("cpu", PLENTY);
    struct agent *a;

    config.options.kv_bytes = 100000;
    ck_assert_int_eq(drive_open(&a, &tiny, &config, &err), STATUS_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "4 slots of recurrent state"));
}
END_TEST

SUITE_MAIN("lm_states", system_prompts_are_found, junctions_are_found_from_the_third_on,
           rewinds_go_back_to_a_snapshot, forks_share_a_slot, dropped_turns_leave_nothing,
           drafts_leave_the_same_state, few_slots_change_no_reply, lost_drafts_are_not_accepted,
           too_little_memory_is_refused)
