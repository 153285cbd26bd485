/* The agent `seq2seq` replies with the words that are likeliest after the conversation so far. A
 * clone's state is the words of its conversation, of both sides, with a newline between two
 * utterances, as a participant of worlds has them. A step computes whole replies, all its rows in
 * one pass. */
#include <stdlib.h>
#include <string.h>

#include "agents/agent.h"
#include "agents/seq2seq/parts.h"
#include "agents/turn.h"
#include "agents/words/word_clone.h"
#include "agents/words/word_history.h"
#include "agents/words/word_table.h"
#include "base/alloc.h"
#include "base/list.h"

extern const struct agent_type seq2seq_agent;

enum {
    SEQ2SEQ_MAX_STEP_ROWS = 64,
    SEQ2SEQ_MAX_WAITING = 16384,
    SEQ2SEQ_REPLY_WORDS = 128, /* used if max_tokens is 0 */
};

struct seq2seq_original {
    struct agent base;
    struct seq2seq *model;
    size_t max_rows;
    struct seq2seq_row *packed; /* [max_rows] rows of a step; owned by the compute thread */
};

/* A turn's private state, in the turn's arena. */
struct seq2seq_turn {
    const int32_t *query; /* [n_query] the conversation's newest words, the messages' last */
    size_t n_query;       /* at most SEQ2SEQ_MAX_WORDS */
    const int32_t *own;   /* [n_own] the messages' words, with a newline before each message but
                             the first of the conversation */
    size_t n_own;
    int32_t *said; /* [n_said] the reply's words; room for max_words */
    size_t n_said, max_words;
    bool has_said; /* the reply was computed, or recalled */
};

static struct seq2seq_original *seq2seq_original_of(struct agent *a)
{
    return container_of(a, struct seq2seq_original, base);
}

static const struct seq2seq_original *const_seq2seq_original_of(const struct agent *a)
{
    return container_of(a, const struct seq2seq_original, base);
}

/* --- the original ---------------------------------------------------------------------------- */

static void seq2seq_agent_close(struct agent *a)
{
    struct seq2seq_original *s = seq2seq_original_of(a);

    seq2seq_close(s->model);
    free(s->packed);
}

static enum status seq2seq_agent_open(struct agent *a, const struct agent_config *config,
                                      struct error *err)
{
    struct seq2seq_original *s = seq2seq_original_of(a);
    const struct seq2seq_config own = {.backend = config->options.backend,
                                       .n_threads = config->options.n_threads};

    if (config->path == NULL)
        return error_set(err, STATUS_INVALID,
                         "a seq2seq agent needs a file: use --model NAME=FILE");
    if (seq2seq_read(&s->model, config->path, &own, err) != STATUS_OK)
        return err->status;
    s->max_rows = config->max_step_rows != 0 ? config->max_step_rows : SEQ2SEQ_MAX_STEP_ROWS;
    s->packed = try_alloc(s->max_rows, sizeof(*s->packed));
    if (s->packed == NULL)
        return error_no_memory(err, s->max_rows * sizeof(*s->packed), "a seq2seq");
    return STATUS_OK;
}

static void seq2seq_agent_info(const struct agent *a, struct agent_info *out)
{
    const struct seq2seq_original *s = const_seq2seq_original_of(a);

    out->architecture = "seq2seq";
    out->backend = s->model->backend->type->name;
    out->weight_bytes = seq2seq_n_numbers(s->model) * sizeof(float);
    out->text = (struct text_info){.context = SEQ2SEQ_MAX_WORDS,
                                   .n_vocab = word_table_n(seq2seq_words(s->model)),
                                   .bos = -1,
                                   .eos = -1};
    memcpy(out->version, s->model->version, sizeof(out->version));
}

static void seq2seq_agent_batching(const struct agent *a, struct batcher_config *out)
{
    *out = (struct batcher_config){
        .policy = BATCH_CONTINUOUS,
        .max_rows = const_seq2seq_original_of(a)->max_rows,
        .max_waiting = SEQ2SEQ_MAX_WAITING,
    };
}

/* --- the clone -------------------------------------------------------------------------------- */

static const char seq2seq_magic[8] = {'s', 'e', 'q', '2', 's', 'e', 'q', 1};

static enum status seq2seq_save_clone(const struct clone *c, struct buf *out, struct error *err)
{
    return word_history_save(&const_word_clone_of(c)->past, seq2seq_magic,
                             const_seq2seq_original_of(c->agent)->model->version, out, err);
}

static enum status seq2seq_restore(struct clone *c, const void *data, size_t size_bytes,
                                   struct error *err)
{
    const struct seq2seq *model = seq2seq_original_of(c->agent)->model;

    return word_history_restore(&word_clone_of(c)->past, seq2seq_magic, model->version,
                                word_table_n(seq2seq_words(model)), data, size_bytes, err);
}

/* --- a turn ----------------------------------------------------------------------------------- */

/* Appends the words of the history and of the messages. */
static enum status seq2seq_turn_encode(const struct seq2seq *model, const struct word_history *past,
                                       const struct agent_turn *turn, struct buf *words,
                                       struct error *err)
{
    enum status rc = STATUS_OK;

    if (past->words.len > 0 && buf_append(words, past->words.data, past->words.len) != STATUS_OK)
        rc = error_no_memory(err, past->words.len, "a turn");
    for (size_t i = 0; rc == STATUS_OK && i < turn->seen.n_messages; i++) {
        if (i > 0 || word_history_n_turns(past) > 0)
            rc = word_table_encode(seq2seq_words(model), "\n", 1, words, err);
        if (rc == STATUS_OK)
            rc = word_table_encode(seq2seq_words(model), turn->seen.messages[i].text,
                                   turn->seen.messages[i].len, words, err);
    }
    return rc;
}

/* Into the turn's arena: of what a turn adds all words, of what the reply follows from the newest.
 */
static enum status seq2seq_turn_read(struct seq2seq_turn *t, const struct seq2seq *model,
                                     const struct word_history *past, const struct agent_turn *turn,
                                     struct error *err)
{
    enum status rc;
    size_t n, n_kept;
    struct buf words;
    int32_t *kept;

    buf_init(&words, WORD_HISTORY_MAX * sizeof(kept[0]));
    rc = seq2seq_turn_encode(model, past, turn, &words, err);
    if (rc != STATUS_OK)
        goto out;
    n = words.len / sizeof(kept[0]);
    t->n_own = n - word_history_n_words(past);
    t->n_query = n < SEQ2SEQ_MAX_WORDS ? n : SEQ2SEQ_MAX_WORDS;
    n_kept = t->n_own > t->n_query ? t->n_own : t->n_query;
    kept = arena_alloc(turn->arena, n_kept + 1, sizeof(kept[0]));
    t->said = arena_alloc(turn->arena, t->max_words, sizeof(t->said[0]));
    if (kept == NULL || t->said == NULL) {
        rc = error_no_memory(err, (n_kept + t->max_words) * sizeof(kept[0]), "a turn");
        goto out;
    }
    if (n_kept > 0)
        memcpy(kept, words.data + (n - n_kept) * sizeof(kept[0]), n_kept * sizeof(kept[0]));
    t->query = kept + n_kept - t->n_query;
    t->own = kept + n_kept - t->n_own;
out:
    buf_deinit(&words);
    return rc;
}

static enum status seq2seq_observe(struct clone *base, struct agent_turn *turn, struct error *err)
{
    const struct seq2seq *model = seq2seq_original_of(base->agent)->model;
    struct word_history *past = &word_clone_of(base)->past;
    const size_t wanted = turn->seen.sampling.max_tokens;
    struct seq2seq_turn *t;

    if (turn->seen.n_messages == 0)
        return error_field(err, "messages", "are empty, so there is nothing to reply to");
    if (sampling_check(&turn->seen.sampling, 0, err) != STATUS_OK)
        return err->status;
    t = arena_alloc(turn->arena, 1, sizeof(*t));
    if (t == NULL)
        return error_no_memory(err, sizeof(*t), "a turn");
    *t = (struct seq2seq_turn){.max_words = wanted == 0                  ? SEQ2SEQ_REPLY_WORDS
                                            : wanted < SEQ2SEQ_MAX_WORDS ? wanted
                                                                         : SEQ2SEQ_MAX_WORDS};
    if (seq2seq_turn_read(t, model, past, turn, err) != STATUS_OK ||
        word_history_reserve(past, t->n_own + 1 + t->max_words, err) != STATUS_OK)
        return err->status;
    turn->reply.n_prompt = (uint32_t)t->n_query;
    turn->row.turn = t;
    turn->row.clone = base;
    return STATUS_OK;
}

/* observe made room, so nothing here can fail: a newline is one word. */
static void seq2seq_self_observe(struct clone *base, struct agent_turn *turn)
{
    struct word_history *past = &word_clone_of(base)->past;
    const struct seq2seq_turn *t = turn->row.turn;

    word_history_add(past, t->own, t->n_own);
    if (t->has_said) {
        word_history_add(past, &seq2seq_original_of(base->agent)->model->newline, 1);
        word_history_add(past, t->said, t->n_said);
    }
    word_history_end_turn(past);
}

/* The reply's words behind a byte, which says that there is a reply. */
static enum status seq2seq_trace(const struct clone *base, const struct agent_turn *turn,
                                 struct buf *out, struct error *err)
{
    const struct seq2seq_turn *t = turn->row.turn;
    const size_t before = out->len;

    if (!t->has_said ||
        (buf_append(out, "r", 1) == STATUS_OK &&
         (t->n_said == 0 || buf_append(out, t->said, t->n_said * sizeof(t->said[0])) == STATUS_OK)))
        return STATUS_OK;
    out->len = before;
    return error_no_memory(err, t->n_said * sizeof(t->said[0]), "a turn's trace");
}

static enum status seq2seq_recall(struct clone *base, struct agent_turn *turn, const void *trace,
                                  size_t size_bytes, struct error *err)
{
    const size_t n_words = word_table_n(seq2seq_words(seq2seq_original_of(base->agent)->model));
    struct seq2seq_turn *t = turn->row.turn;
    const char *at = trace;
    size_t n = 0;
    int32_t word;
    bool is_good = size_bytes % sizeof(word) == 1 && at[0] == 'r';

    if (is_good) {
        n = size_bytes / sizeof(word);
        is_good = n <= t->max_words;
    }
    for (size_t i = 0; is_good && i < n; i++) {
        memcpy(&word, at + 1 + i * sizeof(word), sizeof(word));
        is_good = word >= 0 && (size_t)word < n_words;
    }
    if (!is_good)
        return error_set(err, STATUS_DATA_LOSS, "the trace is not one of a seq2seq's turn");
    if (n > 0)
        memcpy(t->said, at + 1, n * sizeof(word));
    t->n_said = n;
    t->has_said = true;
    return STATUS_OK;
}

/* --- a step ----------------------------------------------------------------------------------- */

/* A longer reply than the row's own bound was computed for another row. */
static enum status seq2seq_row_finish(const struct seq2seq *model, struct row *row,
                                      const struct buf *reply, struct error *err)
{
    struct agent_turn *turn = agent_turn_of(row);
    struct seq2seq_turn *t = row->turn;
    const size_t n = reply->len / sizeof(int32_t);
    enum status rc;

    t->n_said = n < t->max_words ? n : t->max_words;
    if (t->n_said > 0)
        memcpy(t->said, reply->data, t->n_said * sizeof(t->said[0]));
    rc = word_table_decode(seq2seq_words(model), t->said, t->n_said, &turn->reply.text, err);
    if (rc != STATUS_OK && turn->reply.text.is_full)
        rc =
            error_because(err, STATUS_RANGE, REASON_REPLY_TOO_LONG, NULL,
                          "the reply would be longer than %zu bytes", turn->reply.text.limit_bytes);
    if (rc != STATUS_OK)
        return rc;
    t->has_said = true;
    turn->reply.finish = n < t->max_words ? FINISH_STOP : FINISH_LENGTH;
    turn->reply.n_prefilled = turn->reply.n_prompt;
    return STATUS_OK;
}

static void seq2seq_batch_act(struct agent *a, struct row *const *rows, size_t n)
{
    struct seq2seq_original *s = seq2seq_original_of(a);
    size_t max_words = 0;
    struct error err = {0};
    enum status rc;

    for (size_t i = 0; i < n; i++) {
        const struct seq2seq_turn *t = rows[i]->turn;

        s->packed[i] = (struct seq2seq_row){.text = t->query, .n_text = t->n_query};
        buf_init(&s->packed[i].reply, SIZE_MAX);
        max_words = t->max_words > max_words ? t->max_words : max_words;
    }
    rc = seq2seq_generate(s->model, s->packed, n, max_words, &err);
    for (size_t i = 0; i < n; i++) {
        struct error own = err;

        if (rc == STATUS_OK &&
            seq2seq_row_finish(s->model, rows[i], &s->packed[i].reply, &own) == STATUS_OK) {
            rows[i]->outcome = ROW_DONE;
        } else {
            rows[i]->err = own;
            rows[i]->outcome = ROW_FAILED;
        }
        buf_deinit(&s->packed[i].reply);
    }
}

const struct agent_type seq2seq_agent = {
    .name = "seq2seq",
    .has_own_files = true,
    .agent_size = sizeof(struct seq2seq_original),
    .clone_size = sizeof(struct word_clone),
    .open = seq2seq_agent_open,
    .close = seq2seq_agent_close,
    .info = seq2seq_agent_info,
    .batching = seq2seq_agent_batching,
    .clone_open = word_clone_open,
    .clone_close = word_clone_close,
    .clone_info = word_clone_info,
    .fork = word_clone_fork,
    .rewind = word_clone_rewind,
    .reset = word_clone_reset,
    .save = seq2seq_save_clone,
    .restore = seq2seq_restore,
    .observe = seq2seq_observe,
    .self_observe = seq2seq_self_observe,
    .trace = seq2seq_trace,
    .recall = seq2seq_recall,
    .batch_act = seq2seq_batch_act,
};
