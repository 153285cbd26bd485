/* What keeps a journal: a back-end, chosen by its table. One thread at a time uses a store. */
#ifndef SERVER_JOURNAL_STORE_H
#define SERVER_JOURNAL_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "base/status.h"

enum { JOURNAL_ID_BYTES = 16, JOURNAL_SECRET_BYTES = 16 };

/* What happened to a conversation. The numbers are stored. A kind that is not known stays where it
 * is, also in a backup and when the format changes, and counts in the chain; whoever is to read it
 * refuses: it is of a newer version. */
enum journal_kind {
    JOURNAL_OPEN = 1,     /* it was opened, or forked from parent at turn */
    JOURNAL_UPDATE = 2,   /* its options are others; replaces the update before */
    JOURNAL_ACCEPT = 3,   /* a turn was accepted: all that its bits depend on */
    JOURNAL_FINISH = 4,   /* the turn's reply, or where it was cut */
    JOURNAL_OBSERVE = 5,  /* a turn that asks for no reply */
    JOURNAL_WITHDRAW = 6, /* the accepted turn failed; its number is free again */
    JOURNAL_REWIND = 7,   /* to turn; generation is the new one */
    JOURNAL_CLOSE = 8,    /* it is found no more */
    JOURNAL_KEYED = 9,    /* of what is found by a key alone: the key's body of an accepted turn */
    /* Of sets of parameters, whose checkpoints have ids in place of a conversation's. */
    JOURNAL_BLOCK = 16,      /* a part of a checkpoint, turn its number; replaces the same part */
    JOURNAL_CHECKPOINT = 17, /* all its parts are there: it replaces the one before of its set */
    JOURNAL_NO_PARAMS = 18,  /* the set was deleted, and this checkpoint is not completed */
    /* Of things of other kinds, which are generation: its body and blocks begin with a sum. */
    JOURNAL_KEEP = 19,   /* all turn blocks are there: it replaces the one before of its thing */
    JOURNAL_FORGET = 20, /* the thing was deleted, and this checkpoint is not completed */
    /* Reserved for rooms, whose ids stand where a conversation's do: a log with a chain of its own,
     * generation 0, turn the entry's number from 1 on. Nothing writes them yet. */
    JOURNAL_ROOM = 32,       /* it was opened: its world and options; principal its owner */
    JOURNAL_ROOM_STATE = 33, /* its participants and its world; replaces the state before */
    JOURNAL_ROOM_ENTRY = 34, /* what was said, who came and left. Of an agent's words: the place
                                (conversation, generation, turn) where they are, not the words */
    JOURNAL_ROOM_REDACT =
        35,                /* the body of the entry with that number is taken away, not its hash */
    JOURNAL_ROOM_PIN = 36, /* a conversation is not deleted before the room is */
    JOURNAL_ROOM_CLOSE = 37, /* it is found no more */
    /* Reserved for adapters of models, which are kept as a whole (as JOURNAL_KEEP): which version a
     * conversation goes on with, from its next turn on. */
    JOURNAL_ADAPT = 48,
};

/* Texts and bytes are borrowed. */
struct journal_record {
    enum journal_kind kind;
    uint8_t conversation[JOURNAL_ID_BYTES];
    uint32_t generation, turn;
    uint64_t unix_ms;
    const void *body; /* [size_bytes] */
    size_t size_bytes;
    /* Of JOURNAL_OPEN; principal and name also of what has a checkpoint's id. */
    const char *principal; /* its name */
    const char
        *request_id;       /* NULL: none; else no other open conversation of the principal has it */
    const char *name;      /* NULL: none; else taken from the conversation that had it */
    const char *model;     /* of JOURNAL_OPEN: its name */
    const uint8_t *parent; /* [JOURNAL_ID_BYTES] NULL: none */
    /* Of JOURNAL_ACCEPT: the turn is found by this key of the principal, as this part of what the
     * key has, until it is withdrawn or its conversation closed. Replaces the same part. */
    const char *key; /* NULL: none */
    uint32_t part;
    const void *key_body; /* [key_size_bytes] */
    size_t key_size_bytes;
    /* The conversation is for this turn alone: it is closed some time after, by a later record with
     * a key. 0: it is not. */
    uint64_t key_until_unix_ms;
    uint64_t
        keys_over_unix_ms; /* of a record with a key: those until before this are over; 0: none */
};

/* A stored record, one block. */
struct journal_event {
    struct link link;
    enum journal_kind kind;
    uint32_t generation, turn;
    uint64_t unix_ms;
    size_t size_bytes;
    unsigned char body[]; /* [size_bytes] */
};

enum journal_by {
    JOURNAL_BY_ID,
    JOURNAL_BY_REQUEST,
    JOURNAL_BY_NAME,
    JOURNAL_CHECKPOINTS, /* the events are JOURNAL_CHECKPOINT, of all sets of parameters */
    JOURNAL_BLOCKS,      /* the one event is a checkpoint's JOURNAL_BLOCK */
    JOURNAL_KEPT,        /* the events are JOURNAL_KEEP, of all things of a kind, which is number */
    JOURNAL_PAGE,        /* rows of the principal's, newest first, those before place */
    JOURNAL_SWEEP,       /* rows of all there are, those behind place */
    JOURNAL_BY_KEY,      /* the events are JOURNAL_KEYED, of the key's parts in order */
};

struct journal_query {
    enum journal_by by;
    const char *principal; /* whose it must be, by name; NULL where by says all */
    uint8_t id[JOURNAL_ID_BYTES];
    uint32_t number;  /* of a block, or a kind */
    const char *text; /* the request's id, the name, or the key; of a page the model's, NULL: any */
    uint64_t place;   /* of rows: the last one's of the page before */
    uint32_t max_rows;
    bool wants_total;
};

/* An open conversation in short, one block. */
struct journal_row {
    struct link link;
    uint8_t id[JOURNAL_ID_BYTES], parent[JOURNAL_ID_BYTES];
    bool has_parent;
    uint64_t place; /* in the order of the query */
    uint32_t generation, turns;
    uint64_t opened_unix_ms, last_unix_ms; /* last: of its last turn */
    uint64_t last_seq;                     /* of that, in the order of writing, from 1 */
    size_t size_bytes;
    unsigned char body[]; /* [size_bytes] of JOURNAL_OPEN, or the update behind it */
};

/* An open conversation with all that happened to it, in order: to the first of its parents, from
 * JOURNAL_OPEN until the fork, then to the next one, and so on. */
struct journal_found {
    bool is_found;
    uint8_t id[JOURNAL_ID_BYTES];
    bool has_parent;
    uint8_t parent[JOURNAL_ID_BYTES];
    char *request_id; /* NULL: none */
    struct list events, rows;
    size_t size_bytes;    /* of both */
    uint64_t n_total;     /* rows of all pages, if it was wanted */
    bool has_more;        /* rows beyond those */
    uint64_t store_bytes; /* that the store takes, of JOURNAL_SWEEP */
    /* Where the store is to go on; NULL: all is read, or nothing yet. A block, freed with it. */
    struct journal_reading *reading;
};

void journal_found_init(struct journal_found *f);
void journal_found_deinit(struct journal_found *f); /* as after journal_found_init */
/* Appends an event with room for its body. */
enum status journal_found_add(struct journal_event **out, struct journal_found *f,
                              size_t size_bytes, struct error *err) MUST_CHECK;

/* The crc32c of what follows stands in the first bytes of what is kept. */
enum { JOURNAL_SUM_BYTES = 4 };
void journal_put_sum(void *bytes, size_t size_bytes); /* at least JOURNAL_SUM_BYTES */
bool journal_sum_is_right(const void *bytes, size_t size_bytes);

enum { JOURNAL_SLICE_BYTES = 1 << 20 };

struct journal_store; /* a back-end's own, whose first member is its type */

struct journal_store_type {
    const char *name;
    bool (*is_there)(const char *dir); /* whether one has been opened there before */
    /* PRECONDITION where open could not use what is in dir, such as what a newer version wrote or
     * another user may not write. Changes nothing, also while another process has dir open. */
    enum status (*look)(const char *dir, struct error *err);
    /* PRECONDITION while another process has dir open. */
    enum status (*open)(struct journal_store **out, const char *dir, struct error *err);
    void (*close)(struct journal_store *s);
    /* All or none, durable when it returns OK. On failure none is, or, if writing failed, all may
     * be: it is unknown. The store may be used again, and then tells what there is. n 0: something
     * is written that changes nothing, to see whether it can be. */
    enum status (*commit)(struct journal_store *s, const struct journal_record *const *records,
                          size_t n, struct error *err);
    /* out is initialised; OK and not is_found where there is none. EXHAUSTED where its events have
     * more than max_bytes; DATA_LOSS where they are not those that were written. Of a conversation
     * about JOURNAL_SLICE_BYTES are read at a time: as long as out has a reading it is called
     * again, with whatever was committed in between. */
    enum status (*read)(struct journal_store *s, const struct journal_query *q, size_t max_bytes,
                        struct journal_found *out, struct error *err);
    /* Copies what is committed in dir to a new file, also while another process has dir open. */
    enum status (*backup)(const char *dir, const char *path, struct error *err);
    /* Whether all that is stored is sound; on failure the error says what is not. */
    enum status (*check)(struct journal_store *s, uint64_t *ret_conversations, uint64_t *ret_turns,
                         struct error *err);
};

struct journal_store {
    const struct journal_store_type *type;
    uint8_t secret[JOURNAL_SECRET_BYTES]; /* random, drawn with the store */
    bool is_read_only; /* it could be opened, but not to be written; a commit tries again */
};

extern const struct journal_store_type journal_sqlite;

#endif
