/* A turn that is complete: what was asked, what was answered. Records never change; they form a
 * chain from the newest back, which forks share. */
#ifndef SERVER_RECORD_H
#define SERVER_RECORD_H

#include "agents/agent.h"
#include "server/sampling_patch.h"

/* What a turn asks, in the caller's words. One block, which also holds the texts. Two requests
 * with equal bodies are the same request. */
struct body {
    struct sampling_patch *patch; /* NULL: nothing given */
    uint32_t n_logprobs;          /* 0: none asked for */
    bool is_plain;                /* no chat: as observation's */
    const int32_t *plain_ids;     /* [n_plain_ids] */
    size_t n_plain_ids;
    uint32_t n_messages;
    size_t size_bytes;         /* of all of it */
    struct message messages[]; /* [n_messages] */
};

struct turn_request {
    uint32_t number;                /* 0: the next */
    const struct message *messages; /* [n_messages] */
    size_t n_messages;
    bool is_plain;            /* the texts, or the ids, are continued as they are */
    const int32_t *plain_ids; /* [n_plain_ids]; raw, and there are no messages */
    size_t n_plain_ids;
    const struct sampling_patch *patch; /* may be NULL */
    uint32_t n_logprobs;
    uint64_t deadline_us; /* 0: none */
};

enum status body_open(struct body **out, const struct turn_request *r,
                      struct error *err) MUST_CHECK;
void body_close(struct body *b);
bool body_is_of(const struct body *b, const struct turn_request *r);

struct usage {
    uint32_t n_prompt, n_cached, n_completion; /* tokens */
};

struct timings {
    uint64_t queue_us;   /* accepted until the first step */
    uint64_t prefill_us; /* first step until the first token, or the end where there are none */
    uint64_t decode_us;  /* first token until the last */
    uint64_t total_us;
    uint32_t n_steps;
};

/* A token of a reply, without what it costs to say how likely it was. */
struct said_token {
    int32_t id;
    uint32_t text_end; /* length of the reply's text once this token's text is out */
};

struct said_logprob {
    float logprob;
    uint32_t tops_end; /* its alternatives end here in tops, and begin where the last one's end */
};

struct record {
    size_t n_refs;
    struct record *before; /* the turn before, shared */
    uint32_t number;
    enum finish finish;
    struct usage usage;
    struct timings timings;
    struct body *body;
    char *text; /* NUL-ended */
    size_t len;
    struct said_token *tokens; /* [n_tokens] */
    size_t n_tokens;
    struct said_logprob *logprobs; /* [n_tokens], NULL unless asked for */
    struct top_logprob *tops;
    size_t total_bytes; /* of this record and all before it */
};

/* Copies the reply; takes before and body, on success alone. */
enum status record_open(struct record **out, struct record *before, struct body *body,
                        const struct reply *reply, struct error *err) MUST_CHECK;
struct record *record_ref(struct record *r);
/* r may be NULL. */
void record_unref(struct record *r);

/* The record of a turn, NULL if the chain does not reach it. newest may be NULL. */
struct record *record_find(struct record *newest, uint32_t number);

#endif
