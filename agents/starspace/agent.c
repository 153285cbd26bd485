/* The agent `starspace` replies with the candidate of its file that is nearest to the conversation
 * so far. A clone's state is the words of its conversation, of both sides, and where each turn
 * ends. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "agents/agent.h"
#include "agents/starspace/starspace.h"
#include "agents/turn.h"
#include "agents/words/word_clone.h"
#include "agents/words/word_history.h"
#include "agents/words/word_table.h"
#include "base/alloc.h"
#include "base/list.h"

extern const struct agent_type starspace_agent;

enum {
    STARSPACE_MAX_ROWS = 256,
    STARSPACE_MAX_WAITING = 16384,
    /* The newest words, from which the reply is chosen; as in ParlAI. */
    STARSPACE_HISTORY_WORDS = 10000,
};

struct starspace_original {
    struct agent base;
    struct starspace *space;
    struct starspace_index *index; /* made at open and never changed: this agent does not learn */
    size_t max_rows;
    float *query;         /* [n_dims] scratch; owned by the compute thread */
    size_t longest_words; /* no candidate has more words */
};

/* A turn's private state, in the turn's arena. */
struct starspace_turn {
    const int32_t *query;  /* [n_query] the conversation's newest words, the messages' last */
    size_t n_query, n_own; /* n_own: how many of them are the messages' */
    uint32_t chosen;       /* the candidate that is the reply, if has_chosen */
    bool has_chosen;
};

static struct starspace_original *starspace_original_of(struct agent *a)
{
    return container_of(a, struct starspace_original, base);
}

static size_t n_words_of(const struct buf *b)
{
    return b->len / sizeof(int32_t);
}

/* --- the original ---------------------------------------------------------------------------- */

static void starspace_agent_close(struct agent *a)
{
    struct starspace_original *s = starspace_original_of(a);

    starspace_index_close(s->index);
    starspace_close(s->space);
    free(s->query);
}

static enum status starspace_agent_open(struct agent *a, const struct agent_config *config,
                                        struct error *err)
{
    struct starspace_original *s = starspace_original_of(a);

    if (config->path == NULL)
        return error_set(err, STATUS_INVALID,
                         "a starspace agent needs a file: use --model NAME=FILE");
    if (starspace_read(&s->space, config->path, err) != STATUS_OK)
        return err->status;
    if (starspace_n_candidates(s->space) == 0)
        return error_set(err, STATUS_INVALID, "%s: has no candidates to reply with", config->path);
    s->max_rows = config->max_step_rows != 0 ? config->max_step_rows : STARSPACE_MAX_ROWS;
    for (size_t i = 0; i < starspace_n_candidates(s->space); i++) {
        const size_t len = starspace_candidate(s->space, i).len; /* a word has at least a byte */

        s->longest_words = len > s->longest_words ? len : s->longest_words;
    }
    s->query = try_alloc(starspace_spec(s->space)->n_dims, sizeof(float));
    if (s->query == NULL)
        return error_no_memory(err, STARSPACE_MAX_DIMS, "a starspace");
    if (starspace_index_open(&s->index, s->space, err) != STATUS_OK)
        return err->status;
    return starspace_index_ready(s->index, err);
}

static void starspace_info(const struct agent *a, struct agent_info *out)
{
    const struct starspace_original *s = container_of(a, const struct starspace_original, base);
    const size_t n_words = word_table_n(starspace_words(s->space));

    out->architecture = "starspace";
    out->weight_bytes = n_words * starspace_spec(s->space)->n_dims * sizeof(float);
    out->text = (struct text_info){.n_vocab = n_words, .bos = -1, .eos = -1};
    memcpy(out->version, starspace_version(s->space), sizeof(out->version));
}

static void starspace_batching(const struct agent *a, struct batcher_config *out)
{
    *out = (struct batcher_config){
        .policy = BATCH_CONTINUOUS,
        .max_rows = container_of(a, const struct starspace_original, base)->max_rows,
        .max_waiting = STARSPACE_MAX_WAITING,
    };
}

/* --- the clone -------------------------------------------------------------------------------- */

static const char starspace_magic[8] = {'s', 't', 'a', 'r', 's', 'p', 'c', 1};

static enum status starspace_save_clone(const struct clone *base, struct buf *out,
                                        struct error *err)
{
    const struct starspace_original *s =
        container_of(base->agent, const struct starspace_original, base);

    return word_history_save(&const_word_clone_of(base)->past, starspace_magic,
                             starspace_version(s->space), out, err);
}

static enum status starspace_restore(struct clone *base, const void *data, size_t size_bytes,
                                     struct error *err)
{
    const struct starspace *space = starspace_original_of(base->agent)->space;

    return word_history_restore(&word_clone_of(base)->past, starspace_magic,
                                starspace_version(space), word_table_n(starspace_words(space)),
                                data, size_bytes, err);
}

/* --- a turn ----------------------------------------------------------------------------------- */

/* The newest words of the conversation, up to STARSPACE_HISTORY_WORDS, with the messages' last. */
static enum status starspace_turn_read(struct starspace_turn *t, const struct starspace_original *s,
                                       const struct word_clone *c, const struct agent_turn *turn,
                                       struct error *err)
{
    enum status rc = STATUS_OK;
    const char *newest;
    struct buf words;
    int32_t *query;

    buf_init(&words, WORD_HISTORY_MAX * sizeof(int32_t));
    if (c->past.words.len > 0 &&
        buf_append(&words, c->past.words.data, c->past.words.len) != STATUS_OK)
        rc = error_no_memory(err, c->past.words.len, "a turn");
    for (size_t i = 0; rc == STATUS_OK && i < turn->seen.n_messages; i++)
        rc = word_table_encode(starspace_words(s->space), turn->seen.messages[i].text,
                               turn->seen.messages[i].len, &words, err);
    if (rc == STATUS_OK) {
        t->n_own = n_words_of(&words) - word_history_n_words(&c->past);
        t->n_query = n_words_of(&words);
        if (t->n_query > STARSPACE_HISTORY_WORDS && t->n_own < STARSPACE_HISTORY_WORDS)
            t->n_query = STARSPACE_HISTORY_WORDS;
        else if (t->n_query > STARSPACE_HISTORY_WORDS)
            t->n_query = t->n_own;
        query = arena_alloc(turn->arena, t->n_query + 1, sizeof(query[0]));
        if (query == NULL) {
            rc = error_no_memory(err, t->n_query * sizeof(query[0]), "a turn");
        } else if (t->n_query > 0) {
            newest = words.data + words.len - t->n_query * sizeof(query[0]);
            memcpy(query, newest, t->n_query * sizeof(query[0]));
        }
        t->query = query;
    }
    buf_deinit(&words);
    return rc;
}

static enum status starspace_observe(struct clone *base, struct agent_turn *turn, struct error *err)
{
    struct starspace_original *s = starspace_original_of(base->agent);
    struct word_clone *c = word_clone_of(base);
    struct starspace_turn *t;

    if (turn->seen.n_messages == 0)
        return error_field(err, "messages", "are empty, so there is nothing to reply to");
    if (sampling_check(&turn->seen.sampling, 0, err) != STATUS_OK)
        return err->status;
    t = arena_alloc(turn->arena, 1, sizeof(*t));
    if (t == NULL)
        return error_no_memory(err, sizeof(*t), "a turn");
    if (starspace_turn_read(t, s, c, turn, err) != STATUS_OK ||
        word_history_reserve(&c->past, t->n_own + s->longest_words, err) != STATUS_OK)
        return err->status;
    turn->reply.n_prompt = (uint32_t)t->n_query;
    turn->row.turn = t;
    turn->row.clone = base;
    return STATUS_OK;
}

/* observe made room, so nothing here can fail. */
static void starspace_self_observe(struct clone *base, struct agent_turn *turn)
{
    struct starspace_original *s = starspace_original_of(base->agent);
    struct word_clone *c = word_clone_of(base);
    const struct starspace_turn *t = turn->row.turn;
    enum status rc = STATUS_OK;
    struct error never;

    word_history_add(&c->past, t->query + t->n_query - t->n_own, t->n_own);
    if (t->has_chosen) {
        const struct text said = starspace_candidate(s->space, t->chosen);

        rc = word_table_encode(starspace_words(s->space), said.text, said.len, &c->past.words,
                               &never);
    }
    assert(rc == STATUS_OK);
    word_history_end_turn(&c->past);
}

static enum status starspace_trace(const struct clone *base, const struct agent_turn *turn,
                                   struct buf *out, struct error *err)
{
    const struct starspace_turn *t = turn->row.turn;

    if (t->has_chosen && buf_append(out, &t->chosen, sizeof(t->chosen)) != STATUS_OK)
        return error_no_memory(err, sizeof(t->chosen), "a turn's trace");
    return STATUS_OK;
}

static enum status starspace_recall(struct clone *base, struct agent_turn *turn, const void *trace,
                                    size_t size_bytes, struct error *err)
{
    struct starspace_turn *t = turn->row.turn;
    uint32_t chosen = 0;

    if (size_bytes == sizeof(chosen))
        memcpy(&chosen, trace, sizeof(chosen));
    if (size_bytes != sizeof(chosen) ||
        chosen >= starspace_n_candidates(starspace_original_of(base->agent)->space))
        return error_set(err, STATUS_DATA_LOSS, "the trace is not one of a starspace's turn");
    t->chosen = chosen;
    t->has_chosen = true;
    return STATUS_OK;
}

static void starspace_act(struct agent *a, struct row *row)
{
    struct starspace_original *s = starspace_original_of(a);
    struct agent_turn *turn = agent_turn_of(row);
    struct starspace_turn *t = row->turn;
    struct text said;

    starspace_embed(s->space, t->query, t->n_query, s->query);
    t->chosen = (uint32_t)starspace_index_nearest(s->index, s->query);
    t->has_chosen = true;
    said = starspace_candidate(s->space, t->chosen);
    if (buf_append(&turn->reply.text, said.text, said.len) != STATUS_OK) {
        if (turn->reply.text.is_full)
            (void)error_because(&row->err, STATUS_RANGE, REASON_REPLY_TOO_LONG, NULL,
                                "the reply would be longer than %zu bytes",
                                turn->reply.text.limit_bytes);
        else
            (void)error_no_memory(&row->err, said.len, "a reply");
        row->outcome = ROW_FAILED;
        return;
    }
    turn->reply.finish = FINISH_STOP;
    turn->reply.n_prefilled = turn->reply.n_prompt;
    row->outcome = ROW_DONE;
}

const struct agent_type starspace_agent = {
    .name = "starspace",
    .has_own_files = true,
    .agent_size = sizeof(struct starspace_original),
    .clone_size = sizeof(struct word_clone),
    .open = starspace_agent_open,
    .close = starspace_agent_close,
    .info = starspace_info,
    .batching = starspace_batching,
    .clone_open = word_clone_open,
    .clone_close = word_clone_close,
    .clone_info = word_clone_info,
    .fork = word_clone_fork,
    .rewind = word_clone_rewind,
    .reset = word_clone_reset,
    .save = starspace_save_clone,
    .restore = starspace_restore,
    .observe = starspace_observe,
    .self_observe = starspace_self_observe,
    .trace = starspace_trace,
    .recall = starspace_recall,
    .act = starspace_act,
};
