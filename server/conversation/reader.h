/* A reader is a cursor over the reply of a turn. While the turn runs the reader reads the part of
 * the reply that is there, and afterwards the completed turn. A reader is notified when there is
 * more, and its owner pulls events when it can write; nothing is buffered for a reader. All
 * functions are called on the loop. */
#ifndef SERVER_CONVERSATION_READER_H
#define SERVER_CONVERSATION_READER_H

#include "agents/agent.h"
#include "server/conversation/turn.h"

enum event_kind { EVENT_ACCEPTED, EVENT_PROGRESS, EVENT_PIECE, EVENT_DONE, EVENT_FAILED };

/* Bounds of a piece: they bound the size of a message. */
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
    uint32_t generation;         /* accepted: of the conversation */
    uint32_t n_prompt, n_cached; /* accepted */
    uint32_t n_done, n_total;    /* progress: tokens of the prompt */
    struct {
        const char *text; /* [len]; valid until control returns to the loop */
        size_t len;
        size_t first_token, n_tokens; /* reader_token reads each */
        uint64_t next_index;          /* of the cursor behind the piece */
        bool has_logprobs;
    } piece;
    enum finish finish;
    struct usage usage;
    struct timings timings;
    const struct error *err; /* failed: the reader's */
};

/* Moves a reader that was just attached, so that it reads on behind this index (decided by the
 * turn's tokens alone: one per token, and one more for text that is released at the end, which is
 * also the only index of a reply without tokens). STATUS_RANGE if the reply has no such place yet;
 * but of a turn that is computed again after a restart, the reader waits for the place. */
enum status reader_seek(struct turn_reader *r, uint64_t index, struct error *err) MUST_CHECK;

/* The index of the cursor behind what was read; after a failed reader_seek, of the end so far. */
uint64_t reader_index(const struct turn_reader *r);

/* Makes a reader. notify is called when something new can be read. Since the call comes inside
 * other functions of the domain, notify only notes the fact. */
void reader_init(struct turn_reader *r, void (*notify)(void *arg), void *arg);

/* Takes the next event. Returns false if there is none now; then notify will be called. */
bool reader_next(struct turn_reader *r, struct turn_event *out);
/* Returns whether reader_next would return an event. */
bool reader_has_more(const struct turn_reader *r);
/* Reads a token of the piece that the last reader_next returned. */
void reader_token(const struct turn_reader *r, const struct turn_event *piece, size_t i,
                  struct piece_token *out);

/* Whether the text of this token, [len] bytes, begins at this byte of the reply so far; reader is a
 * struct turn_reader. See struct reply_places. */
bool reader_has_token(const void *reader, int32_t id, size_t at, size_t len);

/* Returns the prompt's tokens with their log-probabilities, [*ret_n]; NULL until they are known.
 * Valid until control returns to the loop. */
const struct prompt_token *reader_prompt(const struct turn_reader *r, size_t *ret_n);

/* Returns the prompt's token ids, [*ret_n], if the turn wants them; NULL before its prompt is
 * known, and where the turn was read from the journal. Valid until control returns to the loop. */
const int32_t *reader_prompt_ids(const struct turn_reader *r, size_t *ret_n);

/* Returns why the turn, which has ended, failed; NULL if it did not fail. */
const struct error *reader_failure(const struct turn_reader *r);

/* Ends the turn as cancelled. All readers of the turn get this end. Does nothing if the turn has
 * ended. */
void reader_cancel(struct turn_reader *r);

/* Stops reading. A running turn without readers ends: with FINISH_DEADLINE if why is
 * STATUS_DEADLINE, else as cancelled. A turn that can be asked for again lingers first, see struct
 * turn_config. */
void reader_close(struct turn_reader *r, enum status why);

#endif
