/* The language model as an agent: its original, its clones, a turn's private state. Shared by the
 * files of this folder; other folders see only lm_agent, through agents/registry.c.
 *
 * Ownership: the loop owns token ids, page tables and replies. A running step borrows the row's
 * turn and reads the clone's ids and pages. The loop does not change them meanwhile: it moves or
 * frees them only in reserve, self_observe, drop and release, which are not called for a row in a
 * step. A step's results stay in the turn until stepped takes them over on the loop. */
#ifndef AGENTS_LM_LM_H
#define AGENTS_LM_LM_H

#include <stdatomic.h>

#include "agents/agent.h"
#include "agents/lm/cache/pages.h"
#include "agents/lm/chat/prompt.h"
#include "agents/lm/chat/system.h"
#include "agents/lm/chat/template.h"
#include "agents/lm/grammar/matcher.h"
#include "agents/lm/grammar/repetition.h"
#include "agents/lm/history.h"
#include "agents/lm/known_logprobs.h"
#include "agents/lm/sampling/draft.h"
#include "agents/lm/sampling/sampler.h"
#include "agents/lm/tokenizer/detokenizer.h"
#include "agents/lm/tokenizer/vocab.h"
#include "agents/reply/reply_format.h"
#include "agents/turn.h"
#include "compute/backend/backend.h"
#include "compute/gguf/gguf.h"
#include "compute/model/transformer.h"

extern const struct agent_type lm_agent;

enum { LM_MAX_MARKS = 32, REASONING_MAX_CLOSE = 64 };

/* What is written where a constraint binds the answer: the columns of struct thought_format. */
enum lm_reasoning_text {
    REASONING_BEGIN,
    REASONING_CUT,
    REASONING_AFTER,
    REASONING_ALONE,
    N_REASONING_TEXTS
};

struct lm {
    struct agent base;
    struct gguf *gguf;
    struct backend *backend;
    struct transformer *transformer; /* owned by the compute thread once the first step ran */
    struct vocab *vocab;
    /* The file's, or what the options name, which is in named_template; NULL: none. */
    const char *template_text; /* [template_len] */
    size_t template_len;
    struct buf named_template;
    struct chat_template *template; /* rendered in parts; NULL: prompter renders it whole */
    /* NULL: the template is rendered in parts always; else with tools whole. */
    struct chat_prompter *prompter;
    struct reply_format format;
    /* What the template does not take (messages.c): a system message; one that is not the first;
     * two messages of the user's in a row. Such messages become the user's, and join what is before
     * them. */
    bool joins_system, joins_late_system, joins_users;
    /* The texts around reasoning, as ids (reasoning.c); empty: nothing is written. */
    struct buf reasoning_ids[N_REASONING_TEXTS];
    /* Control tokens that are part of a reply's text: the first n_thought_marks always, the others
     * in a turn with tools. */
    int32_t marks[LM_MAX_MARKS]; /* [n_marks] */
    size_t n_marks, n_thought_marks;
    const struct logit_kernels *kernels;
    struct backend_config backend_config;
    struct lm_cache cache;
    struct prompt_limits limits;
    size_t n_vocab;
    size_t max_rows, max_tokens; /* of a step */
    size_t max_logits; /* rows of logits of a step: one for each row, and some for draft tokens or
                          scores */
    struct sampling defaults;
    enum pooling pooling;
    bool is_embedder; /* its file says how to pool */
    struct head
        *rank; /* scores a query with a document; NULL: the file has none, or does not rank */
    const char *rank_text; /* [rank_text_len] their template; NULL: one follows the other */
    size_t rank_text_len;
    int32_t rank_pad;       /* ids of this one at the end of a pair are left out; -1: of none */
    struct buf rank_prompt; /* rank_text, where a chat template has made it */
    bool is_label_prompt;   /* rank_text is that of no hashed file: the folder's label chose it */
    char version[65];
    char file_version[65]; /* of the file alone */
    struct lm_system *default_system;
    struct lm_systems systems;
    struct grammars *grammars;
    struct known_logprobs *known; /* of prompts; NULL: switched off with the prefix cache */
    uint64_t n_prefix_queries, n_prefix_hits; /* tokens of prompts */
    uint64_t n_host_hits, n_disk_hits;        /* of the hits: from host pages, and from disk */
    uint64_t n_losses_seen;                   /* the part of n_losses that the loop has handled */
    struct backend_statistics figures;        /* read between two steps */
    enum speculate speculate;
    uint64_t n_drafted, n_accepted; /* draft tokens */
    /* A step's buffers, owned by the compute thread. */
    struct transformer_row *rows; /* [max_rows] */
    float *logits;                /* [max_logits][n_vocab] */
    float *hidden;                /* [max_tokens][width] of rows that want an embedding */
    struct draw *draws;           /* [max_logits] if the device draws, else NULL */
    struct drawn *drawn;          /* [max_logits] */
    struct draft_cost cost;
    bool is_reading; /* the last step read prompts */
    /* Of steps that read prompts and little else; a page of metrics may be a step behind. */
    atomic_uint_fast64_t read_us, n_read_tokens;
    /* How often all pages and host pages became invalid. Written in a step, read between two steps.
     */
    uint64_t n_losses;
    bool is_down; /* the device failed and is not open again; owned by the compute thread */
};

struct lm_clone {
    struct clone base;
    struct lm_system *system; /* the conversation begins with it; shared */
    struct lm_clone_pages pages;
    int32_t *ids; /* [cap_ids]: n_ids of completed turns, then those of the running turn */
    uint32_t n_ids, cap_ids;
    uint32_t *turn_ends; /* [n_turns] n_ids after each turn */
    uint32_t n_turns, cap_turns;
    struct draft_acceptance acceptance;
    bool has_system; /* the caller gave it; else it is the model's own */
    bool is_whole;   /* a turn had tools or calls: from then on the template is rendered whole */
    /* For a template that is rendered whole. */
    struct lm_history history;
    int64_t opened_s; /* Unix time, the date that the template shows */
};

/* A generated token, and the end of its text in the step's piece. */
struct lm_generated {
    struct sampled token;
    uint32_t piece_end;
};

/* A scored continuation. */
struct lm_text {
    const int32_t *ids; /* [n_ids] */
    float *logprobs;    /* [n_ids], the first n_scored are known */
    double logprob;
    uint32_t n_ids, n_scored, n_top;
};

/* The scored continuations of a turn, one after the other; then the reply begins. */
struct lm_scoring {
    struct lm_text *texts;     /* [n_texts] */
    struct text_score *scores; /* [n_texts] the reply's */
    uint32_t n_texts, at;
};

/* What a turn wants of its prompt's positions (prompt_results.c). */
struct lm_results {
    enum lm_results_kind { LM_RESULTS_NONE, LM_RESULTS_EMBEDDING, LM_RESULTS_LOGPROBS } kind;
    bool no_reply;    /* the turn ends with them */
    uint32_t n_taken; /* positions whose results are known, or not wanted: the first ones */
    uint32_t n_wanted;
    /* Of an embedding. */
    double *sum;      /* [width] of the hidden states so far */
    float *embedding; /* [n_embedding] at the end */
    size_t width, n_embedding;
    uint32_t n_pooled; /* positions */
    /* Of log-probabilities. */
    struct prompt_token *tokens; /* [n_prompt]; the first n_taken + 1 are known */
    uint32_t n_tops;
    uint32_t n_pages;   /* of the tokens that are known, whole pages that lm->known has */
    struct digest page; /* the name of the last of them */
};

/* Where a reply stands before the text that its constraint binds; of a free reply whose reasoning
 * has a budget, while that may be reasoning. */
struct lm_reasoning {
    enum lm_reasoning_phase {
        REASONING_IS_OVER,   /* the constraint binds from here on; also where there is none */
        REASONING_MAY_BEGIN, /* at the reply's beginning: it begins, or does not; in a free reply of
                                some families also later */
        REASONING_IS_OFF,    /* there: it does not */
        REASONING_WRITES,    /* ids are written, and then comes next */
        REASONING_IS_ON,     /* the model reasons */
    } phase,
        next;
    const int32_t *ids; /* [n_ids] the model's, of which at are written */
    size_t n_ids, at;
    bool is_wanted;                 /* the request asks for it */
    bool has_limit;                 /* n_most, or a free reply's budget, is known */
    size_t n_most;                  /* of the reply's tokens, after which it is ended */
    char tail[REASONING_MAX_CLOSE]; /* [n_tail] its last bytes */
    size_t n_tail;
    struct repetition repetition;
    bool is_repeating; /* it is ended, too */
    bool has_budget;   /* the request bounds the reasoning */
    size_t budget;     /* the most of its tokens; SIZE_MAX: share says */
    unsigned share;    /* in percent, of the tokens that the reply may have */
    size_t n_thought;  /* of a free reply: its tokens so far */
};

/* Where a turn of a model with recurrent state leaves snapshots, and the slots of its steps
 * (snapshots.c). */
enum {
    SNAPSHOT_PLACES =
        3, /* of a prompt: behind the system prompt, before the last message, its end */
    SNAPSHOT_EVERY = 2048,
    SNAPSHOTS_A_STEP = 4,
    LM_MOST_STATE_DRAFTS = 32, /* draft tokens of a step, whose inputs are kept */
};

struct lm_snapshots {
    uint32_t places[SNAPSHOT_PLACES]; /* [n_places] tokens, whole pages */
    uint32_t n_places;
    uint32_t rolled; /* where the reply's last snapshot is, which the next one replaces; 0: none */
    /* Of the current step. */
    int32_t next; /* the slot of the state behind it */
    struct {
        uint32_t at; /* tokens */
        int32_t slot;
    } marks[SNAPSHOTS_A_STEP]; /* [n_marks] in rising order */
    uint32_t n_marks;
    struct state_save saves[SNAPSHOTS_A_STEP + 1];
};

/* A turn's private state, in the turn's arena. */
struct lm_turn {
    /* Ids of the clone that this turn's prompt replaced, behind those that it kept: drop puts them
     * back. */
    int32_t *replaced; /* [n_replaced] */
    uint32_t n_replaced;
    /* Length of the clone's ids including this turn's prompt and reply; while a text is scored, its
     * ids but the last instead of the reply. */
    uint32_t n_ids;
    uint32_t n_prompt;
    uint32_t n_in_memory; /* tokens of pages that it began with, until a step has gone on; 0 */
    bool is_whole;        /* the prompt is the whole conversation's */
    bool has_begun;       /* it has had a place in a step */
    struct sampler *sampler;
    struct matcher *matcher;       /* NULL: the reply is free */
    struct lm_reasoning reasoning; /* before matcher binds */
    struct grammar_waiter waiter;  /* while its constraint is being compiled */
    struct lm_disk_waiter reading; /* while pages of its prompt are read from disk */
    bool waits_for_grammar;
    struct agent_turn *agent_turn; /* whose it is */
    struct detokenizer detokenizer;
    struct lm_scoring scoring;
    struct lm_results results;
    struct lm_snapshots snapshots;
    /* Of the current step. */
    struct kv_copy copy; /* from < 0: none */
    uint32_t n_room;     /* positions after the last id that are reserved for draft tokens */
    uint32_t n_proposed, n_draft_tokens; /* proposed, and how many of them computed */
    size_t n_match; /* length of the n-gram match that they follow from; 0: a prediction */
    /* Results of the last step, until stepped takes them over. */
    struct lm_generated generated[1 + DRAFT_MAX]; /* [n_generated] */
    uint32_t n_generated;
    uint32_t n_sampled; /* of n_generated: the first, from logits; the others were forced */
    struct buf piece;
    enum finish finish;
    uint32_t n_computed;
    uint32_t n_verified, n_accepted; /* draft tokens */
};

/* Whether clones remember what was said as text. */
static inline bool lm_remembers(const struct lm *m)
{
    return m->prompter != NULL;
}

/* messages.c */
/* What the model's template makes of in, into text, which is empty; or, where the model has no
 * prompter, the start of a reply. Where the template refuses in, text is empty. The only error is
 * STATUS_EXHAUSTED. */
enum status lm_try_template(struct buf *text, const struct lm *m, const struct chat_input *in,
                            struct error *err) MUST_CHECK;
/* Tries what the model's template takes, behind whether it takes names: those of messages that join
 * would be lost, so it then takes none. */
enum status lm_messages_open(struct lm *m, struct error *err) MUST_CHECK;
/* The *n messages as the model's template takes them, *n of them: without tools of its own, calls
 * are text and their results are the user's. *out is messages itself, or lies in arena. */
enum status lm_fit_messages(const struct message **out, size_t *n, const struct lm *m,
                            const struct message *messages, struct arena *arena,
                            struct error *err) MUST_CHECK;
/* Whether a prompt with these messages, tools and variables is rendered whole by the model's
 * template. */
bool lm_needs_whole(const struct lm *m, const struct message *messages, size_t n, struct text tools,
                    struct text variables);

/* reply.c */
/* Finds how the model writes calls and thoughts, by its template text; NULL: it has none. */
enum status lm_format_open(struct lm *m, const char *text, size_t len,
                           struct error *err) MUST_CHECK;
/* A completed turn's messages and reply into the clone's history. The reply is all that was
 * generated but what ended it, since stop texts belong to the conversation, too. */
enum status lm_remember(struct lm_clone *c, const struct agent_turn *turn,
                        struct error *err) MUST_CHECK;

/* The ids of a raw prompt's texts, [n], without bos; and the whole prompt of a new conversation,
 * for struct agent_text. */
enum status lm_raw_texts(const struct lm *m, const struct raw_rules *rules,
                         const struct message *texts, size_t n, struct buf *ids,
                         struct error *err) MUST_CHECK;
enum status lm_raw_prompt(const struct agent *a, const struct raw_rules *rules,
                          const struct message *texts, size_t n, struct buf *ids,
                          struct error *err) MUST_CHECK;

/* How many of m's marks are part of this turn's reply. */
static inline size_t lm_n_marks(const struct lm *m, const struct observation *seen)
{
    if (seen->is_raw_prompt && !seen->raw.is_chat)
        return 0;
    return seen->tool_use.tools.len > 0 ? m->n_marks : m->n_thought_marks;
}

/* A control token that is part of this turn's reply. */
static inline bool lm_is_mark(const struct lm *m, const struct observation *seen, int32_t id)
{
    for (size_t i = 0; i < lm_n_marks(m, seen); i++)
        if (m->marks[i] == id)
            return true;
    return false;
}

/* reasoning.c */
/* Of a model whose format is known. lm_reasoning_close is fine also without. */
enum status lm_reasoning_open(struct lm *m, struct error *err) MUST_CHECK;
void lm_reasoning_close(struct lm *m);
/* Of a turn, before its first step, once its prompt is known. */
void lm_reasoning_begin(const struct lm *m, struct agent_turn *turn);
/* The id that must come next, -1 if there is none. */
int32_t lm_reasoning_written(const struct lm_reasoning *r);
/* The next token, where the constraint does not bind yet; where it binds now after all, the phase
 * is REASONING_IS_OVER and out is as before. n_left: as for matcher_mask. */
enum status lm_reasoning_sample(struct lm *m, struct row *row, float *logits, uint32_t position,
                                size_t n_left, struct sampled *out) MUST_CHECK;
/* The token was chosen, and the phase is not REASONING_IS_OVER. */
void lm_reasoning_accept(const struct lm *m, struct lm_turn *t, int32_t id);

/* open.c */
enum status lm_open(struct agent *a, const struct agent_config *config, struct error *err);
void lm_close(struct agent *a);
void lm_settle(struct agent *a);

/* open_disk.c */
/* KV pages on disk, of a model that is open but for them. */
enum status lm_open_disk(struct lm *m, const struct agent_config *config,
                         struct error *err) MUST_CHECK;

/* device.c. Call both between two steps. */
void lm_read_statistics(struct lm *m);
/* If a step has lost all pages and host pages, takes them from all clones. */
void lm_notice_losses(struct lm *m);

/* clone.c */
enum status lm_clone_open(struct clone *c, const struct clone_config *config, struct error *err);
void lm_clone_close(struct clone *c);
void lm_clone_info(const struct clone *c, struct clone_info *out);
enum status lm_clone_fork(struct clone *c, const struct clone *parent, uint32_t at_turn,
                          struct error *err);
enum status lm_clone_rewind(struct clone *c, uint32_t at_turn, struct error *err);
void lm_clone_reset(struct clone *c);
enum status lm_clone_save(const struct clone *c, struct buf *out, struct error *err);
enum status lm_clone_restore(struct clone *c, const void *data, size_t size_bytes,
                             struct error *err);
/* Grows c->ids to n ids. */
enum status lm_clone_grow(struct lm_clone *c, size_t n, struct error *err) MUST_CHECK;

/* observe.c */
enum status lm_observe(struct clone *c, struct agent_turn *t, struct error *err);
void lm_self_observe(struct clone *c, struct agent_turn *t);
void lm_drop(struct clone *c, struct agent_turn *t);
enum status lm_trace(const struct clone *c, const struct agent_turn *t, struct buf *out,
                     struct error *err);
enum status lm_recall(struct clone *c, struct agent_turn *t, const void *trace, size_t size_bytes,
                      struct error *err);
enum status lm_prepare(struct clone *c, struct agent_turn *t, struct error *err);
void lm_unprepare(struct clone *c, struct agent_turn *t);
void lm_woken(struct agent *a);
/* In reserve: adopts published pages of the turn's ids, and corrects its counts if its own pages
 * were evicted while it waited. */
void lm_turn_resume(struct lm *m, struct agent_turn *turn);

/* rank.c */
/* Opens the head of a model that ranks, by its file; m->rank stays NULL for others. */
enum status lm_rank_open(struct lm *m, struct error *err) MUST_CHECK;
/* Appends the prompt of a query and a document. */
enum status lm_rank_render(const struct lm *m, struct text query, struct text document,
                           struct buf *ids, struct error *err) MUST_CHECK;

/* prompt_results.c */
/* For the prompt ids [n_prompt]; *out is zeroed where nothing is wanted. */
enum status lm_results_open(struct lm_results *out, const struct lm *m, struct agent_turn *turn,
                            const int32_t *ids, uint32_t n_prompt, struct error *err) MUST_CHECK;
bool lm_results_are_pending(const struct lm_turn *t);
/* On the loop, while no step has the row: takes log-probabilities that other prompts have computed,
 * and gives away those that this one has. */
void lm_results_share(struct lm *m, const struct lm_clone *c, struct lm_results *r);
/* How many of the prompt's ids have to be computed before the turn ends, or its reply begins. */
uint32_t lm_results_n_ids(const struct lm_results *r, uint32_t n_prompt);
/* For a row whose results are pending: how many tokens the step computes, and of how many it
 * returns logits, at most n_room > 0, or hidden states, behind those of other rows. */
void lm_results_lay_out(struct lm *m, const struct row *row, size_t n_room, size_t n_hidden_before,
                        struct transformer_row *out);
/* Takes the step's results; leaves in computed the logits that the reply begins with, if any. */
enum status lm_results_take(struct lm *m, struct row *row,
                            struct transformer_row *computed) MUST_CHECK;
void lm_results_stepped(struct lm *m, struct agent_turn *turn);

/* score.c */
/* Appends ids of a request; INVALID if one is not a token. */
enum status lm_append_ids(const struct lm *m, const int32_t *ids, size_t n, struct buf *out,
                          struct error *err) MUST_CHECK;
/* Encodes the texts that the turn scores after n_prompt ids. *ret_longest: ids of the longest, 0 if
 * there is none. INVALID if a text has no tokens or is not UTF-8. */
enum status lm_scores_open(struct lm_scoring *out, const struct lm *m, struct agent_turn *turn,
                           size_t n_prompt, size_t *ret_longest, struct error *err) MUST_CHECK;
bool lm_is_scoring(const struct lm_turn *t);
/* Puts the next text after the prompt; if none is left, the reply begins. */
void lm_scores_begin(struct lm_clone *c, struct lm_turn *t);
/* How many ids cached pages may cover: while scoring, the prompt and the scored part of the text.
 * The last of them is computed in any case. */
uint32_t lm_scores_known(const struct lm_turn *t);
/* For a row that scores: how many logits the step returns, at most n_room > 0, and in *ret_n_tokens
 * how many tokens it computes. */
size_t lm_scores_lay_out(const struct row *row, size_t n_room, size_t *ret_n_tokens);
enum status lm_scores_take(struct lm *m, struct row *row,
                           const struct transformer_row *computed) MUST_CHECK;
void lm_scores_stepped(struct lm *m, struct agent_turn *turn);

/* snapshots.c: of a model with recurrent state; nothing is done for others. A step reads the
 * clone's slot and writes another one; on the way it writes snapshots. */
/* Loop: finds the places of the prompt, of n_prompt ids. */
void lm_snapshots_begin(struct lm_snapshots *s, const struct lm *m, const struct lm_clone *c,
                        uint32_t n_prompt);
/* Loop: takes slots for the step's n tokens. EXHAUSTED: none is free, and nothing is taken. */
enum status lm_snapshots_reserve(struct lm *m, struct lm_clone *c, struct lm_turn *t, size_t n,
                                 struct error *err) MUST_CHECK;
/* Compute: lays out what the row, whose tokens are known, reads and writes. */
void lm_snapshots_lay_out(const struct lm *m, const struct lm_clone *c, struct lm_turn *t,
                          struct transformer_row *out);
/* Loop, behind a step whose pages are published: the clone's state becomes that behind its tokens,
 * if the step computed any. */
void lm_snapshots_stepped(struct lm *m, struct lm_clone *c, struct lm_turn *t, uint32_t n_before);
/* Loop, when the turn ends, before its pages are cut. */
void lm_snapshots_end(struct lm *m, const struct lm_clone *c, struct lm_turn *t);
/* Loop: gives back the slots of a step that is not run. */
void lm_snapshots_drop(struct lm *m, struct lm_turn *t);

/* step.c */
size_t lm_cost(const struct agent *a, const struct row *row);
size_t lm_min_chunk(const struct agent *a, const struct row *row);
enum status lm_reserve(struct agent *a, struct row *row, struct error *err);
void lm_release(struct agent *a, struct row *row);
void lm_batch_act(struct agent *a, struct row *const *rows, size_t n);
void lm_stepped(struct agent *a, struct row *row);

#endif
