/* The agent `encoder` gives embeddings of texts, or the relevance of a document to a query, by the
 * model of a file whose tokens see the whole text. It gives no replies, and its clones have no
 * state: a text is read in one step and then forgotten. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "agents/agent.h"
#include "agents/lm/tokenizer/vocab.h"
#include "agents/turn.h"
#include "base/alloc.h"
#include "compute/backends.h"
#include "compute/encoder/encoder.h"
#include "compute/gguf/gguf.h"
#include "compute/gguf/hash.h"

extern const struct agent_type encoder_agent;

enum {
    ENCODER_MAX_ROWS = 64,
    ENCODER_MAX_TOKENS = 512, /* of a step, unless one text may be longer */
    ENCODER_MAX_WAITING = 4096,
    ENCODER_TOKEN_BYTES = 64, /* of text, at most, for each token of the context */
    ENCODER_MAX_ITL_US = 10 * 1000 * 1000,
};

struct encoder_original {
    struct agent base;
    struct gguf *gguf;
    struct backend *backend;
    struct encoder *encoder; /* the compute thread's once the first step ran */
    struct vocab *vocab;
    struct encoder_row *rows; /* [max_rows] of a step; the compute thread's */
    size_t max_rows, max_tokens, context;
    enum pooling pooling;
    char version[MODEL_HASH_SIZE];
};

/* A turn's private state, in the turn's arena. */
struct encoder_turn {
    int32_t *ids; /* [n_ids] */
    size_t n_ids, n_first;
    float *out; /* [encoder_n_out] */
};

static struct encoder_original *encoder_original_of(struct agent *a)
{
    return container_of(a, struct encoder_original, base);
}

static const struct encoder_original *const_encoder_original_of(const struct agent *a)
{
    return container_of(a, const struct encoder_original, base);
}

/* --- the original ---------------------------------------------------------------------------- */

static bool encoder_serves(const char *architecture, size_t len)
{
    return encoder_arch_find(architecture, len) != NULL;
}

static enum encoder_pooling pooling_to_encoder(enum pooling p)
{
    switch (p) {
    case POOLING_MEAN:
        return ENCODER_POOLS_MEAN;
    case POOLING_LAST:
        return ENCODER_POOLS_LAST;
    case POOLING_CLS:
        return ENCODER_POOLS_CLS;
    case POOLING_RANK:
        return ENCODER_POOLS_RANK;
    default:
        return ENCODER_POOLS_NONE;
    }
}

static enum pooling pooling_of_encoder(enum encoder_pooling p)
{
    switch (p) {
    case ENCODER_POOLS_LAST:
        return POOLING_LAST;
    case ENCODER_POOLS_CLS:
        return POOLING_CLS;
    case ENCODER_POOLS_RANK:
        return POOLING_RANK;
    default:
        return POOLING_MEAN;
    }
}

static void encoder_agent_close(struct agent *a)
{
    struct encoder_original *o = encoder_original_of(a);

    encoder_close(o->encoder);
    backend_close(o->backend);
    vocab_close(o->vocab);
    gguf_close(o->gguf);
    free(o->rows);
}

/* A text is read in one step: a step holds at least the longest one. */
static enum status encoder_open_engine(struct encoder_original *o,
                                       const struct agent_config *config, struct error *err)
{
    const struct backend_config of_backend = {.n_threads = config->options.n_threads,
                                              .fast_math = config->options.fast_math};
    struct encoder_config of_encoder = {.pooling = pooling_to_encoder(config->options.pooling)};
    struct encoder_shape shape;
    enum status rc = encoder_read_shape(&shape, o->gguf, err);

    if (rc != STATUS_OK)
        return rc;
    if (vocab_n_tokens(o->vocab) > shape.n_vocab)
        return error_set(err, STATUS_DATA_LOSS,
                         "%s: %zu tokens in the vocabulary, but only %zu rows in token_embd.weight",
                         gguf_path(o->gguf), vocab_n_tokens(o->vocab), shape.n_vocab);
    o->context = shape.context;
    if (config->max_context != 0 && config->max_context < o->context)
        o->context = config->max_context;
    o->max_rows = config->max_step_rows != 0 ? config->max_step_rows : ENCODER_MAX_ROWS;
    o->max_tokens = config->max_step_tokens != 0 ? config->max_step_tokens : ENCODER_MAX_TOKENS;
    o->max_tokens = o->max_tokens > o->context ? o->max_tokens : o->context;
    of_encoder.max_tokens = o->max_tokens;
    of_encoder.max_rows = o->max_rows;
    rc = config->backend_type != NULL
             ? backend_open_type(&o->backend, config->backend_type, &of_backend, err)
             : backend_open(&o->backend, config->options.backend, &of_backend, err);
    if (rc != STATUS_OK)
        return rc;
    return encoder_open(&o->encoder, o->backend, o->gguf, &of_encoder, err);
}

static enum status encoder_agent_open(struct agent *a, const struct agent_config *config,
                                      struct error *err)
{
    struct encoder_original *o = encoder_original_of(a);
    struct model_hasher *hasher = NULL;
    enum status rc;

    if (config->path == NULL)
        return error_set(err, STATUS_INVALID, "an encoder needs a file");
    rc = gguf_open(&o->gguf, config->path, err);
    if (rc == STATUS_OK)
        hasher = model_hasher_open(o->gguf);
    if (rc == STATUS_OK)
        rc = vocab_open(&o->vocab, o->gguf, err);
    if (rc == STATUS_OK)
        rc = encoder_open_engine(o, config, err);
    if (rc == STATUS_OK) {
        o->pooling = pooling_of_encoder(encoder_pooling_of(o->encoder));
        o->rows = try_alloc(o->max_rows, sizeof(*o->rows));
        if (o->rows == NULL)
            rc = error_no_memory(err, o->max_rows * sizeof(*o->rows), "a step");
    }
    if (rc == STATUS_OK)
        rc = model_hasher_take(hasher, o->version, err);
    if (rc == STATUS_OK)
        rc = gguf_check_unchanged(o->gguf, err);
    model_hasher_close(hasher);
    return rc; /* agent_open calls encoder_agent_close on failure */
}

static void encoder_info(const struct agent *a, struct agent_info *out)
{
    const struct encoder_original *o = const_encoder_original_of(a);
    const bool ranks = o->pooling == POOLING_RANK;

    out->architecture = encoder_shape(o->encoder)->arch->is.name;
    out->backend = o->backend->type->name;
    out->weight_bytes = encoder_weight_bytes(o->encoder);
    out->text = (struct text_info){.context = o->context,
                                   .n_vocab = encoder_shape(o->encoder)->n_vocab,
                                   .bos = vocab_bos(o->vocab),
                                   .eos = vocab_eos(o->vocab),
                                   .n_embedding = ranks ? 0 : encoder_n_out(o->encoder),
                                   .pooling = o->pooling,
                                   .is_embedder = !ranks,
                                   .is_encoder = true,
                                   .ranks = ranks};
    memcpy(out->version, o->version, sizeof(out->version));
}

static void encoder_batching(const struct agent *a, struct batcher_config *out)
{
    const struct encoder_original *o = const_encoder_original_of(a);

    *out = (struct batcher_config){.policy = BATCH_CONTINUOUS,
                                   .max_rows = o->max_rows,
                                   .max_cost = o->max_tokens,
                                   .max_waiting = ENCODER_MAX_WAITING,
                                   .max_itl_us = ENCODER_MAX_ITL_US};
}

/* --- the clone -------------------------------------------------------------------------------- */

static enum status encoder_rewind(struct clone *c, uint32_t at_turn, struct error *err)
{
    if (at_turn == 0)
        return STATUS_OK;
    return error_because(err, STATUS_RANGE, REASON_TURN_NOT_FOUND, NULL,
                         "turn %u does not exist: an encoder's conversation has no turns", at_turn);
}

static enum status encoder_fork(struct clone *c, const struct clone *parent, uint32_t at_turn,
                                struct error *err)
{
    return encoder_rewind(c, at_turn, err);
}

static void encoder_reset(struct clone *c)
{
}

/* --- a turn ----------------------------------------------------------------------------------- */

/* What an encoder does not do. */
static enum status encoder_check_wants(const struct encoder_original *o,
                                       const struct observation *seen, struct error *err)
{
    const bool ranks = o->pooling == POOLING_RANK;
    const char *instead =
        ranks ? "send a query and documents to /v1/rerank" : "ask for embeddings (/v1/embeddings)";

    if (seen->pooling == POOLING_NONE || seen->want_prompt_logprobs || seen->n_scored > 0)
        return error_because(err, STATUS_UNIMPLEMENTED, REASON_MODEL_UNSUITABLE, "model",
                             "the model is an encoder, it gives no replies and no probabilities: "
                             "%s, or use a language model",
                             instead);
    if ((seen->pooling == POOLING_RANK) != ranks)
        return error_because(err, STATUS_UNIMPLEMENTED, REASON_MODEL_UNSUITABLE, "model",
                             "the model %s: %s",
                             ranks ? "ranks documents, it gives no embeddings"
                                   : "gives embeddings, it has no head that ranks documents",
                             instead);
    if (seen->pooling != o->pooling)
        return error_because(err, STATUS_UNIMPLEMENTED, REASON_MODEL_UNSUITABLE, "pooling",
                             "an encoder pools as it was loaded to (parleyd --pooling)");
    if (!seen->is_raw_prompt)
        return error_because(err, STATUS_UNIMPLEMENTED, REASON_MODEL_UNSUITABLE, "messages",
                             "the model is an encoder, it reads texts and no messages: %s",
                             instead);
    return STATUS_OK;
}

static enum status encoder_check_ids(const struct encoder_original *o, const int32_t *ids, size_t n,
                                     struct error *err)
{
    for (size_t i = 0; i < n; i++) {
        const char *bytes;
        size_t len;

        if (vocab_bytes(o->vocab, ids[i], true, &bytes, &len, err) != STATUS_OK)
            return err->status;
    }
    return STATUS_OK;
}

static enum status encoder_cut(const struct encoder_original *o, const struct observation *seen,
                               struct buf *ids, size_t *ret_n_first, struct error *err)
{
    const struct message *m = seen->messages;
    const bool is_pair = seen->n_messages == 2;
    const size_t most = o->context * ENCODER_TOKEN_BYTES;
    size_t n_bytes = 0;

    for (size_t i = 0; i < seen->n_messages; i++)
        n_bytes += m[i].len;
    if (n_bytes > most)
        return error_because(err, STATUS_RANGE, REASON_CONTEXT_EXCEEDED, NULL,
                             "the text has %zu bytes, more than the model's context of %zu can "
                             "hold: send a part of it",
                             n_bytes, o->context);
    if (seen->n_messages > 0)
        return vocab_encode_pair(o->vocab, m[0].text, m[0].len, is_pair ? m[1].text : NULL,
                                 is_pair ? m[1].len : 0, ids, ret_n_first, err);
    if (encoder_check_ids(o, seen->raw_ids, seen->n_raw_ids, err) != STATUS_OK)
        return err->status;
    *ret_n_first = seen->n_raw_ids;
    if (buf_append(ids, seen->raw_ids, seen->n_raw_ids * sizeof(int32_t)) != STATUS_OK)
        return error_no_memory(err, seen->n_raw_ids * sizeof(int32_t), "tokens");
    return STATUS_OK;
}

static enum status encoder_turn_open(struct encoder_turn **out, const struct encoder_original *o,
                                     const struct buf *ids, size_t n_first, struct arena *arena,
                                     struct error *err)
{
    const size_t n = ids->len / sizeof(int32_t);
    struct encoder_turn *t;

    if (n == 0)
        return error_set(err, STATUS_INVALID, "the text has no tokens");
    if (n > o->context)
        return error_because(err, STATUS_RANGE, REASON_CONTEXT_EXCEEDED, NULL,
                             "the text has %zu tokens, but the model reads at most %zu: send a "
                             "part of it",
                             n, o->context);
    t = arena_alloc(arena, 1, sizeof(*t));
    if (t == NULL)
        return error_no_memory(err, sizeof(*t), "a turn");
    *t =
        (struct encoder_turn){.ids = arena_alloc(arena, n, sizeof(*t->ids)),
                              .out = arena_alloc(arena, encoder_n_out(o->encoder), sizeof(*t->out)),
                              .n_ids = n,
                              .n_first = n_first};
    if (t->ids == NULL || t->out == NULL)
        return error_no_memory(err, n * sizeof(*t->ids), "a turn");
    memcpy(t->ids, ids->data, ids->len);
    *out = t;
    return STATUS_OK;
}

static enum status encoder_observe(struct clone *c, struct agent_turn *turn, struct error *err)
{
    const struct encoder_original *o = const_encoder_original_of(c->agent);
    struct encoder_turn *t = NULL;
    size_t n_first = 0;
    struct buf ids;
    enum status rc;

    if (encoder_check_wants(o, &turn->seen, err) != STATUS_OK ||
        sampling_check(&turn->seen.sampling, 0, err) != STATUS_OK)
        return err->status;
    buf_init(&ids, SIZE_MAX);
    rc = encoder_cut(o, &turn->seen, &ids, &n_first, err);
    if (rc == STATUS_OK)
        rc = encoder_turn_open(&t, o, &ids, n_first, turn->arena, err);
    buf_deinit(&ids);
    if (rc != STATUS_OK)
        return rc;
    turn->row.clone = c;
    turn->row.turn = t;
    turn->reply.n_prompt = (uint32_t)t->n_ids;
    return STATUS_OK;
}

static void encoder_self_observe(struct clone *c, struct agent_turn *turn)
{
}

/* --- a step ----------------------------------------------------------------------------------- */

static size_t encoder_cost(const struct agent *a, const struct row *row)
{
    return ((const struct encoder_turn *)row->turn)->n_ids;
}

static void encoder_batch_act(struct agent *a, struct row *const *rows, size_t n)
{
    struct encoder_original *o = encoder_original_of(a);
    struct error err;
    enum status rc;

    assert(n <= o->max_rows);
    for (size_t i = 0; i < n; i++) {
        const struct encoder_turn *t = rows[i]->turn;

        o->rows[i] = (struct encoder_row){t->ids, t->n_ids, t->n_first, t->out};
    }
    rc = encoder_run(o->encoder, o->rows, n, &err);
    for (size_t i = 0; i < n; i++) {
        rows[i]->outcome = rc == STATUS_OK ? ROW_DONE : ROW_FAILED;
        if (rc != STATUS_OK)
            rows[i]->err = err;
    }
}

static void encoder_stepped(struct agent *a, struct row *row)
{
    const struct encoder_turn *t = row->turn;
    struct reply *reply = &agent_turn_of(row)->reply;

    if (row->outcome != ROW_DONE)
        return;
    reply->embedding = t->out;
    reply->n_embedding = encoder_n_out(encoder_original_of(a)->encoder);
    reply->n_prefilled = reply->n_prompt;
    reply->finish = FINISH_STOP;
}

/* --- text ------------------------------------------------------------------------------------- */

static enum status encoder_tokenize(const struct agent *a, const char *text, size_t len,
                                    bool is_trusted, struct buf *ids, struct error *err)
{
    const struct text_span span = {len, is_trusted};

    return vocab_encode_spans(const_encoder_original_of(a)->vocab, text, len, &span, 1, true, ids,
                              err);
}

static enum status encoder_detokenize(const struct agent *a, const int32_t *ids, size_t n,
                                      struct buf *text, struct error *err)
{
    return vocab_decode(const_encoder_original_of(a)->vocab, ids, n, text, err);
}

static enum status encoder_render(const struct agent *a, const struct message *messages, size_t n,
                                  struct text tools, struct text variables, bool is_replied,
                                  struct buf *ids, struct error *err)
{
    return error_because(err, STATUS_UNIMPLEMENTED, REASON_MODEL_UNSUITABLE, "messages",
                         "the model is an encoder, it reads texts and no messages");
}

/* Turns with a constraint are refused before. */
static enum status encoder_prepare(struct clone *c, struct agent_turn *turn, struct error *err)
{
    return STATUS_OK;
}

static void encoder_unprepare(struct clone *c, struct agent_turn *turn)
{
}

static const struct agent_text encoder_text = {
    .tokenize = encoder_tokenize,
    .detokenize = encoder_detokenize,
    .render = encoder_render,
    .prepare = encoder_prepare,
    .unprepare = encoder_unprepare,
    .gives_prompt_results = true,
};

const struct agent_type encoder_agent = {
    .name = "encoder",
    .serves = encoder_serves,
    .agent_size = sizeof(struct encoder_original),
    .clone_size = sizeof(struct clone),
    .open = encoder_agent_open,
    .close = encoder_agent_close,
    .info = encoder_info,
    .batching = encoder_batching,
    .fork = encoder_fork,
    .rewind = encoder_rewind,
    .reset = encoder_reset,
    .observe = encoder_observe,
    .self_observe = encoder_self_observe,
    .cost = encoder_cost,
    .batch_act = encoder_batch_act,
    .stepped = encoder_stepped,
    .text = &encoder_text,
};
