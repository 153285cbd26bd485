/* The language model as an agent: its original, its clones, a turn's private state. Shared by the
 * files of this folder; others see only lm_agent, through agents/registry.c.
 *
 * Whose is what. Token ids, page tables and replies are the loop's. A step borrows, while it runs,
 * the row's turn and reads the clone's ids and pages, which the loop leaves alone meanwhile: it
 * only moves or frees them in reserve, self_observe, drop and release, none of which is called for
 * a row that is in a step. What a step makes stays in the turn until stepped, on the loop. */
#ifndef AGENTS_LM_LM_H
#define AGENTS_LM_LM_H

#include "agents/agent.h"
#include "agents/lm/draft.h"
#include "agents/lm/prefix.h"
#include "agents/lm/sampler.h"
#include "agents/lm/template.h"
#include "agents/lm/vocab.h"
#include "agents/lm/writer.h"
#include "compute/backend.h"
#include "compute/gguf.h"
#include "compute/kv_pages.h"
#include "compute/kv_slots.h"
#include "compute/llama.h"

extern const struct agent_type lm_agent;

/* A system prompt and its ids, shared by the clones that begin with it. */
struct lm_system {
    struct lm_system *next; /* in its list of lm.systems */
    size_t n_refs;
    char *text;
    size_t len;
    int32_t *ids; /* [n_ids] */
    size_t n_ids;
};

enum { LM_SYSTEM_HEADS = 1024 };

struct lm {
    struct agent base;
    struct gguf *gguf;
    struct backend *backend;
    struct llama *llama; /* the compute thread's once the first step ran */
    struct vocab *vocab;
    struct chat_template *template;
    const struct logit_passes *passes;
    struct backend_config backend_config;
    struct kv_pages *pages;
    struct kv_slots *slots; /* that cached pages move to; NULL: none */
    size_t n_pages, context, n_vocab;
    size_t longest_bytes;        /* of a token: n bytes are at least n / longest_bytes tokens */
    size_t max_rows, max_tokens; /* of a step */
    size_t max_logits;           /* rows of logits of a step: one for each row, and some more */
    struct sampling defaults;
    char version[65];
    struct lm_system *default_system;
    struct lm_system *systems[LM_SYSTEM_HEADS]; /* all of them, by the hash of their text */
    /* Of pages, and behind them of slots; NULL: switched off. */
    struct prefix_cache *prefixes;
    struct list clones; /* all of them */
    /* Clones that have pages and no turn, least recently used first; and those whose turn has no
     * place in a step yet, whoever is to wait longest last. */
    struct list idle, waiting;
    uint64_t n_evictions, n_recomputes;
    uint64_t n_looked_up, n_found; /* tokens of prompts */
    uint64_t n_spilled, n_filled;  /* pages to slots, and back */
    /* What the next step copies first, in this order. Between two steps the loop's, which adds to
     * it in reserve alone; while one runs the compute thread's, which empties it. */
    struct kv_copy *copies; /* [cap_copies] */
    size_t n_copies, cap_copies;
    uint64_t n_losses_seen;         /* of n_losses */
    struct backend_figures figures; /* as they were between two steps */
    bool is_losing;                 /* pages that are forgotten are not worth a slot */
    enum speculate speculate;
    uint64_t n_drafted, n_accepted; /* guesses computed, and those that were right */
    /* A step's, on the compute thread. */
    struct llama_row *rows; /* [max_rows] */
    float *logits;          /* [max_logits][n_vocab] */
    struct draw *draws;     /* [max_logits] where the device draws, else NULL */
    struct drawn *drawn;    /* [max_logits] */
    struct draft_cost cost;
    bool is_reading; /* the last step had prompts in it */
    /* Written by a step, looked at between two: how often all pages and slots have become void. */
    uint64_t n_losses;
    bool is_down; /* the device failed and is not back; the compute thread's */
};

struct lm_clone {
    struct clone base;
    struct lm_system *system; /* that it begins with; shared */
    bool has_system;          /* it was asked for, not the model's own */
    bool is_evicted;          /* its pages were taken; the next turn computes them again */
    uint64_t salt;            /* of the tenant: pages are shared only among equals */
    int32_t *ids; /* [cap_ids]: n_ids of complete turns, then those of the turn that runs */
    uint32_t n_ids, cap_ids;
    uint32_t *turn_ends; /* [n_turns] n_ids after each turn */
    uint32_t n_turns, cap_turns;
    struct kv_seq kv;
    struct link unused, link; /* of lm.idle or lm.waiting; of lm.clones */
    struct draft_odds odds;
};

/* A token, and where the step's text ends once its own is out. */
struct lm_said {
    struct sampled token;
    uint32_t piece_end;
};

/* A text that is scored. */
struct lm_text {
    const int32_t *ids; /* [n_ids] */
    float *logprobs;    /* [n_ids], n_scored of them known */
    double logprob;
    uint32_t n_ids, n_scored, n_top;
};

/* The texts of a turn, one after the other; then the reply begins. */
struct lm_scoring {
    struct lm_text *texts;     /* [n_texts] */
    struct text_score *scores; /* [n_texts] the reply's */
    uint32_t n_texts, at;
};

/* A turn's private state, in the turn's arena. */
struct lm_turn {
    /* Of the clone's ids, with this turn's and the reply's, or those of the text that is scored but
     * for its last. */
    uint32_t n_ids;
    uint32_t n_prompt;
    bool has_begun; /* it had a place in a step */
    struct sampler *sampler;
    struct writer writer;
    struct lm_scoring scoring;
    /* Of this step. */
    struct kv_copy copy;          /* from < 0: none */
    uint32_t n_room;              /* positions behind the last id that are reserved for guesses */
    uint32_t n_guesses, n_drafts; /* found, and of those computed */
    size_t n_match;               /* of the guesses: ids that stood before */
    /* What the step that ran has left, until stepped. */
    struct lm_said said[1 + DRAFT_MAX]; /* [n_said] */
    uint32_t n_said;
    struct buf piece;
    enum finish finish;
    uint32_t n_computed;
    uint32_t n_judged, n_right; /* guesses */
};

/* STATUS_RANGE for text that cannot fit behind n_ids tokens whatever it says: so nobody's megabytes
 * are cut into tokens for nothing while others wait. */
enum status lm_check_size(const struct lm *m, size_t n_ids, size_t n_bytes,
                          struct error *err) MUST_CHECK;

/* system.c: finds or makes a system prompt and takes a reference; text NULL: the model's own. */
enum status lm_system_ref(struct lm_system **out, struct lm *m, const char *text, size_t len,
                          struct error *err) MUST_CHECK;
void lm_system_unref(struct lm *m, struct lm_system *s);

/* pages.c. Both are nothing where the cache is switched off. */
/* Lengthens what the clone has of its first n_ids ids by pages that anybody computed, by no more
 * than all but the last id. may_fill: pages in slots come back, with the next step; in reserve
 * alone. */
void lm_pages_find(struct lm *m, struct lm_clone *c, size_t n_ids, bool may_fill);
/* The cached page is to be written anew: it moves to a slot, if there are some, with the next step.
 */
void lm_page_forget(void *arg, int32_t page);
/* Room for two copies more: pages that are forgotten leave one. */
bool lm_copies_grow(struct lm *m);
/* Between two steps: if a step has lost all pages and slots, nobody has any from here on. */
void lm_pages_notice(struct lm *m);
/* Between two steps. */
void lm_read_figures(struct lm *m);
/* Positions n_before … kv.n_tokens - 1 are computed and stay: whole pages of them are found by
 * others from now on. */
void lm_pages_learn(struct lm *m, struct lm_clone *c, size_t n_before);
/* Whose pages may be taken: puts the clone, if it has some, at the end of the idle; at the end, or
 * the head, of those that wait; lm_clone_busy takes it off. */
void lm_clone_idle(struct lm_clone *c);
void lm_clone_waits(struct lm_clone *c, bool is_next);
void lm_clone_busy(struct lm_clone *c);
/* Takes the pages of the least recently used idle clone, or else of that which waits at the end;
 * false when there is none. */
bool lm_evict_one(struct lm *m);

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
/* Room for n ids in all. */
enum status lm_clone_grow(struct lm_clone *c, size_t n, struct error *err) MUST_CHECK;

/* turn.c */
enum status lm_observe(struct clone *c, struct agent_turn *t, struct error *err);
void lm_self_observe(struct clone *c, struct agent_turn *t);
void lm_drop(struct clone *c, struct agent_turn *t);
/* In reserve: the turn takes what others computed of its ids while it waited, and knows what was
 * taken from it meanwhile. */
void lm_turn_returns(struct lm *m, struct agent_turn *turn);

/* score.c */
/* Ids from elsewhere, INVALID if one is none. */
enum status lm_append_ids(const struct lm *m, const int32_t *ids, size_t n, struct buf *out,
                          struct error *err) MUST_CHECK;
/* Takes the texts that the turn is to score behind n_prompt ids. *ret_longest: ids of the longest;
 * 0 when there are none. INVALID: one without a token, or not UTF-8. */
enum status lm_scores_open(struct lm_scoring *out, const struct lm *m, struct agent_turn *turn,
                           size_t n_prompt, size_t *ret_longest, struct error *err) MUST_CHECK;
bool lm_is_scoring(const struct lm_turn *t);
/* Lays the next text behind the prompt; when there is none left, the reply begins. */
void lm_scores_begin(struct lm_clone *c, struct lm_turn *t);
/* So many ids' keys and values need not be computed by this row, all but the last of them. */
uint32_t lm_scores_known(const struct lm_turn *t);
/* Of a row that scores: how many logits its step is to give, and tokens it is to compute for them;
 * n_room > 0. */
size_t lm_scores_lay_out(const struct row *row, size_t n_room, size_t *ret_n_tokens);
enum status lm_scores_take(struct lm *m, struct row *row,
                           const struct llama_row *computed) MUST_CHECK;
void lm_scores_stepped(struct lm *m, struct agent_turn *turn);

/* step.c */
size_t lm_cost(const struct agent *a, const struct row *row);
size_t lm_min_grant(const struct agent *a, const struct row *row);
enum status lm_reserve(struct agent *a, struct row *row, struct error *err);
void lm_release(struct agent *a, struct row *row);
void lm_batch_act(struct agent *a, struct row *const *rows, size_t n);
void lm_stepped(struct agent *a, struct row *row);

#endif
