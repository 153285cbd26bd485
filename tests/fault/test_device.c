/* The language model on a failing device: which replies are lost, and what is kept; on a device
 * with little memory; and on one that samples tokens itself. */
#include <string.h>

#include "tests/fault/sweep.h"
#include "tests/support/faulty_backend.h"
#include "tests/support/lm_driver.h"
#include "tests/unit/base/suite.h"

enum { N = 6, MANY_PAGES = 64, LEAST = 80 /* calls of a device in a reply */ };

static const struct tiny_config tiny = {.type = DTYPE_Q4_1, .seed = 3};
static const struct clone_config brief = {.system = "be brief", .system_len = 8};

static struct agent *open_on(const struct backend_type *type, size_t n_pages, size_t n_slots)
{
    struct agent_config config = drive_config("ref", n_pages);
    struct agent *a;
    struct error err;

    config.backend_type = type;
    config.options.kv_host_bytes = config.options.kv_bytes / n_pages * n_slots;
    ck_assert_msg(drive_open(&a, &tiny, &config, &err) == STATUS_OK, "%s", err.text);
    return a;
}

static struct sampling sampling_of(uint32_t seed)
{
    struct sampling s;

    sampling_init(&s);
    s.temperature = 0.9f;
    s.seed = seed;
    s.max_tokens = N;
    s.ignore_eos = true;
    s.want_logprobs = true;
    return s;
}

/* The reply of a conversation's turn. */
struct said {
    int32_t ids[N];
    float logprobs[N];
};

static enum status try_turns(struct agent *a, struct clone *const *clones, size_t n,
                             const char *const *texts, const struct sampling *s, struct said *out,
                             bool *are_done, struct error *err)
{
    struct drive drives[2], *each[2] = {&drives[0], &drives[1]};
    enum status rc = STATUS_OK;

    for (size_t i = 0; i < n; i++)
        if (drive_begin(&drives[i], clones[i], texts[i], s, err) != STATUS_OK) {
            drives[i].turn.row.outcome = ROW_FAILED;
            drives[i].turn.row.err = *err;
        }
    drive_run(a, each, n, 16);
    for (size_t i = 0; i < n; i++) {
        const struct reply *r = &drives[i].turn.reply;
        const bool is_done = drives[i].turn.row.outcome != ROW_FAILED;

        are_done[i] = is_done;
        if (!is_done) {
            *err = drives[i].turn.row.err;
            rc = err->status;
            ck_assert_str_ne(err->text, "");
        }
        for (size_t k = 0; is_done && k < N; k++) {
            out[i].ids[k] = r->tokens[k].id;
            out[i].logprobs[k] = r->tokens[k].logprob;
        }
        drive_end(&drives[i], is_done);
    }
    return rc;
}

static void turn(struct agent *a, struct clone *c, const char *text, struct said *out)
{
    const struct sampling s = sampling_of(7);
    struct error err;
    bool is_done;

    ck_assert_msg(try_turns(a, &c, 1, &text, &s, out, &is_done, &err) == STATUS_OK, "%s", err.text);
}

static struct clone *open_clone(struct agent *a)
{
    struct clone *c;
    struct error err;

    ck_assert_int_eq(clone_open(&c, a, &brief, &err), STATUS_OK);
    return c;
}

static uint64_t n_losses(const struct agent *a)
{
    struct agent_info info;

    agent_describe(a, &info);
    return info.device_losses;
}

static const char *const first[2] = {"the hello and the tall hat", "a hill in the hall"};
static const char *const second[2] = {"and then the bell", "the well in the dell"};

struct story {
    struct agent *agent;
    struct said known[2];
    size_t n_together; /* rows in a batch */
    size_t n_faults;
};

/* Two conversations have one reply each; then they continue while the device may fail. A lost turn
 * is requested again, and its reply is the one without a fault. */
static enum status tell(void *arg)
{
    struct story *story = arg;
    const struct sampling s = sampling_of(7);
    struct clone *clones[2];
    struct said said[2], ignored;
    bool are_done[2];
    struct error err;
    long armed = fault_after;
    uint64_t n_opened, n_lost;
    enum status rc;

    fault_after = -1;
    for (size_t i = 0; i < 2; i++) {
        clones[i] = open_clone(story->agent);
        turn(story->agent, clones[i], first[i], &ignored);
    }
    n_opened = faulty_n_opened;
    n_lost = n_losses(story->agent);
    fault_after = armed;
    rc = try_turns(story->agent, clones, story->n_together, second, &s, said, are_done, &err);
    if (story->n_together == 1) {
        enum status last =
            try_turns(story->agent, &clones[1], 1, &second[1], &s, &said[1], &are_done[1], &err);

        rc = last != STATUS_OK ? last : rc;
    }
    armed = fault_after;
    fault_after = -1;
    ck_assert(rc == STATUS_OK || rc == faulty_status || rc == STATUS_EXHAUSTED ||
              rc == STATUS_UNAVAILABLE);
    ck_assert_uint_eq(faulty_n_opened, n_opened + (rc == STATUS_INTERNAL)); /* once */
    if (rc == STATUS_INTERNAL || story->n_together == 2) /* where host pages are lost, all are */
        ck_assert_uint_eq(n_losses(story->agent), n_lost + (rc == STATUS_INTERNAL));
    story->n_faults += rc == faulty_status;
    for (size_t i = 0; i < 2; i++) {
        if (!are_done[i])
            turn(story->agent, clones[i], second[i], &said[i]);
        ck_assert_mem_eq(&said[i], &story->known[i], sizeof(said[i]));
        clone_close(clones[i]);
    }
    fault_after = armed;
    return rc == STATUS_OK ? STATUS_OK : STATUS_EXHAUSTED;
}

/* Fails each call of the device, and each allocation, in turn. Returns the number of device faults
 * that were reported to rows. */
static size_t sweep_story(enum status status, size_t n_pages, size_t n_slots)
{
    struct story story = {.agent = open_on(&faulty_backend, n_pages, n_slots),
                          .n_together = n_slots > 0 ? 1 : 2};
    struct agent_info info;
    struct said ignored;

    faulty_status = status;
    for (size_t i = 0; i < 2; i++) {
        struct agent *alone = open_on(&faulty_backend, MANY_PAGES, 0);
        struct clone *c = open_clone(alone);

        turn(alone, c, first[i], &ignored);
        turn(alone, c, second[i], &story.known[i]);
        clone_close(c);
        agent_unref(alone);
    }
    (void)sweep(tell, &story);
    agent_describe(story.agent, &info);
    ck_assert_uint_eq(info.cache.offloads > 0 && info.cache.reloads > 0, n_slots > 0);
    agent_unref(story.agent);
    faulty_status = STATUS_EXHAUSTED;
    return story.n_faults;
}

/* A failing device ends the running replies, INTERNAL, and is opened again once. All conversations
 * continue, also those whose reply was lost, with the replies they would have had. */
START_TEST(conversations_outlive_their_device)
{
    ck_assert_uint_ge(sweep_story(STATUS_INTERNAL, MANY_PAGES, 0),
                      (size_t)(LEAST / sweep_stride()));
}
END_TEST

/* The same while pages move to the host's memory and back. */
START_TEST(slots_are_lost_with_their_device)
{
    ck_assert_uint_ge(sweep_story(STATUS_INTERNAL, 8, 8), (size_t)(LEAST / sweep_stride()));
}
END_TEST

/* A step without memory on the device ends its replies, EXHAUSTED; the device stays open. */
START_TEST(no_memory_for_a_step_is_no_fault)
{
    ck_assert_uint_ge(sweep_story(STATUS_EXHAUSTED, MANY_PAGES, 0),
                      (size_t)(LEAST / sweep_stride()));
    ck_assert_uint_ge(sweep_story(STATUS_EXHAUSTED, 8, 8), (size_t)(LEAST / sweep_stride()));
}
END_TEST

/* While the device cannot be opened again each turn fails with that; later turns succeed. */
START_TEST(a_device_may_stay_away)
{
    const struct sampling s = sampling_of(7);
    struct agent *a = open_on(&faulty_backend, MANY_PAGES, 0);
    struct clone *c = open_clone(a), *same = open_clone(a);
    struct said known, said;
    bool is_done;
    struct error err;

    turn(a, same, first[0], &said);
    turn(a, same, second[0], &known);
    turn(a, c, first[0], &said);
    faulty_status = STATUS_INTERNAL;
    faulty_cannot_open = true;
    fault_after = 40;
    ck_assert_int_eq(try_turns(a, &c, 1, &second[0], &s, &said, &is_done, &err), STATUS_INTERNAL);
    fault_after = -1;
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(try_turns(a, &c, 1, &second[0], &s, &said, &is_done, &err),
                         STATUS_UNAVAILABLE);
        ck_assert_ptr_nonnull(strstr(err.text, "no device is there"));
    }
    faulty_cannot_open = false;
    turn(a, c, second[0], &said);
    ck_assert_mem_eq(&said, &known, sizeof(said));
    faulty_status = STATUS_EXHAUSTED;
    clone_close(c);
    clone_close(same);
    agent_unref(a);
}
END_TEST

/* Fast math is on until the device fails; then it is opened again without. */
START_TEST(a_failed_device_is_fast_no_more)
{
    struct agent_config config = drive_config("ref", MANY_PAGES);
    const struct sampling s = sampling_of(7);
    struct agent *a;
    struct clone *c;
    struct said said;
    bool is_done;
    struct error err;

    config.backend_type = &faulty_backend;
    config.options.fast_math = true;
    ck_assert_msg(drive_open(&a, &tiny, &config, &err) == STATUS_OK, "%s", err.text);
    ck_assert(faulty_was_fast);
    c = open_clone(a);
    faulty_status = STATUS_INTERNAL;
    fault_after = 40;
    ck_assert_int_eq(try_turns(a, &c, 1, &first[0], &s, &said, &is_done, &err), STATUS_INTERNAL);
    fault_after = -1;
    turn(a, c, first[0], &said);
    ck_assert(!faulty_was_fast);
    faulty_status = STATUS_EXHAUSTED;
    clone_close(c);
    agent_unref(a);
}
END_TEST

/* A model whose device is lost can be closed. */
START_TEST(a_model_without_its_device_closes)
{
    const struct sampling s = sampling_of(7);
    struct agent *a = open_on(&faulty_backend, MANY_PAGES, 0);
    struct clone *c = open_clone(a);
    struct said said;
    bool is_done;
    struct error err;

    faulty_status = STATUS_INTERNAL;
    faulty_cannot_open = true;
    fault_after = 40;
    ck_assert_int_eq(try_turns(a, &c, 1, &first[0], &s, &said, &is_done, &err), STATUS_INTERNAL);
    fault_after = -1;
    clone_close(c);
    agent_unref(a);
    faulty_cannot_open = false;
    faulty_status = STATUS_EXHAUSTED;
}
END_TEST

/* Evicted pages of idle conversations are offloaded to the host's memory: they are reloaded, not
 * recomputed, with the same contents. */
START_TEST(pages_come_back_from_slots)
{
    enum { N_CLONES = 5 };
    struct agent *many = open_on(&faulty_backend, MANY_PAGES, 0);
    struct agent *few = open_on(&faulty_backend, 12, 40), *none = open_on(&faulty_backend, 12, 0);
    struct agent *const agents[] = {many, few, none};
    struct said said[3][2][N_CLONES];
    struct agent_info info[3];

    for (size_t k = 0; k < 3; k++) {
        struct clone *clones[N_CLONES];

        for (size_t i = 0; i < N_CLONES; i++) {
            clones[i] = open_clone(agents[k]);
            turn(agents[k], clones[i], i % 2 == 0 ? first[0] : first[1], &said[k][0][i]);
            turn(agents[k], clones[i], second[i % 2], &said[k][0][i]);
        }
        for (size_t i = 0; i < N_CLONES; i++)
            turn(agents[k], clones[i], i < 3 ? "one" : "two", &said[k][1][i]);
        agent_describe(agents[k], &info[k]);
        for (size_t i = 0; i < N_CLONES; i++)
            clone_close(clones[i]);
    }
    ck_assert_mem_eq(said[1], said[0], sizeof(said[0]));
    ck_assert_mem_eq(said[2], said[0], sizeof(said[0]));
    ck_assert_uint_eq(info[0].cache.offloads, 0);
    ck_assert_uint_gt(info[1].cache.offloads, 0);
    ck_assert_uint_gt(info[1].cache.reloads, 0);
    ck_assert_uint_eq(info[1].cache.host_pages, 40);
    ck_assert_uint_gt(info[1].cache.hit_tokens, info[2].cache.hit_tokens);
    for (size_t k = 0; k < 3; k++)
        agent_unref(agents[k]);
}
END_TEST

/* Leaves every second token to the host. */
static void draw_some(struct backend *b, const struct buffer *logits, size_t n_vocab,
                      const struct draw_list *list, struct drawn *out)
{
    faulty_backend.sample(b, logits, n_vocab, list, out);
    for (size_t i = 0; i < list->n; i++)
        if (list->draws[i].position % 2 == 1)
            out[i].id = -1;
}

/* A reply is the same whether the device samples its tokens, or the host, or each some of them,
 * also next to rows whose tokens only the host can sample. */
START_TEST(who_draws_does_not_matter)
{
    static struct backend_type types[3];
    struct said said[3][2];

    for (size_t k = 0; k < 3; k++) {
        struct sampling s[2] = {sampling_of(3), sampling_of(4)};
        struct drive drives[2], *each[2] = {&drives[0], &drives[1]};
        struct clone *clones[2];
        struct agent *a;
        struct error err;

        types[k] = faulty_backend;
        types[k].sample = k == 0 ? faulty_backend.sample : k == 1 ? NULL : draw_some;
        a = open_on(&types[k], MANY_PAGES, 0);
        s[0].top_k = 30;
        s[0].top_p = 0.9f;
        s[1].presence_penalty = 0.5f;
        for (size_t i = 0; i < 2; i++) {
            clones[i] = open_clone(a);
            ck_assert_int_eq(drive_begin(&drives[i], clones[i], first[i], &s[i], &err), STATUS_OK);
        }
        drive_run(a, each, 2, 16);
        for (size_t i = 0; i < 2; i++) {
            ck_assert_int_eq(drives[i].turn.row.outcome, ROW_DONE);
            for (size_t n = 0; n < N; n++) {
                said[k][i].ids[n] = drives[i].turn.reply.tokens[n].id;
                said[k][i].logprobs[n] = drives[i].turn.reply.tokens[n].logprob;
            }
            drive_end(&drives[i], true);
            clone_close(clones[i]);
        }
        agent_unref(a);
    }
    ck_assert_mem_eq(said[1], said[0], sizeof(said[0]));
    ck_assert_mem_eq(said[2], said[0], sizeof(said[0]));
}
END_TEST

SUITE_MAIN("fault/device", conversations_outlive_their_device, slots_are_lost_with_their_device,
           no_memory_for_a_step_is_no_fault, a_device_may_stay_away,
           a_failed_device_is_fast_no_more, a_model_without_its_device_closes,
           pages_come_back_from_slots, who_draws_does_not_matter)
