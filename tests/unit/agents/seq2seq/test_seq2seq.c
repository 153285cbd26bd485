/* The LSTM pair: its gradient beside finite differences, the same bits in every batch and on both
 * backends, what it learns, its file, its conversations, and what happens without memory. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agents/agent.h"
#include "agents/seq2seq/seq2seq.h"
#include "agents/turn.h"
#include "agents/words/word_table.h"
#include "base/alloc.h"
#include "tests/fault/sweep.h"
#include "tests/unit/base/suite.h"

enum { N_ROWS = 5, N_WORDS = 9 };

static struct error err;
static char path[] = "/tmp/seq2seq-XXXXXX.gguf";

/* Texts and labels of all lengths, an empty text among them; lengths fall in different orders. */
static const int32_t texts[N_ROWS][6] = {{4, 5, 6, 7, 8, 4}, {5}, {0}, {6, 6, 5}, {8, 7, 3}};
static const size_t text_lengths[N_ROWS] = {6, 1, 0, 3, 3};
static const int32_t labels[N_ROWS][5] = {{4, 2}, {5, 6, 7, 8, 2}, {2}, {8, 8, 2}, {7, 4, 4}};
static const size_t label_lengths[N_ROWS] = {2, 5, 1, 3, 3};

static void rows_init(struct seq2seq_row rows[N_ROWS])
{
    memset(rows, 0, N_ROWS * sizeof(rows[0]));
    for (size_t i = 0; i < N_ROWS; i++) {
        rows[i] = (struct seq2seq_row){.text = texts[i],
                                       .n_text = text_lengths[i],
                                       .label = labels[i],
                                       .n_label = label_lengths[i]};
        buf_init(&rows[i].reply, SIZE_MAX);
    }
}

static void rows_deinit(struct seq2seq_row rows[N_ROWS])
{
    for (size_t i = 0; i < N_ROWS; i++)
        buf_deinit(&rows[i].reply);
}

static enum status make_one(struct seq2seq **out, const char *backend, size_t n_hidden)
{
    const struct seq2seq_spec spec = {.n_dims = 3, .n_hidden = n_hidden, .seed = 11};
    const struct seq2seq_config config = {.backend = backend, .n_threads = 1};
    struct word_table *words = NULL;
    enum status rc = word_table_open(&words, &err);

    if (rc == STATUS_OK)
        rc = word_table_add(words, (struct text){"e d c b a", 9}, &err);
    if (rc == STATUS_OK)
        rc = word_table_settle(words, 0, &err);
    if (rc != STATUS_OK) {
        word_table_close(words);
        return rc;
    }
    ck_assert_uint_eq(word_table_n(words), N_WORDS);
    return seq2seq_create(out, &spec, words, &config, &err);
}

static double mean_loss(struct seq2seq *s, struct seq2seq_row *rows)
{
    double loss = 0, n = 0;

    ck_assert_int_eq(seq2seq_score(s, rows, N_ROWS, &err), STATUS_OK);
    for (size_t i = 0; i < N_ROWS; i++) {
        loss += rows[i].loss;
        n += (double)rows[i].n_label;
    }
    return loss / n;
}

/* Each number of the gradient is what the loss changes by when its parameter does. */
START_TEST(gradient_is_the_differences)
{
    const float step = 0.01F;
    struct seq2seq_row rows[N_ROWS];
    struct seq2seq *s;
    float *numbers, *gradient;
    double greatest = 0;
    size_t n;

    rows_init(rows);
    ck_assert_int_eq(make_one(&s, "ref", 4), STATUS_OK);
    n = seq2seq_n_numbers(s);
    numbers = xalloc(n * sizeof(float));
    gradient = xalloc(n * sizeof(float));
    ck_assert_int_eq(seq2seq_numbers(s, numbers, &err), STATUS_OK);
    ck_assert_int_eq(seq2seq_gradient(s, rows, N_ROWS, gradient, &err), STATUS_OK);
    for (size_t i = 0; i < n; i++) {
        const float own = numbers[i];
        double above, below;

        numbers[i] = own + step;
        ck_assert_int_eq(seq2seq_set_numbers(s, numbers, &err), STATUS_OK);
        above = mean_loss(s, rows);
        numbers[i] = own - step;
        ck_assert_int_eq(seq2seq_set_numbers(s, numbers, &err), STATUS_OK);
        below = mean_loss(s, rows);
        numbers[i] = own;
        ck_assert_double_eq_tol((double)gradient[i], (above - below) / (2 * (double)step), 1e-4);
        greatest = fmax(greatest, fabs((double)gradient[i]));
    }
    ck_assert_double_gt(greatest, 0.05);
    free(numbers);
    free(gradient);
    rows_deinit(rows);
    seq2seq_close(s);
}
END_TEST

/* A row's loss and reply have the same bits alone and in a batch, and on both backends. */
START_TEST(same_bits_in_every_batch)
{
    static const char *const backends[] = {"ref", "cpu"};
    double losses[N_ROWS] = {0};

    for (size_t k = 0; k < 2; k++) {
        struct seq2seq_row rows[N_ROWS], alone[N_ROWS];
        struct seq2seq *s;
        size_t n_said = 0;

        rows_init(rows);
        rows_init(alone);
        ck_assert_int_eq(make_one(&s, backends[k], 20), STATUS_OK);
        ck_assert_int_eq(seq2seq_score(s, rows, N_ROWS, &err), STATUS_OK);
        ck_assert_int_eq(seq2seq_generate(s, rows, N_ROWS, 7, &err), STATUS_OK);
        for (size_t i = N_ROWS; i-- > 0;) {
            ck_assert_int_eq(seq2seq_score(s, &alone[i], 1, &err), STATUS_OK);
            ck_assert_int_eq(seq2seq_generate(s, &alone[i], 1, 7, &err), STATUS_OK);
            ck_assert_mem_eq(&alone[i].loss, &rows[i].loss, sizeof(double));
            ck_assert_uint_eq(alone[i].n_right, rows[i].n_right);
            ck_assert_uint_eq(alone[i].reply.len, rows[i].reply.len);
            ck_assert_uint_le(rows[i].reply.len, 7 * sizeof(int32_t));
            if (rows[i].reply.len > 0)
                ck_assert_mem_eq(alone[i].reply.data, rows[i].reply.data, rows[i].reply.len);
            n_said += rows[i].reply.len;
            if (k == 1)
                ck_assert_mem_eq(&losses[i], &rows[i].loss, sizeof(double));
            losses[i] = rows[i].loss;
        }
        ck_assert_uint_gt(n_said, 0);
        rows_deinit(rows);
        rows_deinit(alone);
        seq2seq_close(s);
    }
}
END_TEST

static void take_path(void)
{
    int fd;

    memcpy(path + strlen(path) - 11, "XXXXXX", 6);
    fd = mkstemps(path, 5);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(close(fd), 0);
}

/* It learns its few texts by heart, the same each time, and its file says the same. */
START_TEST(learns_by_heart)
{
    const struct seq2seq_config config = {.backend = "cpu", .n_threads = 1};
    double last[2];

    take_path();
    for (size_t k = 0; k < 2; k++) {
        struct seq2seq_row rows[N_ROWS];
        struct seq2seq *s, *again;
        double loss = 0;

        rows_init(rows);
        ck_assert_int_eq(make_one(&s, "cpu", 24), STATUS_OK);
        ck_assert_double_gt(mean_loss(s, rows), 1.5);
        for (size_t i = 0; i < 300; i++)
            ck_assert_int_eq(seq2seq_learn(s, rows, N_ROWS, 0.02F, &err), STATUS_OK);
        last[k] = mean_loss(s, rows);
        ck_assert_double_lt(last[k], 0.05);
        ck_assert_int_eq(seq2seq_generate(s, rows, N_ROWS, 9, &err), STATUS_OK);
        for (size_t i = 0; i < 4; i++) { /* the fifth label has no end */
            ck_assert_uint_eq(rows[i].reply.len, (label_lengths[i] - 1) * sizeof(int32_t));
            if (rows[i].reply.len > 0)
                ck_assert_mem_eq(rows[i].reply.data, labels[i], rows[i].reply.len);
            buf_clear(&rows[i].reply);
        }
        ck_assert_int_eq(seq2seq_save(s, path, &err), STATUS_OK);
        seq2seq_close(s);
        ck_assert_int_eq(seq2seq_read(&again, path, &config, &err), STATUS_OK);
        loss = mean_loss(again, rows);
        ck_assert_mem_eq(&loss, &last[k], sizeof(loss));
        seq2seq_close(again);
        rows_deinit(rows);
    }
    ck_assert_mem_eq(&last[0], &last[1], sizeof(last[0]));
    ck_assert_int_eq(truncate(path, 1000), 0);
    ck_assert_int_eq(seq2seq_read(&(struct seq2seq *){NULL}, path, &config, &err),
                     STATUS_DATA_LOSS);
    ck_assert_int_eq(unlink(path), 0);
}
END_TEST

/* Tokens that there are not, labels of no token, and sizes without sense are refused. */
START_TEST(misuse)
{
    const int32_t wrong[] = {N_WORDS}, negative[] = {-1}, right[] = {4};
    struct seq2seq_row rows[] = {
        {.text = wrong, .n_text = 1, .label = right, .n_label = 1},
        {.text = negative, .n_text = 1, .label = right, .n_label = 1},
        {.text = right, .n_text = 1, .label = wrong, .n_label = 1},
        {.text = right, .n_text = 1, .label = right, .n_label = 0},
        {.text = right, .n_text = SEQ2SEQ_MAX_WORDS + 1, .label = right, .n_label = 1},
    };
    struct seq2seq *s;

    ck_assert_int_eq(make_one(&s, "ref", 0), STATUS_INVALID);
    ck_assert_int_eq(make_one(&s, "ref", SEQ2SEQ_MAX_WIDTH + 1), STATUS_INVALID);
    ck_assert_int_eq(make_one(&s, "ref", 2), STATUS_OK);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        ck_assert_int_eq(seq2seq_score(s, &rows[i], 1, &err), STATUS_INVALID);
    ck_assert_int_eq(seq2seq_score(s, rows, 0, &err), STATUS_INVALID);
    seq2seq_close(s);
}
END_TEST

static enum status live(void *arg)
{
    const struct seq2seq_config config = {.backend = "cpu", .n_threads = 1};
    struct seq2seq *s = NULL, *again = NULL;
    struct seq2seq_row rows[N_ROWS];
    enum status rc;

    rows_init(rows);
    rc = make_one(&s, "cpu", 4);
    if (rc == STATUS_OK)
        rc = seq2seq_learn(s, rows, 2, 0.1F, &err);
    if (rc == STATUS_OK)
        rc = seq2seq_learn(s, rows, N_ROWS, 0.1F, &err); /* more rows: buffers grow */
    if (rc == STATUS_OK)
        rc = seq2seq_generate(s, rows, N_ROWS, 3, &err);
    if (rc == STATUS_OK)
        rc = seq2seq_save_training(s, "here", path, &err);
    if (rc == STATUS_OK)
        rc = seq2seq_read(&again, path, &config, &err);
    if (rc == STATUS_OK)
        rc = seq2seq_restore_training(again, path, &err);
    seq2seq_close(again);
    seq2seq_close(s);
    rows_deinit(rows);
    return rc;
}

/* Without memory, and where the disk is full, nothing leaks and nothing is half done. */
START_TEST(faults)
{
    take_path();
    ck_assert_int_gt(sweep(live, NULL), 50);
    ck_assert_int_eq(unlink(path), 0);
}
END_TEST

/* Turns that are computed in one step. */
struct talk {
    struct message message;
    struct agent_turn turn;
    struct arena arena;
};

static enum status talk_begin(struct talk *t, struct clone *c, const char *text, uint32_t most)
{
    t->message = (struct message){.role = ROLE_USER, .text = text, .len = strlen(text)};
    arena_init(&t->arena, SIZE_MAX);
    agent_turn_init(&t->turn, &t->arena, 1000);
    t->turn.seen.messages = &t->message;
    t->turn.seen.n_messages = 1;
    t->turn.seen.turn = 1;
    sampling_init(&t->turn.seen.sampling);
    t->turn.seen.sampling.max_tokens = most;
    return agent_turn_observe(&t->turn, c, &err);
}

static void talk_end(struct talk *t)
{
    agent_turn_deinit(&t->turn);
    arena_deinit(&t->arena);
}

/* One turn for each clone, all in one step; out [n][100] gets the replies, optionally. */
static enum status converse(struct clone *const *clones, size_t n, const char *const *said,
                            const uint32_t *most, char (*out)[100])
{
    struct row *rows[3];
    struct talk talks[3];
    enum status rc = STATUS_OK;
    size_t n_begun = 0;

    for (; n_begun < n && rc == STATUS_OK; n_begun++) {
        rc = talk_begin(&talks[n_begun], clones[n_begun], said[n_begun], most[n_begun]);
        rows[n_begun] = &talks[n_begun].turn.row;
    }
    if (rc == STATUS_OK)
        agent_compute(clones[0]->agent, rows, n);
    for (size_t i = 0; i < n_begun; i++) {
        struct agent_turn *t = &talks[i].turn;

        if (rc == STATUS_OK && t->row.outcome != ROW_DONE)
            rc = t->row.err.status;
        if (t->state == AGENT_TURN_OBSERVED) {
            if (t->row.outcome == ROW_DONE)
                clones[i]->agent->type->self_observe(clones[i], t);
            t->state = AGENT_TURN_OVER;
        }
        if (rc == STATUS_OK && out != NULL)
            (void)snprintf(out[i], 100, "%.*s%s", (int)t->reply.text.len,
                           t->reply.text.len > 0 ? t->reply.text.data : "",
                           t->reply.finish == FINISH_LENGTH ? "+" : "");
        talk_end(&talks[i]);
    }
    return rc;
}

static enum status open_agent(struct agent **out)
{
    const struct agent_config config = {
        .name = "s", .path = path, .env = &env_real, .options = {.backend = "cpu", .n_threads = 1}};

    return agent_open(out, NULL, &config, &err);
}

static void save_one(void)
{
    struct seq2seq *s;

    take_path();
    ck_assert_int_eq(make_one(&s, "cpu", 7), STATUS_OK);
    ck_assert_int_eq(seq2seq_save(s, path, &err), STATUS_OK);
    seq2seq_close(s);
}

static void state_of(struct clone *c, struct buf *out)
{
    buf_init(out, SIZE_MAX);
    ck_assert_int_eq(c->agent->type->save(c, out, &err), STATUS_OK);
}

static void same_state(struct clone *a, struct clone *b)
{
    struct buf x, y;

    state_of(a, &x);
    state_of(b, &y);
    ck_assert_uint_eq(x.len, y.len);
    ck_assert_mem_eq(x.data, y.data, x.len);
    buf_deinit(&x);
    buf_deinit(&y);
}

/* Replies and states are the same in a step of three, with other bounds, as each alone; a bound
 * ends a reply; forks, rewound and restored conversations go on as the first would. */
START_TEST(conversations)
{
    static const char *const said[] = {"a b c d e e d", "b", ""}, *const more[] = {"c", "c", "c"};
    static const uint32_t most[] = {3, 9, 0};
    char together[3][100], alone[3][100], forked[1][100];
    struct clone *many[3], *one[3], *fork;
    struct agent *a;
    struct buf state;

    save_one();
    ck_assert_int_eq(open_agent(&a), STATUS_OK);
    ck_assert_str_eq(a->type->name, "seq2seq");
    for (size_t i = 0; i < 3; i++) {
        ck_assert_int_eq(clone_open(&many[i], a, &(struct clone_config){0}, &err), STATUS_OK);
        ck_assert_int_eq(clone_open(&one[i], a, &(struct clone_config){0}, &err), STATUS_OK);
    }
    for (size_t round = 0; round < 2; round++) {
        const char *const *now = round == 0 ? said : more;

        ck_assert_int_eq(converse(many, 3, now, most, together), STATUS_OK);
        for (size_t i = 0; i < 3; i++) {
            ck_assert_int_eq(converse(&one[i], 1, &now[i], &most[i], &alone[i]), STATUS_OK);
            ck_assert_str_eq(together[i], alone[i]);
            same_state(many[i], one[i]);
        }
    }
    ck_assert_ptr_nonnull(strchr(together[0], '+')); /* it would go on */
    ck_assert_int_eq(clone_fork(&fork, one[1], 1, &err), STATUS_OK);
    ck_assert_int_eq(converse(&fork, 1, &more[1], &most[1], forked), STATUS_OK);
    ck_assert_str_eq(forked[0], alone[1]);
    same_state(fork, one[1]);
    ck_assert_int_eq(a->type->rewind(fork, 3, &err), STATUS_RANGE);
    ck_assert_int_eq(a->type->rewind(fork, 1, &err), STATUS_OK);
    ck_assert_int_eq(converse(&fork, 1, &more[1], &most[1], forked), STATUS_OK);
    same_state(fork, one[1]);
    state_of(one[0], &state);
    a->type->reset(fork);
    ck_assert_int_eq(a->type->restore(fork, state.data, state.len, &err), STATUS_OK);
    same_state(fork, one[0]);
    for (size_t len = 0; len < state.len; len++)
        ck_assert_int_eq(a->type->restore(fork, state.data, len, &err), STATUS_DATA_LOSS);
    state.data[12]++; /* of the version */
    ck_assert_int_eq(a->type->restore(fork, state.data, state.len, &err), STATUS_DATA_LOSS);
    same_state(fork, one[0]);
    buf_deinit(&state);
    clone_close(fork);
    for (size_t i = 0; i < 3; i++) {
        clone_close(many[i]);
        clone_close(one[i]);
    }
    agent_unref(a);
    ck_assert_int_eq(unlink(path), 0);
}
END_TEST

/* A turn that an earlier process has computed is gone through again by its trace alone. */
START_TEST(recalled)
{
    struct clone *c, *again;
    struct row *rows[1];
    struct agent *a;
    struct buf trace;
    struct talk t;

    save_one();
    buf_init(&trace, SIZE_MAX);
    ck_assert_int_eq(open_agent(&a), STATUS_OK);
    ck_assert_int_eq(clone_open(&c, a, &(struct clone_config){0}, &err), STATUS_OK);
    ck_assert_int_eq(clone_open(&again, a, &(struct clone_config){0}, &err), STATUS_OK);
    ck_assert_int_eq(talk_begin(&t, c, "a b", 4), STATUS_OK);
    rows[0] = &t.turn.row;
    agent_compute(a, rows, 1);
    ck_assert_int_eq(t.turn.row.outcome, ROW_DONE);
    ck_assert_int_eq(a->type->trace(c, &t.turn, &trace, &err), STATUS_OK);
    a->type->self_observe(c, &t.turn);
    t.turn.state = AGENT_TURN_OVER;
    talk_end(&t);
    ck_assert_int_eq(talk_begin(&t, again, "a b", 4), STATUS_OK);
    ck_assert_int_eq(agent_turn_recall(&t.turn, "r\xff\xff\xff\x7f", 5, &err), STATUS_DATA_LOSS);
    ck_assert_int_eq(agent_turn_recall(&t.turn, trace.data, trace.len + 1 - 3, &err),
                     STATUS_DATA_LOSS);
    ck_assert_int_eq(agent_turn_recall(&t.turn, trace.data, trace.len, &err), STATUS_OK);
    agent_turn_keep(&t.turn);
    talk_end(&t);
    same_state(c, again);
    buf_deinit(&trace);
    clone_close(again);
    clone_close(c);
    agent_unref(a);
    ck_assert_int_eq(unlink(path), 0);
}
END_TEST

static enum status serve(void *arg)
{
    static const char *const said[] = {"a b c", "e"};
    static const uint32_t most[] = {3, 2};
    struct clone *clones[2] = {NULL, NULL}, *fork = NULL;
    struct agent *a = NULL;
    enum status rc = open_agent(&a);

    for (size_t i = 0; i < 2 && rc == STATUS_OK; i++)
        rc = clone_open(&clones[i], a, &(struct clone_config){0}, &err);
    if (rc == STATUS_OK)
        rc = converse(clones, 2, said, most, NULL);
    if (rc == STATUS_OK)
        rc = clone_fork(&fork, clones[0], 1, &err);
    clone_close(fork);
    clone_close(clones[0]);
    clone_close(clones[1]);
    agent_unref(a);
    return rc;
}

/* The same of an agent that serves. */
START_TEST(served_faults)
{
    save_one();
    ck_assert_int_gt(sweep(serve, NULL), 20);
    ck_assert_int_eq(unlink(path), 0);
}
END_TEST

SUITE_MAIN("agents/seq2seq", gradient_is_the_differences, same_bits_in_every_batch, learns_by_heart,
           misuse, faults, conversations, recalled, served_faults)
