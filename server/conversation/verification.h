/* A verification computes the turns of a conversation's records again, and compares the replies
 * with those that were recorded. A turn is computed as it was the first time: with the recorded
 * request, sampling and seed, behind the turns that were recorded before it. Since the recorded
 * reply is the turn's prediction, the same reply takes a fraction of the steps, and the sampler,
 * the constraint and the parser decide as they did. The conversation that is computed exists for
 * the verification alone. All functions are called on the loop. */
#ifndef SERVER_CONVERSATION_VERIFICATION_H
#define SERVER_CONVERSATION_VERIFICATION_H

#include "server/conversation/conversations.h"
#include "server/journal/store.h"

struct verification;

enum verdict {
    VERDICT_SAME,      /* what was recorded was computed again, bit for bit */
    VERDICT_DIFFERS,   /* something else was computed, or the record contradicts itself */
    VERDICT_UNCHECKED, /* it could not be computed here */
    VERDICT_SKIPPED,   /* it was not asked for */
};

/* The first token of a reply that was computed otherwise. */
struct verified_difference {
    bool has_tokens;               /* the members below are known */
    uint32_t index;                /* from 0 */
    int32_t recorded, computed;    /* token ids; -1: the reply has ended */
    const struct top_logprob *top; /* [n_top] the likeliest there, most likely first */
    size_t n_top;
    float computed_logprob;    /* natural, of the model's distribution; with n_top alone */
    const char *recorded_text; /* [recorded_len] the recorded token's, with changes; else NULL */
    size_t recorded_len;
    bool has_kl;
    double kl; /* in nats, from the recorded to the computed distribution, over the likeliest */
};

/* A turn that was recorded as ended. */
struct verified_turn {
    size_t record;       /* the place of its reply among the records, from 0 */
    uint32_t turn;       /* its number */
    uint32_t n_tokens;   /* of the recorded reply */
    uint32_t n_compared; /* of these, the tokens that were computed again and are the same */
    enum verdict verdict;
    const char *why; /* "" of VERDICT_SAME and VERDICT_SKIPPED */
    struct verified_difference difference;
    struct completed_turn *recorded; /* the turn as it was recorded; NULL: it could not be read */
    /* With changes. */
    struct completed_turn *computed; /* of VERDICT_DIFFERS; may be NULL */
    uint32_t n_computed;             /* tokens of the new reply */
    bool has_other_logprobs;         /* of the tokens that are the same */
    bool is_behind_new;              /* a turn before it has a new reply */
};

/* What is computed otherwise than recorded. */
struct verification_changes {
    bool has_system;
    struct text system;
    const struct sampling_overrides *sampling; /* NULL: none */
    bool has_tools;
    struct tool_use tools;
    const struct constraint *constraint; /* of forced tools; NULL: none */
    bool goes_on; /* later turns stand behind new replies, and not behind the recorded ones */
};

struct verification_request {
    uint32_t principal; /* who asks, and whose quota counts */
    const char *owner;  /* the name of whom the records say that the conversation is */
    struct models *models;
    const char *model;    /* computes in place of the recorded model; "": the recorded one */
    bool is_forced;       /* computes even if the model, engine or arithmetic is another */
    const uint32_t *only; /* [n_only] rising: the records whose turns are computed; NULL: all */
    size_t n_only;
    /* NULL: none. With changes any model computes, and a reply is the same if its text is, and how
     * it ended; a reply that differs is computed to its end. */
    const struct verification_changes *changes;
};

/* Begins. found has the records of one conversation, as a query with wants_chain finds them; the
 * events are taken on success. They may be anybody's bytes. request is borrowed until
 * verification_close. notify is called when verification_advance may have something to do; since it
 * is called inside other functions of the domain, it only notes the fact. EXHAUSTED. */
enum status verification_open(struct verification **out, struct conversations *all,
                              const struct verification_request *r, struct journal_found *found,
                              void (*notify)(void *arg), void *arg, struct error *err) MUST_CHECK;
/* Ends the turn in flight and frees v with its results. NULL is fine. */
void verification_close(struct verification *v);

/* Goes on, until it waits, is done, or others should have their turn; then it notifies. EXHAUSTED
 * and UNAVAILABLE among others. After a failure only verification_close may follow; a turn that
 * differs or cannot be computed is no failure. */
enum status verification_advance(struct verification *v, bool *ret_is_done,
                                 struct error *err) MUST_CHECK;

/* What was found so far; valid until verification_close. */
const struct verified_turn *verification_turns(const struct verification *v, size_t *ret_n);
/* What is wrong with the chain of the records, and with which of them, from 0; NULL: nothing is.
 * As the next two known once verification_advance is done. */
const char *verification_chain_problem(const struct verification *v, size_t *ret_record);
/* The value of the chain behind the last record, [SHA256_BYTES]. */
const uint8_t *verification_chain(const struct verification *v);
/* The model that computes; NULL: none can. */
const struct model *verification_model(const struct verification *v);
/* The records, in order. */
const struct list *verification_records(const struct verification *v);

#endif
