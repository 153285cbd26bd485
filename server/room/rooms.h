/* A room is an append-only log that people read and write together. Whoever sees it has a place in
 * the log, a cursor, so a slow reader costs no buffer; what only matters now, presence and typing,
 * is a state that readers catch up with. A person comes back with a token after a lost connection,
 * and misses nothing. Rooms live in memory, until their last member leaves or is gone. All
 * functions are called on the loop. */
#ifndef SERVER_ROOM_ROOMS_H
#define SERVER_ROOM_ROOMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"
#include "base/list.h"
#include "base/shared_limit.h"
#include "base/status.h"

struct alarm;
struct buf;
struct env;
struct principal;

enum {
    ROOM_NAME_MAX_BYTES = 128,
    ROOM_PERSON_MAX_CHARS = 32, /* of a display name */
    ROOM_PERSON_MAX_BYTES = 4 * ROOM_PERSON_MAX_CHARS,
    ROOM_ID_CHARS = 16,
    ROOM_TOKEN_CHARS = 32,
    ROOM_TEXT_MAX_BYTES = 16 << 10,
    ROOM_MAX_QUICK_REPLIES = 16,
    ROOM_QUICK_REPLY_MAX_CHARS = 64,
    ROOM_MAX_MEMBERS = 64,
    ROOM_MAX_ENTRIES = 1000, /* a longer log loses its oldest */
    ROOMS_OF_A_PERSON = 16,
    ROOMS_MAX = 10000,
    ROOMS_MAX_PEOPLE = 20000,
    ROOMS_MAX_BYTES = 256 << 20, /* of all logs */
    ROOM_ACTS_PER_S = 5,         /* says, joins and changes of typing, of a person */
    ROOM_ACTS_AT_ONCE = 20,
    ROOM_GRACE_MS = 120 * 1000,
};

struct rooms {
    const struct env *env;
    uint64_t (*unix_ms)(void); /* the wall clock */
    struct alarm *alarm;       /* rings rooms_tick */
    struct hash by_name;       /* of struct room, by principal and name */
    struct hash by_token;      /* of struct room_person */
    struct list away;          /* of struct room_person: the first is gone first */
    struct shared_limit n_rooms, n_people, bytes;
    size_t n_readers;
    uint64_t n_said; /* entries of all rooms that people have written */
};

enum room_entry_kind { ROOM_JOINED, ROOM_SAID, ROOM_LEFT };
enum room_presence { ROOM_HERE, ROOM_AWAY };

/* An entry of a log. It never changes. */
struct room_entry {
    struct link link;              /* in its room's log */
    uint32_t seq;                  /* from 1, without gaps */
    uint32_t client_seq, reply_to; /* of ROOM_SAID; 0: none */
    uint64_t unix_ms;
    enum room_entry_kind kind;
    char from[ROOM_ID_CHARS + 1];
    char name[ROOM_PERSON_MAX_BYTES + 1]; /* that from had then */
    const char *text;                     /* of ROOM_SAID; of ROOM_LEFT the reason */
    const char *const *quick_replies;     /* [n_quick_replies] */
    size_t n_quick_replies;
    size_t size_bytes; /* all of it */
};

/* A person in a room. */
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
    struct room_person *person;            /* NULL: no hello yet */
    struct list cursors;                   /* of struct room_cursor */
    void (*notify)(struct room_reader *r); /* there is something for room_reader_next */
};

/* What a person says. */
struct room_said {
    const char *text;
    const char *const *quick_replies; /* [n_quick_replies] */
    size_t n_quick_replies;
    uint32_t reply_to;   /* an entry's seq; 0: none */
    uint32_t client_seq; /* the number that the person gives it in this room, from 1; 0: none */
};

enum room_frame_kind { ROOM_FRAME_SNAPSHOT, ROOM_FRAME_ENTRY, ROOM_FRAME_MEMBER, ROOM_FRAME_OUT };

/* What a reader is to be told next. It is valid until the next call of this header. */
struct room_frame {
    enum room_frame_kind kind;
    const struct room *room;
    const struct room_entry *entry; /* of ROOM_FRAME_ENTRY */
    const struct room_member
        *member; /* of ROOM_FRAME_MEMBER; of ROOM_FRAME_SNAPSHOT the reader's */
    const char *room_name;
    const char *why; /* of ROOM_FRAME_OUT: the reader's person is not in the room any more */
};

struct room {
    struct hash_node node;
    struct rooms *rooms;
    uint32_t principal;
    struct list members;
    size_t n_members;
    struct list log; /* of struct room_entry */
    size_t n_entries;
    uint32_t next_seq;
    uint64_t version; /* counts changes of presence and typing */
    struct list cursors;
    char name[ROOM_NAME_MAX_BYTES + 1];
};

void rooms_init(struct rooms *r, const struct env *env, uint64_t (*unix_ms)(void),
                struct alarm *alarm);
/* No reader may be left. */
void rooms_deinit(void *rooms);
/* Has those leave whose grace is over. */
void rooms_tick(void *rooms);
void rooms_metrics(const struct rooms *r, struct buf *out);

/* Makes a reader without a person. */
void room_reader_init(struct room_reader *reader, struct rooms *r,
                      void (*notify)(struct room_reader *reader));
/* Gives the reader its person, of this principal: with a token the one that has it, else a new one
 * of this name; "" makes one up. INVALID; NOT_FOUND where no person has the token; EXHAUSTED. */
enum status room_reader_hello(struct room_reader *reader, const struct principal *who,
                              const char *token, const char *name, struct error *err) MUST_CHECK;
/* Says that the connection is closed. A person without a reader is away, and gone after
 * ROOM_GRACE_MS. */
void room_reader_close(struct room_reader *reader);
/* Finds what the reader is to be told next. False: nothing. */
bool room_reader_next(struct room_reader *reader, struct room_frame *ret);

const char *room_person_id(const struct room_person *p);
const char *room_person_token(const struct room_person *p);
const char *room_person_name(const struct room_person *p);
enum room_presence room_person_presence(const struct room_person *p);
uint32_t room_first_seq(const struct room *room); /* that the log still has; next_seq: none */

/* What the reader's person does. PRECONDITION before its hello, or where it is not in the room;
 * EXHAUSTED with a time to wait where it does too much, or a limit is reached. */

/* Enters a room of the person's principal, which is made if there is none. The reader is told a
 * snapshot, then the entries behind after_seq, or those from now on. To join a second time moves
 * the reader's cursor. */
enum status room_join(struct room_reader *reader, const char *name, uint32_t after_seq,
                      bool is_from_now, struct error *err) MUST_CHECK;
/* Appends an entry; *ret_seq is its number. A client_seq that was used with the same words gives
 * the entry that was appended then; with other words it is EXISTS. PRECONDITION where one was left
 * out. */
enum status room_say(struct room_reader *reader, const char *name, const struct room_said *said,
                     uint32_t *ret_seq, struct error *err) MUST_CHECK;
enum status room_type(struct room_reader *reader, const char *name, bool on,
                      struct error *err) MUST_CHECK;
/* Leaves the room. All readers of the person are told so. */
enum status room_leave(struct room_reader *reader, const char *name, struct error *err) MUST_CHECK;

#endif
