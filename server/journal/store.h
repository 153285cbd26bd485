/* A journal store keeps records on disk or in a database. A back-end is chosen by its table, struct
 * journal_store_type. One thread at a time uses a store. */
#ifndef SERVER_JOURNAL_STORE_H
#define SERVER_JOURNAL_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/checksum.h"
#include "base/list.h"
#include "base/status.h"

enum { JOURNAL_ID_BYTES = 16, JOURNAL_SECRET_BYTES = 16 };
enum { JOURNAL_DAEMON_CHARS = 17, JOURNAL_ADDRESS_CHARS = 256, JOURNAL_NAME_CHARS = 256 };

/* What a record says. The numbers are stored. A record of an unknown kind stays in the journal, in
 * backups and across changes of the format, and counts in the chain of its conversation. A program
 * that must understand such a record refuses to read on, since a newer version wrote the record. */
enum journal_kind {
    JOURNAL_OPEN = 1,     /* a conversation was opened, or forked from parent at turn */
    JOURNAL_UPDATE = 2,   /* the conversation has other options; replaces the update before */
    JOURNAL_ACCEPT = 3,   /* a turn was accepted: all that the reply's bits depend on */
    JOURNAL_FINISH = 4,   /* the turn's reply, or the part of the reply before it was cut */
    JOURNAL_OBSERVE = 5,  /* a turn that asks for no reply */
    JOURNAL_WITHDRAW = 6, /* the accepted turn failed; its number is free again */
    JOURNAL_REWIND = 7,   /* the conversation was rewound to turn; generation is the new one */
    JOURNAL_CLOSE = 8,    /* the conversation was closed, and cannot be found any more */
    /* Never written as such: what a query by key finds, the key's body of an accepted turn. */
    JOURNAL_KEYED = 9,
    /* Records of parameter sets. The id of a checkpoint stands in place of a conversation's id. */
    JOURNAL_BLOCK = 16,      /* part number turn of a checkpoint; replaces the same part */
    JOURNAL_CHECKPOINT = 17, /* the checkpoint is complete, and replaces its set's one before */
    JOURNAL_NO_PARAMS = 18,  /* the set was deleted, and this checkpoint stays incomplete */
    /* Records of other kept things. generation is the thing's kind. The body and the blocks begin
     * with a sum. */
    JOURNAL_KEEP = 19,   /* the checkpoint has turn blocks, is complete, replaces the one before */
    JOURNAL_FORGET = 20, /* the thing was deleted, and this checkpoint stays incomplete */
    /* Reserved for rooms whose log has a chain; nothing writes these records yet, and rooms are
     * kept as things, entry by entry (server/room/keeping.c). A room's id stands in place of a
     * conversation's id. A room is a log with a chain of its own. generation is 0, and turn is the
     * number of the entry, from 1. */
    JOURNAL_ROOM = 32,        /* a room was opened: world and options; principal is the owner */
    JOURNAL_ROOM_STATE = 33,  /* the room's participants and world; replaces the state before */
    JOURNAL_ROOM_ENTRY = 34,  /* a participant spoke, came or left. The words of an agent are not
                                 stored: the entry has their place (conversation, generation,
                                 turn) */
    JOURNAL_ROOM_REDACT = 35, /* the entry of that number lost its body, and keeps its hash */
    JOURNAL_ROOM_PIN = 36,    /* a conversation must not be deleted before the room */
    JOURNAL_ROOM_CLOSE = 37,  /* the room was closed, and cannot be found any more */
    /* Reserved for adapters of models, which are kept as JOURNAL_KEEP says: the version of the
     * adapter with which a conversation continues from its next turn on. */
    JOURNAL_ADAPT = 48,
};

/* A record that is to be written. The record borrows its texts and bytes. */
struct journal_record {
    enum journal_kind kind;
    uint8_t conversation[JOURNAL_ID_BYTES];
    uint32_t generation, turn;
    uint64_t unix_ms;
    const void *body; /* [size_bytes] */
    size_t size_bytes;
    /* Members of JOURNAL_OPEN. Records with the id of a checkpoint have principal and name, too. */
    const char *principal;  /* the name of the owner */
    const char *request_id; /* NULL: none. No other open conversation of the principal has it */
    const char *name;       /* NULL: none. The conversation that had the name before loses it */
    const char *model;      /* the model's name */
    const uint8_t *parent;  /* [JOURNAL_ID_BYTES] NULL: the conversation is no fork */
    /* Members of JOURNAL_ACCEPT. The turn is found by this key of the principal, as this part of
     * the keyed reply, until the turn is withdrawn or the conversation is closed. The record
     * replaces an earlier record with the same key and part. */
    const char *key; /* NULL: none */
    uint32_t part;
    const void *key_body; /* [key_size_bytes] */
    size_t key_size_bytes;
    /* When the conversation may be closed, if it exists for this turn alone: a later record with a
     * key closes it. 0: the conversation exists for other turns, too. */
    uint64_t key_until_unix_ms;
    /* Keys whose key_until_unix_ms is before this time are over; 0: no key is. */
    uint64_t keys_over_unix_ms;
    /* The owner's epoch under which the conversation, or the kind of things, was read: see struct
     * journal_found. 0: the conversation is not in memory; things are of the last read. */
    uint64_t owner_epoch;
    /* The record and the one behind it in the transaction are stored together, or neither. */
    bool with_next;
    /* A store that several processes share may leave out a record, and what must be stored together
     * with it, because another process has the conversation, the name or the key. It then says so
     * here, and stores the other records. NULL: the transaction fails instead. */
    struct error *refusal;
};

/* A record's place in the chain of its conversation (chain.h). */
struct journal_proof {
    uint64_t seq, gone; /* as in struct chain_link */
    uint8_t content[SHA256_BYTES], chain[SHA256_BYTES];
};

/* A stored record, in one block. */
struct journal_event {
    struct link link;
    uint8_t conversation[JOURNAL_ID_BYTES]; /* an ancestor's, where the record is of one */
    enum journal_kind kind;
    uint32_t generation, turn;
    uint64_t unix_ms;
    struct journal_proof proof; /* of a record of a conversation; else zeroed */
    size_t size_bytes;
    unsigned char body[]; /* [size_bytes] */
};

/* What one process has as a whole, of those that share a store: a place. The numbers are stored;
 * those of kept things are the numbers of their kinds (keeper.h). */
enum journal_place {
    JOURNAL_PLACE_PARAMS = 0, /* parameter sets */
    JOURNAL_PLACE_KEYS = 1,   /* keys of Store */
    JOURNAL_PLACE_TABLES = 2, /* tables of Replay */
    /* 3 is reserved for adapters of models. */
    JOURNAL_PLACE_GROUPS = 4, /* groups of Registry */
    JOURNAL_PLACE_WORK = 5,   /* tasks of Work */
    JOURNAL_PLACE_ROOMS = 6,  /* rooms, and the people of the chat service */
    JOURNAL_N_PLACES = 7
};

/* The kind of the chat service's things, whose place is that of rooms. */
enum { JOURNAL_KIND_SERVICE = 7 };

/* Returns the place of kept things of this kind. */
enum journal_place journal_place_of(uint32_t kind);

/* What a query looks for. */
enum journal_by {
    JOURNAL_BY_ID,       /* the conversation with this id */
    JOURNAL_BY_REQUEST,  /* the conversation that the request with this id opened */
    JOURNAL_BY_NAME,     /* the conversation with this name */
    JOURNAL_CHECKPOINTS, /* the JOURNAL_CHECKPOINT of every parameter set, as events */
    JOURNAL_BLOCKS,      /* one JOURNAL_BLOCK of a checkpoint, as the one event */
    JOURNAL_KEPT,        /* the JOURNAL_KEEP of every thing of kind number, as events */
    JOURNAL_PAGE,        /* rows of the principal's conversations before place, newest first */
    JOURNAL_SWEEP,       /* rows of all conversations behind place, in the order of opening */
    JOURNAL_BY_KEY,      /* the key's parts in order, as events of kind JOURNAL_KEYED */
    JOURNAL_PLACE,       /* the place of this number: found if this process has it, and given to the
                            process that rendezvous hashing chooses if nobody has it */
};

struct journal_query {
    enum journal_by by;
    const char *principal; /* the owner's name; NULL for queries about all owners */
    uint8_t id[JOURNAL_ID_BYTES];
    uint32_t number;  /* the number of a block or of a place, or a kind of things */
    const char *text; /* the request's id, the name or the key; of JOURNAL_PAGE the model's name,
                         where NULL stands for any model */
    uint64_t place;   /* of rows: the place of the last row of the page before */
    uint32_t max_rows;
    bool wants_total; /* of JOURNAL_PAGE: the number of rows on all pages is wanted */
    /* Of a query for a conversation or a place: while another process has it that can be asked, the
     * query ends at once and says which process that is. */
    bool wants_owner;
    /* Of JOURNAL_BY_ID: a conversation that another process has is not found, and that process is
     * not asked for it. Of JOURNAL_PLACE: a place that no process ever had is given to nobody. */
    bool is_sweep;
    /* Of a query for a conversation: the events are all records of its chain, also those that are
     * no part of the conversation any more. */
    bool wants_chain;
};

/* A process that shares the store, and where the others reach it. */
struct journal_peer {
    char id[JOURNAL_DAEMON_CHARS];       /* "": there is none */
    char address[JOURNAL_ADDRESS_CHARS]; /* of its gRPC; "": it cannot be reached */
};

/* A summary of an open conversation, in one block. */
struct journal_row {
    struct link link;
    uint8_t id[JOURNAL_ID_BYTES], parent[JOURNAL_ID_BYTES];
    bool has_parent;
    uint64_t place; /* in the order of the query */
    uint32_t generation, turns;
    uint64_t opened_unix_ms;
    uint64_t last_unix_ms; /* the time of the last turn's record */
    uint64_t last_seq;     /* the last turn's place in the order of writing, from 1 */
    size_t size_bytes;
    unsigned char body[]; /* [size_bytes] the body of JOURNAL_OPEN, or of the update behind it */
};

/* What a query has found. Of one conversation these are all its events in order: first the events
 * of its first ancestor, from JOURNAL_OPEN to the fork, then those of the next ancestor, and so on
 * to the conversation's own. */
struct journal_found {
    bool is_found;
    uint8_t id[JOURNAL_ID_BYTES];
    bool has_parent;
    uint8_t parent[JOURNAL_ID_BYTES];
    char *request_id; /* NULL: none */
    struct list events, rows;
    size_t size_bytes; /* the size of events and rows */
    uint64_t n_total;  /* the number of rows on all pages, if the query wants it */
    bool has_more;     /* there are rows behind the found ones */
    /* Of a read that was UNAVAILABLE: another process has what was asked for, which may pass. */
    bool is_elsewhere;
    struct journal_peer owner; /* that process, if the query wants it and it can be reached */
    uint64_t store_bytes;      /* of JOURNAL_SWEEP: what the store takes on disk */
    /* Where the store continues to read. NULL: everything has been read, or nothing yet. One block,
     * which journal_found_deinit frees. */
    void *reading;
    /* Of a place and of JOURNAL_KEPT, rises whenever another process gets the place. Of a
     * conversation, rises whenever another process, or another connection of this one, takes the
     * conversation over. A record that names an earlier epoch is not stored. In SQLite 1 of a
     * conversation, and else 0, which no other process raises. */
    uint64_t owner_epoch;
};

void journal_found_init(struct journal_found *f);
/* Frees what was found; f is then as after journal_found_init. */
void journal_found_deinit(struct journal_found *f);
/* Appends an event with what a record says. EXHAUSTED if the events then have more than max_bytes.
 */
enum status journal_found_take(struct journal_found *f, const struct journal_record *r,
                               size_t max_bytes, struct error *err) MUST_CHECK;
/* Appends an event with room for a body of size_bytes. EXHAUSTED. */
enum status journal_found_add(struct journal_event **out, struct journal_found *f,
                              size_t size_bytes, struct error *err) MUST_CHECK;

/* Bodies and blocks of JOURNAL_KEEP begin with the crc32c of the bytes that follow the sum.
 * size_bytes counts the sum, too, and is at least JOURNAL_SUM_BYTES. */
enum { JOURNAL_SUM_BYTES = 4 };
void journal_put_sum(void *bytes, size_t size_bytes);
bool journal_sum_is_right(const void *bytes, size_t size_bytes);

/* About so many bytes of a conversation are read at a time. */
enum { JOURNAL_SLICE_BYTES = 1 << 20 };

/* A rate of a principal that processes share: a bucket that empties by limit a microsecond, so that
 * a minute's worth is 60,000,000 times limit. Each process has a slice of what is left. */
struct journal_rate {
    const char *principal;
    uint32_t kind, limit;
    uint64_t spent;       /* by this process since it told last */
    uint64_t wanted;      /* the slice is to be at least this, if so much is left */
    uint64_t used, slice; /* the answer: by all processes, what is told included; for this one */
};

/* Each back-end has a struct of its own, whose first member is a struct journal_store. */
struct journal_store;
struct journal_members;

struct journal_store_type {
    const char *name;
    /* dir is a folder, or what else names the store. Returns whether dir has a store that was
     * opened before. */
    bool (*is_there)(const char *dir);
    /* Checks whether open could use dir, and changes nothing. PRECONDITION if a newer version wrote
     * the store, or this user may not write the store. Another process may have dir open. */
    enum status (*look)(const char *dir, struct error *err);
    /* Opens the store in dir. PRECONDITION while another process has dir open. */
    enum status (*open)(struct journal_store **out, const char *dir, struct error *err);
    void (*close)(struct journal_store *s);
    /* Writes all records in one transaction, which is durable when commit returns OK. On failure no
     * record is stored; but if the write itself failed, it is unknown whether all are stored or
     * none. The store may be used again, and then says what it has. With n of 0 the store writes
     * something that changes nothing, to find out whether it can write. */
    enum status (*commit)(struct journal_store *s, const struct journal_record *const *records,
                          size_t n, struct error *err);
    /* Answers the query into out, which is initialised. If nothing matches, read returns OK and
     * leaves is_found false. EXHAUSTED if the events have more than max_bytes; DATA_LOSS if the
     * events are not those that were written. read takes about JOURNAL_SLICE_BYTES of a
     * conversation at a time: as long as out has a reading, the caller calls read again, and may
     * commit in between. */
    enum status (*read)(struct journal_store *s, const struct journal_query *q, size_t max_bytes,
                        struct journal_found *out, struct error *err);
    /* Copies everything that is committed in dir to a new file. Another process may have dir open.
     */
    enum status (*backup)(const char *dir, const char *path, struct error *err);
    /* Checks everything that is stored, and counts it. On failure the error says what is damaged.
     */
    enum status (*check)(struct journal_store *s, uint64_t *ret_conversations, uint64_t *ret_turns,
                         struct error *err);
    /* Renews the lease with which this process has its conversations, once a third of lease_ms has
     * passed, and finds out which of them another process asks for: see wanted. NULL: one process
     * alone uses the store. */
    enum status (*beat)(struct journal_store *s, struct error *err);
    /* Gives a conversation up, whose records are all committed: who asks for it next has it. If
     * is_unended, it has a turn that did not end, and another process goes on with it unasked. */
    enum status (*give)(struct journal_store *s, const uint8_t *id, bool is_unended,
                        struct error *err);
    /* Tells what this process has used of rates, and gets its next slices. NULL: one process alone
     * uses the store. */
    enum status (*lend)(struct journal_store *s, struct journal_rate *rows, size_t n,
                        struct error *err);
    /* Finds the processes that share the store. NULL: one process alone uses the store. */
    enum status (*list)(struct journal_store *s, struct journal_members *out, struct error *err);
};

enum { JOURNAL_MAX_WANTED = 64, JOURNAL_MAX_SWEPT = 64, JOURNAL_MAX_MEMBERS = 256 };

/* A conversation that no process has, with a turn that did not end. */
struct journal_orphan {
    uint8_t id[JOURNAL_ID_BYTES];
    char principal[JOURNAL_NAME_CHARS];
};

/* A process that shares the store, as the store knows it. */
struct journal_member {
    struct journal_peer peer;
    char name[JOURNAL_NAME_CHARS]; /* host and process */
    int64_t lease_ms;              /* of its lease that are left; below 0: it is over */
    uint64_t lag_ms;               /* as in struct journal_store */
    uint32_t places;               /* a bit of each place that it has */
    uint64_t up_ms;                /* since its lease began */
    uint64_t n_conversations;      /* that it owns */
    bool is_self;
};

struct journal_members {
    size_t n;
    struct journal_member rows[JOURNAL_MAX_MEMBERS]; /* [n] */
    uint64_t n_free;                                 /* conversations that no process owns */
};

struct journal_store {
    const struct journal_store_type *type;
    uint8_t secret[JOURNAL_SECRET_BYTES]; /* random bytes, drawn when the store was made */
    bool is_read_only; /* the store could be opened for reading alone; a commit tries again */
    /* Without beat for this time the process loses its conversations to others that ask for them.
     * May be set after open. */
    uint32_t lease_ms;
    uint64_t renewed_us; /* of env_real: when the last renewal of the lease that succeeded began */
    uint8_t wanted[JOURNAL_MAX_WANTED][JOURNAL_ID_BYTES]; /* [n_wanted] of the last beat */
    size_t n_wanted;
    /* What the beat says of this process, and what it looks for: set between two uses. */
    char address[JOURNAL_ADDRESS_CHARS]; /* where others reach it; "": they cannot */
    uint64_t lag_ms;                     /* the longest wait of a record to be durable lately */
    bool is_sweeping;                    /* it goes on with turns of processes that ended */
    /* What the last beat found. */
    char self[JOURNAL_DAEMON_CHARS]; /* this process's id; set by open */
    /* An older process that has renewed its lease and has the same address: its name. "": there is
     * none. While the lease of such a process lasts, this one's address counts as "". */
    char address_of[JOURNAL_NAME_CHARS];
    size_t n_others;                                  /* processes that live, beside this one */
    struct journal_peer others[JOURNAL_MAX_MEMBERS];  /* of those as many as fit */
    struct journal_orphan orphans[JOURNAL_MAX_SWEPT]; /* [n_orphans] */
    size_t n_orphans;
};

extern const struct journal_store_type journal_sqlite;

#endif
