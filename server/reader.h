/* Who reads a turn: a cursor over what its reply has so far, or over its record. Readers are woken
 * when there is more and pull it when they have room; nothing is kept for one of them. Loop. */
#ifndef SERVER_READER_H
#define SERVER_READER_H

#include "agents/agent.h"
#include "server/record.h"

struct turn;

enum event_kind { EVENT_ACCEPTED, EVENT_PROGRESS, EVENT_PIECE, EVENT_DONE, EVENT_FAILED };

/* Most of a piece: what a message may hold is bounded. */
enum { PIECE_MAX_BYTES = 64 << 10, PIECE_MAX_TOKENS = 4096, PIECE_MAX_TOPS = 16 << 10 };

struct piece_token {
    int32_t id;
    float logprob;
    const struct top_logprob *tops; /* [n_tops] */
    size_t n_tops;
};

struct turn_event {
    enum event_kind kind;
    uint32_t number;
    uint32_t n_prompt, n_cached; /* accepted */
    uint32_t n_done, n_total;    /* progress: tokens of the prompt */
    struct {
        const char *text; /* [len]; valid until control returns to the loop */
        size_t len;
        size_t first_token, n_tokens; /* reader_token tells each */
        bool has_logprobs;
    } piece;
    enum finish finish;
    struct usage usage;
    struct timings timings;
    const struct error *err; /* failed: the reader's */
};

/* One who reads a turn. The caller's memory. After EVENT_DONE or EVENT_FAILED there is no more. */
struct reader {
    struct link link;      /* of the turn's readers */
    struct turn *turn;     /* while it lives */
    struct record *record; /* once it is complete; a reference */
    void (*wake)(void *arg);
    void *arg;
    uint64_t deadline_us; /* 0: none */
    size_t text_at, token_at;
    uint32_t progress_at;
    bool has_accepted, is_over;
    struct error err; /* of a turn that failed */
};

/* wake: something new can be read; called from inside other calls of the domain, so it only notes
 * it. */
void reader_init(struct reader *r, void (*wake)(void *arg), void *arg);

/* False: nothing now; wake will be called. */
bool reader_next(struct reader *r, struct turn_event *out);
/* True if reader_next has something. */
bool reader_has_more(const struct reader *r);
/* A token of the piece that reader_next has just given. */
void reader_token(const struct reader *r, const struct turn_event *piece, size_t i,
                  struct piece_token *out);

/* Reads no more. When it was the last one of a turn that runs, that ends: as deadline if why is
 * STATUS_DEADLINE, else as cancelled. */
void reader_close(struct reader *r, enum status why);

#endif
