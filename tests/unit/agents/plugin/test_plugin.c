#include "agents/plugin/environment.h"
#include "agents/plugin/plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agents/turn.h"
#include "base/alloc.h"

#include "tests/unit/base/suite.h"

static enum status open_path(struct agent **out, const char *path, struct error *err)
{
    const struct agent_config config = {.name = "p", .path = path, .env = &env_real};

    return agent_open_type(out, &plugin_agent, &config, err);
}

static struct agent *open_plugin(const char *path)
{
    struct agent *a = NULL;
    struct error err = {0};

    ck_assert_msg(open_path(&a, path, &err) == STATUS_OK, "%s", err.text);
    return a;
}

static struct clone *open_clone(struct agent *a)
{
    struct clone *c = NULL;
    struct error err;

    ck_assert_int_eq(clone_open(&c, a, &(struct clone_config){0}, &err), STATUS_OK);
    return c;
}

struct one_turn {
    struct message message;
    struct agent_turn turn;
};

static enum status observe(struct one_turn *t, struct clone *c, const char *text, struct error *err)
{
    t->message = (struct message){.role = ROLE_USER, .text = text, .len = strlen(text)};
    agent_turn_init(&t->turn, NULL, 1000);
    t->turn.seen.messages = &t->message;
    t->turn.seen.n_messages = 1;
    sampling_init(&t->turn.seen.sampling);
    return c->agent->type->observe(c, &t->turn, err);
}

/* Steps the rows once, as the batcher does. */
static void step(struct agent *a, struct one_turn *turns, size_t n)
{
    struct row *rows[8];
    struct batch_agent to;

    ck_assert_uint_le(n, 8);
    for (size_t i = 0; i < n; i++) {
        rows[i] = &turns[i].turn.row;
        rows[i]->outcome = ROW_FAILED;
    }
    agent_batch_adapter(a, &to);
    agent_compute(a, rows, n);
    for (size_t i = 0; i < n; i++)
        to.stepped(to.self, rows[i]);
}

/* A whole turn. */
static void says(struct clone *c, const char *text, const char *reply)
{
    struct error err = {0};
    struct one_turn t;

    ck_assert_msg(observe(&t, c, text, &err) == STATUS_OK, "%s", err.text);
    step(c->agent, &t, 1);
    ck_assert_int_eq(t.turn.row.outcome, ROW_DONE);
    ck_assert_str_eq(t.turn.reply.text.data, reply);
    c->agent->type->self_observe(c, &t.turn);
    agent_turn_deinit(&t.turn);
}

/* An object that is incomplete, or of another ABI, is refused by a line that says what it lacks. */
START_TEST(test_incomplete)
{
    static const struct {
        const char *path, *why;
    } faults[] = {
        {PLUGIN_NO_SYMBOL, "it defines no parley_agent"},
        {PLUGIN_ABI, "it has ABI 7, but this parleyd needs 1"},
        {PLUGIN_SIZE, "its parley_agent has 8 bytes"},
        {PLUGIN_NO_FORK, "its parley_agent has no fork"},
        {PLUGIN_HALF_SAVED, "its parley_agent has no restore"},
        {PLUGIN_NAME, "the name in its parley_agent is not valid"},
        {PLUGIN_FLAGS, "its parley_agent has unknown flags, 0x40"},
        {PLUGIN_TOO_WIDE,
         "its parley_agent asks for steps of 5000 rows, it may ask for at most 4096"},
        {PLUGIN_UNDEFINED, "it cannot be loaded: undefined symbol: nobody_defines_this"},
        {PLUGIN_WILL_NOT, "p: there is no coffee"},
        {"/dev/null", "it is not a regular file"},
        {"/nowhere/x.so", "No such file or directory"},
        {"/etc/passwd", "it cannot be loaded: invalid ELF header"},
    };

    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        struct agent *a = NULL;
        struct error err = {0};

        ck_assert_int_ne(open_path(&a, faults[i].path, &err), STATUS_OK);
        ck_assert_ptr_null(a);
        ck_assert_msg(strstr(err.text, faults[i].why) != NULL, "%s: %s", faults[i].path, err.text);
    }
}
END_TEST

static void copy_file(const char *from, const char *to)
{
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    char bytes[4096];
    size_t n;

    ck_assert(in != NULL && out != NULL);
    while ((n = fread(bytes, 1, sizeof(bytes), in)) > 0)
        ck_assert_uint_eq(fwrite(bytes, 1, n, out), n);
    ck_assert_int_eq(fclose(out), 0);
    (void)fclose(in);
}

static void check_denied(const char *path, const char *why)
{
    struct agent *a;
    struct error err = {0};

    ck_assert_int_eq(open_path(&a, path, &err), STATUS_DENIED);
    ck_assert_msg(strstr(err.text, why) != NULL, "%s", err.text);
}

/* A file that others than root and the daemon's user could have written is not loaded. */
START_TEST(test_owner)
{
    char folder[] = "/tmp/plugin-XXXXXX", path[64], link[64];

    ck_assert_ptr_nonnull(mkdtemp(folder));
    (void)snprintf(path, sizeof(path), "%s/p.so", folder);
    (void)snprintf(link, sizeof(link), "%s/link.so", folder);
    copy_file(PLUGIN_ROWS, path);
    ck_assert_int_eq(symlink(path, link), 0);
    agent_unref(open_plugin(path));
    agent_unref(open_plugin(link));
    ck_assert_int_eq(chmod(path, 0666), 0);
    check_denied(path, "every user may write to it");
    check_denied(link, "every user may write to it");
    ck_assert_int_eq(chmod(path, 0644), 0);
    ck_assert_int_eq(chmod(folder, 0777), 0);
    check_denied(path, "every user may replace it");
    ck_assert_int_eq(chmod(folder, 01777), 0);
    agent_unref(open_plugin(path));
    if (geteuid() == 0) {
        ck_assert_int_eq(chown(path, 4321, 4321), 0);
        check_denied(path, "it belongs to user 4321");
    }
    (void)unlink(link);
    (void)unlink(path);
    (void)rmdir(folder);
}
END_TEST

/* States: a fork and a rewind have the state of their turn, also a turn that others went on from.
 */
START_TEST(test_states)
{
    struct agent *a = open_plugin(PLUGIN_WORD_COUNT);
    struct clone *c = open_clone(a), *fork = NULL, *first = NULL, *past = NULL;
    struct error err = {0};

    says(c, "a b", "2 words in 1 turns");
    says(c, "c", "3 words in 2 turns");
    ck_assert_int_eq(clone_fork(&fork, c, 1, &err), STATUS_OK);
    ck_assert_int_eq(clone_fork(&first, c, 0, &err), STATUS_OK);
    ck_assert_int_eq(clone_fork(&past, c, 3, &err), STATUS_RANGE);
    says(c, "d e f", "6 words in 3 turns");
    says(fork, "x", "3 words in 2 turns");
    says(first, "y", "1 words in 1 turns");
    ck_assert_int_eq(a->type->rewind(c, 4, &err), STATUS_RANGE);
    ck_assert_int_eq(a->type->rewind(c, 1, &err), STATUS_OK);
    says(c, "z z z z", "6 words in 2 turns");
    ck_assert_int_eq(a->type->rewind(c, 0, &err), STATUS_OK);
    says(c, "z", "1 words in 1 turns");
    a->type->reset(c);
    says(c, "z z", "2 words in 1 turns");
    says(fork, "x", "4 words in 3 turns");
    clone_close(c);
    clone_close(fork);
    clone_close(first);
    agent_unref(a);
}
END_TEST

/* The last 32 turns can be taken back, and all of them at once. */
START_TEST(test_kept_states)
{
    struct agent *a = open_plugin(PLUGIN_WORD_COUNT);
    struct clone *c = open_clone(a), *fork = NULL;
    struct error err = {0};
    char reply[40];

    for (int i = 1; i <= 40; i++) {
        (void)snprintf(reply, sizeof(reply), "%d words in %d turns", i, i);
        says(c, "w", reply);
    }
    ck_assert_int_eq(a->type->rewind(c, 7, &err), STATUS_RANGE);
    ck_assert_str_eq(err.text,
                     "the state after turn 7 is not kept, only the states from turn 8 on");
    ck_assert_int_eq(clone_fork(&fork, c, 8, &err), STATUS_OK);
    says(fork, "w", "9 words in 9 turns");
    clone_close(fork);
    ck_assert_int_eq(a->type->rewind(c, 8, &err), STATUS_OK);
    says(c, "w w", "10 words in 9 turns");
    ck_assert_int_eq(a->type->rewind(c, 0, &err), STATUS_OK);
    says(c, "w", "1 words in 1 turns");
    clone_close(c);
    agent_unref(a);
}
END_TEST

static enum status open_environment(struct plugin_environment **out, const char *path,
                                    struct error *err)
{
    bool has_agent;

    return plugin_environment_open(out, &has_agent, path, err);
}

/* An object may have an environment, an agent, or both; one whose environment is not whole is
 * refused with one line. */
START_TEST(test_environments)
{
    static const struct {
        const char *path, *why;
    } faults[] = {
        {ENVIRONMENT_ABI, "its environment has ABI 7, but this parleyd needs 1"},
        {ENVIRONMENT_SIZE, "its parley_environment has 8 bytes"},
        {ENVIRONMENT_NO_STEP, "its parley_environment has no step"},
        {ENVIRONMENT_NAME, "the name in its parley_environment is not valid"},
        {ENVIRONMENT_BOTH,
         "has 2 actions and actions of 2 numbers, exactly one of the two must be 0"},
        {ENVIRONMENT_NEITHER,
         "has 0 actions and actions of 0 numbers, exactly one of the two must be 0"},
        {ENVIRONMENT_ONE_ACTION,
         "has 1 actions, it must have 2 to 65536 choices or 1 to 65536 numbers"},
        {ENVIRONMENT_WIDE, "has observations of 70000 numbers, they must have 1 to 65536"},
        {PLUGIN_NO_SYMBOL, "it defines no parley_agent, parley_environment or parley_teacher"},
        {"/nowhere/x.so", "No such file or directory"},
    };
    struct plugin_environment *e = NULL;
    struct agent *a = NULL;
    struct error err = {0};
    bool has_agent;

    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        ck_assert_int_ne(open_environment(&e, faults[i].path, &err), STATUS_OK);
        ck_assert_msg(strstr(err.text, faults[i].why) != NULL, "'%s' has no '%s'", err.text,
                      faults[i].why);
    }
    ck_assert_int_eq(plugin_environment_open(&e, &has_agent, ENVIRONMENT_WHOLE, &err), STATUS_OK);
    ck_assert(!has_agent);
    ck_assert_str_eq(e->type->name, "faulty-v0");
    plugin_environment_close(e);
    ck_assert_int_eq(open_path(&a, ENVIRONMENT_WHOLE, &err), STATUS_PRECONDITION);
    ck_assert_ptr_nonnull(strstr(err.text, "it defines no parley_agent"));
    ck_assert_int_eq(plugin_environment_open(&e, &has_agent, PLUGIN_ECHO, &err), STATUS_OK);
    ck_assert(has_agent);
    ck_assert_ptr_null(e);
    plugin_environment_close(e);
}
END_TEST

/* A turn that is dropped, and one that the object refuses, leave the state as it was. */
START_TEST(test_dropped)
{
    struct agent *a = open_plugin(PLUGIN_WORD_COUNT);
    struct clone *c = open_clone(a);
    struct error err = {0};
    struct one_turn t;

    says(c, "a b", "2 words in 1 turns");
    ck_assert_int_eq(observe(&t, c, "lost words", &err), STATUS_OK);
    ck_assert_uint_eq(t.turn.reply.n_prompt, 2);
    step(a, &t, 1);
    a->type->drop(c, &t.turn);
    agent_turn_deinit(&t.turn);
    ck_assert_int_eq(observe(&t, c, " ", &err), STATUS_INVALID);
    ck_assert_str_eq(err.text, "p: there are no words to count");
    agent_turn_deinit(&t.turn);
    says(c, "c", "3 words in 2 turns");
    clone_close(c);
    agent_unref(a);
}
END_TEST

/* A saved state goes on where it was; bytes of something else are refused. */
START_TEST(test_saved)
{
    struct agent *a = open_plugin(PLUGIN_WORD_COUNT), *other = open_plugin(PLUGIN_ECHO);
    struct clone *c = open_clone(a), *again = open_clone(a), *none = open_clone(other);
    struct error err = {0};
    struct buf state;

    says(c, "a b", "2 words in 1 turns");
    buf_init(&state, 100);
    ck_assert_int_eq(a->type->save(c, &state, &err), STATUS_OK);
    ck_assert_int_eq(a->type->restore(again, state.data, state.len, &err), STATUS_OK);
    says(again, "c", "3 words in 2 turns");
    ck_assert_int_eq(a->type->rewind(again, 1, &err), STATUS_OK);
    says(again, "c c", "4 words in 2 turns");
    for (size_t len = 0; len < state.len; len++)
        ck_assert_int_ne(a->type->restore(again, state.data, len, &err), STATUS_OK);
    state.data[9] = 'W'; /* another name */
    ck_assert_int_eq(a->type->restore(again, state.data, state.len, &err), STATUS_DATA_LOSS);
    ck_assert_str_eq(err.text, "the saved state is not one of word_count, version 1");
    says(again, "d", "5 words in 3 turns");
    ck_assert_int_eq(other->type->save(none, &state, &err), STATUS_UNIMPLEMENTED);
    ck_assert_int_eq(other->type->restore(none, "", 0, &err), STATUS_UNIMPLEMENTED);
    buf_deinit(&state);
    clone_close(c);
    clone_close(again);
    clone_close(none);
    agent_unref(a);
    agent_unref(other);
}
END_TEST

/* A turn of an earlier process leaves the state that it had after batch_act, which is not called.
 */
START_TEST(test_recalled)
{
    struct agent *a = open_plugin(PLUGIN_ROWS), *other = open_plugin(PLUGIN_ECHO);
    struct clone *c = open_clone(a), *again = open_clone(a), *none = open_clone(other);
    struct error err = {0};
    struct buf trace;
    struct one_turn t;

    buf_init(&trace, 100);
    ck_assert_int_eq(observe(&t, c, "fine", &err), STATUS_OK);
    step(a, &t, 1);
    ck_assert_int_eq(a->type->trace(c, &t.turn, &trace, &err), STATUS_OK);
    a->type->self_observe(c, &t.turn);
    agent_turn_deinit(&t.turn);
    ck_assert_int_eq(observe(&t, again, "fine", &err), STATUS_OK);
    ck_assert_int_eq(a->type->recall(again, &t.turn, trace.data, trace.len - 1, &err),
                     STATUS_DATA_LOSS);
    ck_assert_int_eq(a->type->recall(again, &t.turn, trace.data, trace.len, &err), STATUS_OK);
    a->type->self_observe(again, &t.turn);
    agent_turn_deinit(&t.turn);
    says(again, "fine", "two ");
    says(c, "fine", "two ");
    trace.len = 0;
    ck_assert_int_eq(observe(&t, none, "fine", &err), STATUS_OK);
    ck_assert_int_eq(other->type->trace(none, &t.turn, &trace, &err), STATUS_OK);
    ck_assert_uint_eq(trace.len, 0);
    ck_assert_int_eq(other->type->recall(none, &t.turn, "x", 1, &err), STATUS_DATA_LOSS);
    other->type->drop(none, &t.turn);
    agent_turn_deinit(&t.turn);
    buf_deinit(&trace);
    clone_close(c);
    clone_close(again);
    clone_close(none);
    agent_unref(a);
    agent_unref(other);
}
END_TEST

/* Rows that the object fails, skips, answers twice or with what is no text fail, and no other. */
START_TEST(test_rows_fail_alone)
{
    static const struct {
        const char *told;
        enum status status;
        const char *text;
    } cases[] = {
        {"skip", STATUS_INTERNAL,
         "p answered a row 0 times in one step, it must answer each row once"},
        {"twice", STATUS_INTERNAL,
         "p answered a row 2 times in one step, it must answer each row once"},
        {"fail", STATUS_PRECONDITION, "p: told to"},
        {"odd", STATUS_INTERNAL, "p: it failed without a reason"},
        {"bytes", STATUS_INTERNAL, "p replied with a text that is not UTF-8"},
        {"nul", STATUS_INTERNAL, "p replied with a text that is not UTF-8"},
        {"flood", STATUS_RANGE, "the reply would be longer than 1000 bytes"},
        {"fine", STATUS_OK, "one "},
    };
    enum { N = sizeof(cases) / sizeof(cases[0]) };
    struct agent *a = open_plugin(PLUGIN_ROWS);
    struct clone *clones[N], *refused = NULL;
    struct one_turn turns[N], t;
    struct error err = {0};

    for (size_t i = 0; i < N; i++) {
        clones[i] = open_clone(a);
        ck_assert_int_eq(observe(&turns[i], clones[i], cases[i].told, &err), STATUS_OK);
    }
    step(a, turns, N);
    for (size_t i = 0; i < N; i++) {
        const struct row *row = &turns[i].turn.row;

        if (cases[i].status == STATUS_OK) {
            ck_assert_int_eq(row->outcome, ROW_DONE);
            ck_assert_str_eq(turns[i].turn.reply.text.data, cases[i].text);
            a->type->self_observe(clones[i], &turns[i].turn);
        } else {
            ck_assert_int_eq(row->outcome, ROW_FAILED);
            ck_assert_int_eq(row->err.status, cases[i].status);
            ck_assert_str_eq(row->err.text, cases[i].text);
            ck_assert_uint_eq(turns[i].turn.reply.text.len, 0);
            a->type->drop(clones[i], &turns[i].turn);
        }
        agent_turn_deinit(&turns[i].turn);
    }
    ck_assert_int_eq(observe(&t, clones[0], "refuse", &err), STATUS_INVALID);
    ck_assert_str_eq(err.text, "p: it failed without a reason");
    agent_turn_deinit(&t.turn);
    for (size_t i = 0; i < N; i++)
        clone_close(clones[i]);
    ck_assert_int_eq(
        clone_open(&refused, a, &(struct clone_config){.system = "refuse", .system_len = 6}, &err),
        STATUS_EXHAUSTED);
    ck_assert_str_eq(err.text, "p: no more");
    agent_unref(a);
}
END_TEST

/* A row that answers more comes again, and its text grows by each step. */
START_TEST(test_more)
{
    static const char *const texts[] = {"one ", "one two ", "one two three"};
    struct agent *a = open_plugin(PLUGIN_ROWS);
    struct clone *c = open_clone(a);
    struct error err = {0};
    struct one_turn t;

    ck_assert_int_eq(observe(&t, c, "more", &err), STATUS_OK);
    for (size_t i = 0; i < 3; i++) {
        step(a, &t, 1);
        ck_assert_int_eq(t.turn.row.outcome, i < 2 ? ROW_MORE : ROW_DONE);
        ck_assert_str_eq(t.turn.reply.text.data, texts[i]);
    }
    ck_assert_int_eq(t.turn.reply.finish, FINISH_STOP);
    a->type->self_observe(c, &t.turn);
    agent_turn_deinit(&t.turn);
    ck_assert_int_eq(observe(&t, c, "cut", &err), STATUS_OK);
    step(a, &t, 1);
    ck_assert_int_eq(t.turn.reply.finish, FINISH_LENGTH);
    a->type->drop(c, &t.turn);
    agent_turn_deinit(&t.turn);
    clone_close(c);
    agent_unref(a);
}
END_TEST

/* All that a conversation does, up to the first failure. */
static enum status converse(const char *text, struct error *err)
{
    struct agent *a = NULL;
    struct clone *c = NULL, *fork = NULL;
    enum status rc = open_path(&a, PLUGIN_ROWS, err);
    struct one_turn t;

    if (rc == STATUS_OK)
        rc = clone_open(&c, a, &(struct clone_config){0}, err);
    if (rc == STATUS_OK) {
        rc = observe(&t, c, text, err);
        if (rc == STATUS_OK) {
            step(a, &t, 1);
            if (t.turn.row.outcome == ROW_FAILED) {
                *err = t.turn.row.err;
                rc = err->status;
                a->type->drop(c, &t.turn);
            } else {
                a->type->self_observe(c, &t.turn);
            }
        }
        agent_turn_deinit(&t.turn);
    }
    if (rc == STATUS_OK)
        rc = clone_fork(&fork, c, 1, err);
    clone_close(fork);
    clone_close(c);
    agent_unref(a);
    return rc;
}

/* Memory that is not there at any point is an error, and nothing leaks. */
START_TEST(test_faults)
{
    enum status rc = STATUS_EXHAUSTED;
    long n;

    for (n = 0; rc != STATUS_OK; n++) {
        struct error err = {0};

        fault_after = n;
        rc = converse("fine", &err);
        fault_after = -1;
        ck_assert(rc == STATUS_OK || rc == STATUS_EXHAUSTED);
    }
    ck_assert_int_gt(n, 6);
}
END_TEST

SUITE_MAIN("agents/plugin", test_incomplete, test_environments, test_owner, test_states,
           test_kept_states, test_dropped, test_saved, test_recalled, test_rows_fail_alone,
           test_more, test_faults)
