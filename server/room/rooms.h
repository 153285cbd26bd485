/* A room is an append-only log that people and agents read and write together. Whoever sees it has
 * a place in the log, a cursor, so a slow reader costs no buffer; what only matters now, presence
 * and typing, is a state that readers catch up with. A person comes back with a token after a lost
 * connection, and misses nothing. A room ends with its last person. All
 * functions are called on the loop. */
#ifndef SERVER_ROOM_ROOMS_H
#define SERVER_ROOM_ROOMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/checksum.h"
#include "base/hash.h"
#include "base/list.h"
#include "base/shared_limit.h"
#include "base/status.h"
#include "server/journal/journal.h"

struct alarm;
struct buf;
struct conversation_id;
struct conversations;
struct env;
struct models;
struct principal;
struct room;
struct room_agent;
struct room_person;
struct room_reader;
struct room_write;
struct rooms_restore;

enum {
    ROOM_NAME_MAX_BYTES = 128,
    ROOM_PERSON_MAX_CHARS = 32, /* of a display name */
    ROOM_PERSON_MAX_BYTES = 4 * ROOM_PERSON_MAX_CHARS,
    ROOM_ID_CHARS = 16,
    ROOM_TOKEN_CHARS = 32,
    ROOM_CONVERSATION_CHARS = 32,
    ROOM_TEXT_MAX_BYTES = 16 << 10,
    ROOM_MAX_QUICK_REPLIES = 16,
    ROOM_QUICK_REPLY_MAX_CHARS = 64,
    ROOM_MAX_MEMBERS = 64,
    ROOM_MAX_AGENTS = 4,
    ROOM_MAX_CHAIN = 4,              /* answers of agents to agents, without a person between */
    ROOM_HEARD_MAX_BYTES = 64 << 10, /* of texts that an agent hears at once; the oldest go */
    ROOM_PIECE_MAX_BYTES = 16 << 10,
    ROOM_ANSWER_MAX_BYTES = 128 << 10, /* of an agent: as JSON six times as much, in one frame */
    ROOM_RETRY_MS = 1000,              /* between attempts to write */
    ROOM_MAX_ENTRIES = 1000,           /* a longer log loses its oldest */
    ROOMS_OF_A_PERSON = 16,
    ROOM_READERS_OF_A_PERSON = 16, /* connections */
    ROOM_CURSORS_OF_A_READER = 32, /* rooms that it reads, and ends of rooms that it has not read */
    ROOM_ACKS_OF_A_READER = 64,
    ROOMS_MAX = 10000,
    ROOMS_MAX_PEOPLE = 20000,
    ROOMS_MAX_BYTES = 256 << 20, /* of all logs */
    ROOM_ACTS_PER_S = 5,         /* says, joins and changes of typing, of a person */
    ROOM_ACTS_AT_ONCE = 20,
    ROOM_GRACE_MS = 120 * 1000,
};

enum room_kind { ROOM_PERSON, ROOM_AGENT };

/* Where rooms are kept. */
struct rooms_keeping {
    struct journal *journal; /* NULL: rooms are only in memory */
    const char *(*principal_name)(void *self, uint32_t principal);
    /* NULL: there is none of this name. */
    const struct principal *(*find_principal)(void *self, const char *name);
    /* The journal's rooms were read under this epoch. Returns whether that holds; if not,
     * rooms_leave was called inside. */
    bool (*arrived)(void *self, uint64_t epoch);
    void *self;
};

struct rooms {
    const struct env *env;
    uint64_t (*unix_ms)(void); /* the wall clock */
    struct alarm *alarm;       /* rings rooms_tick */
    struct hash by_name;       /* of struct room, by principal and name */
    struct hash by_pin;        /* of struct room_pin */
    struct hash by_token;      /* of struct room_person, by the hash of its token */
    struct sha256 *sha256;     /* NULL: not used yet */
    struct list away;          /* of struct room_person: the first is gone first */
    struct shared_limit n_rooms, n_people, bytes;
    size_t n_readers;
    uint64_t n_said; /* entries of all rooms that people have written */
    /* Where agents' conversations are; NULL: no agent can be invited. */
    struct conversations *conversations;
    struct models *models;
    struct list notified;  /* of struct room_agent: it is to answer, or has said something */
    struct list answering; /* of struct room_agent */
    struct list sleeping;  /* of struct room_agent: its model is not loaded yet */
    uint64_t n_begun, n_answers;
    struct rooms_keeping keeping;
    struct rooms_restore *restore; /* NULL: all that the journal has is read */
    uint64_t epoch;                /* the journal's, under which it was read */
    struct list failing;           /* of struct room: entries could not be written */
    bool is_draining, is_ending;
};

enum room_entry_kind { ROOM_JOINED, ROOM_SAID, ROOM_LEFT, ROOM_FAILED };
enum room_presence { ROOM_HERE, ROOM_AWAY };

/* An entry of a log. It never changes. */
struct room_entry {
    struct link link;              /* in its room's log, or in what is pending */
    struct room_write *write;      /* of a pending entry: it is being written; NULL: it is not */
    bool is_durable;               /* a pending entry waits for those before it */
    struct list acks;              /* of struct room_ack, of a pending entry */
    uint32_t seq;                  /* from 1, without gaps */
    uint32_t client_seq, reply_to; /* of ROOM_SAID; 0: none */
    uint64_t unix_ms;
    enum room_entry_kind kind;
    enum room_kind from_kind;
    char from[ROOM_ID_CHARS + 1];
    char name[ROOM_PERSON_MAX_BYTES + 1]; /* that from had then */
    const char *text; /* of ROOM_SAID; of ROOM_LEFT and ROOM_FAILED the reason */
    /* Of what an agent has said: the place where the text is stored, and how it ended. */
    char conversation[ROOM_CONVERSATION_CHARS + 1]; /* "": no agent has said it */
    uint32_t generation, turn;
    bool is_part;                     /* text is not the whole reply, which has thoughts, too */
    const char *finish_reason;        /* static */
    const char *const *quick_replies; /* [n_quick_replies] */
    size_t n_quick_replies;
    size_t size_bytes; /* all of it */
};

/* A person or an agent in a room. */
struct room_member {
    struct link link; /* in its room's members */
    struct link of;   /* in its person's members */
    struct room *room;
    struct room_person *person;
    uint32_t client_seq; /* the last */
    uint64_t version;    /* of the room, when presence or typing changed last */
    bool is_typing;
    struct room_entry *left; /* its last entry, taken when it joined: leaving cannot fail */
};

/* A reader is one connection of a person. It is the transport's, which embeds it. */
struct room_reader {
    struct link link; /* in its person's readers */
    struct rooms *rooms;
    struct room_person *person; /* NULL: no hello yet */
    struct list cursors;        /* [n_cursors] of struct room_cursor */
    size_t n_cursors;
    struct list acks; /* [n_acks] of struct room_ack, in the order of asking */
    size_t n_acks;
    void (*notify)(struct room_reader *r); /* there is something for room_reader_next */
    /* The rooms have left this process, and the reader's person with them: the transport ends the
     * connection. It may do so inside. */
    void (*lost)(struct room_reader *r, const struct error *why);
};

/* What a person says. */
struct room_said {
    const char *text;
    const char *const *quick_replies; /* [n_quick_replies] */
    size_t n_quick_replies;
    uint32_t reply_to;   /* an entry's seq; 0: none */
    uint32_t client_seq; /* the number that the person gives it in this room, from 1; 0: none */
};

/* An answer to room_say: the entry of this number is in the log. */
struct room_ack {
    struct link link;     /* in its reader's acks */
    struct link of_entry; /* in its entry's acks, while that is pending */
    struct room_reader *reader;
    bool is_ready;
    uint32_t client_seq, seq;
    char room_name[ROOM_NAME_MAX_BYTES + 1];
};

/* A part of what an agent is saying. */
struct room_piece {
    const struct room_member *member;
    const char *conversation;
    uint32_t generation, turn;
    uint64_t offset;  /* in bytes, of text in the answer */
    const char *text; /* UTF-8, at most ROOM_PIECE_MAX_BYTES */
};

enum room_frame_kind {
    ROOM_FRAME_SNAPSHOT,
    ROOM_FRAME_ENTRY,
    ROOM_FRAME_MEMBER,
    ROOM_FRAME_OUT,
    ROOM_FRAME_ACK,
    ROOM_FRAME_PIECE,
};

/* What a reader is to be told next. It is valid until the next call of this header. */
struct room_frame {
    enum room_frame_kind kind;
    const struct room *room;
    const struct room_entry *entry; /* of ROOM_FRAME_ENTRY */
    const struct room_member
        *member; /* of ROOM_FRAME_MEMBER; of ROOM_FRAME_SNAPSHOT the reader's */
    const char *room_name;
    const char *why; /* of ROOM_FRAME_OUT: the reader's person is not in the room any more */
    const struct room_ack *ack; /* of ROOM_FRAME_ACK */
    struct room_piece piece;    /* of ROOM_FRAME_PIECE */
};

struct room {
    struct hash_node node;
    struct rooms *rooms;
    uint32_t principal;
    struct list members;
    size_t n_members, n_agents;     /* n_members counts the agents, too */
    unsigned n_chained;             /* answers of agents since a person said something */
    uint8_t life[JOURNAL_ID_BYTES]; /* of a kept room: no other of its name has had it */
    struct list log;                /* of struct room_entry */
    size_t n_entries;
    /* Entries that are not durable yet, which nobody is told of; they are behind those of the log.
     */
    struct list pending;
    size_t n_pending;
    struct link failing; /* in rooms.failing: an entry could not be written */
    struct list pins;    /* of struct room_pin: conversations that it needs */
    uint32_t next_seq;   /* behind the pending ones */
    uint64_t version;    /* counts changes of presence and typing */
    struct list cursors;
    char name[ROOM_NAME_MAX_BYTES + 1];
};

void rooms_init(struct rooms *r, const struct env *env, uint64_t (*unix_ms)(void),
                struct alarm *alarm);
/* No reader may be left. */
void rooms_deinit(void *rooms);
/* Has those leave whose grace is over, and takes what agents have said. */
void rooms_tick(void *rooms);
/* Has agents begin no answer from now on. */
void rooms_drain(void *rooms);
/* Ends what agents are saying, since the server stops: nothing more becomes an entry. */
void rooms_end(void *rooms);
/* Keeps rooms in the journal from now on, and reads those that it has; until that is done hello is
 * UNAVAILABLE. */
void rooms_keep(struct rooms *r, const struct rooms_keeping *keeping);
/* Another process has the rooms: all of them leave memory, as the journal has them, and are read
 * again once they are here again. Their readers are lost. */
void rooms_leave(struct rooms *r, const struct error *why);
/* Reads no more of what the journal has. */
void rooms_restore_leave(struct rooms *r);
/* Sets where agents' conversations are. */
void rooms_set_agents(struct rooms *r, struct conversations *all, struct models *models);
void rooms_metrics(const struct rooms *r, struct buf *out);

/* Makes a reader without a person. */
void room_reader_init(struct room_reader *reader, struct rooms *r,
                      void (*notify)(struct room_reader *reader),
                      void (*lost)(struct room_reader *reader, const struct error *why));
/* Gives the reader its person, of this principal: with a token the one that has it, else a new one
 * of this name; "" makes one up. INVALID; NOT_FOUND where no person has the token; EXHAUSTED. */
enum status room_reader_hello(struct room_reader *reader, const struct principal *who,
                              const char *token, const char *name, struct error *err) MUST_CHECK;
/* Says that the connection is closed. A person without a reader is away, and gone after
 * ROOM_GRACE_MS. */
void room_reader_close(struct room_reader *reader);
/* Finds what the reader is to be told next. False: nothing. */
bool room_reader_next(struct room_reader *reader, struct room_frame *ret);
/* Whether something that the reader's person has said is not in the log yet: an ack will come. */
bool room_reader_waits(const struct room_reader *reader);

const char *room_person_id(const struct room_person *p);
const char *room_person_token(const struct room_person *p);
const char *room_person_name(const struct room_person *p);
enum room_presence room_person_presence(const struct room_person *p);
enum room_kind room_person_kind(const struct room_person *p);
uint32_t room_first_seq(const struct room *room); /* that the log still has; room_next_seq: none */
uint32_t room_next_seq(const struct room *room);  /* of the entry that comes into the log next */

/* What the reader's person does. PRECONDITION before its hello, or where it is not in the room;
 * EXHAUSTED with a time to wait where it does too much, or a limit is reached. */

/* Enters a room of the person's principal, which is made if there is none. The reader is told a
 * snapshot, then the entries behind after_seq, or those from now on. To join a second time moves
 * the reader's cursor. */
enum status room_join(struct room_reader *reader, const char *name, uint32_t after_seq,
                      bool is_from_now, struct error *err) MUST_CHECK;
/* Appends an entry; *ret_seq is its number. The reader is told an ack when the entry is in the log.
 * A client_seq that was used with the same words gives
 * the entry that was appended then; with other words it is EXISTS. PRECONDITION where one was left
 * out. */
enum status room_say(struct room_reader *reader, const char *name, const struct room_said *said,
                     uint32_t *ret_seq, struct error *err) MUST_CHECK;
enum status room_type(struct room_reader *reader, const char *name, bool on,
                      struct error *err) MUST_CHECK;
/* Leaves the room. All readers of the person are told so. */
enum status room_leave(struct room_reader *reader, const char *name, struct error *err) MUST_CHECK;

/* When an agent answers. */
enum room_policy {
    ROOM_WHEN_NAMED,
    ROOM_EVERY_TURN, /* of a person */
    ROOM_EVERY_N,    /* turns of people */
};

struct room_invitation {
    const char *model;  /* "": the default model */
    const char *name;   /* "": the model's name, as far as it fits */
    const char *system; /* "": the model's own */
    enum room_policy policy;
    uint32_t every;      /* of ROOM_EVERY_N */
    uint32_t max_tokens; /* of an answer; 0: ROOM_ANSWER_TOKENS */
};
enum { ROOM_ANSWER_TOKENS = 256, ROOM_SYSTEM_MAX_BYTES = 16 << 10 };

/* An agent joins, by the wish of a member; leaves; ends what it is saying. */
enum status room_reader_invite(struct room_reader *reader, const char *name,
                               const struct room_invitation *i, struct error *err) MUST_CHECK;
enum status room_reader_dismiss(struct room_reader *reader, const char *name,
                                const char *participant, struct error *err) MUST_CHECK;
enum status room_reader_stop(struct room_reader *reader, const char *name,
                             struct error *err) MUST_CHECK;

struct room *rooms_find(const struct rooms *r, uint32_t principal, const char *name);

#endif
