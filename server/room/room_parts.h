/* What the files of this folder share: people and agents, and how entries come into a log. All
 * functions are called on the loop. */
#ifndef SERVER_ROOM_ROOM_PARTS_H
#define SERVER_ROOM_ROOM_PARTS_H

#include "base/pace.h"
#include "server/conversation/conversations.h"
#include "server/room/rooms.h"

enum { ROOM_AGENT_SLEEP_MS = 250 }; /* between looks for a model that is not loaded yet */

struct room_person {
    struct hash_node node; /* in rooms.by_token; not of an agent */
    struct link away;      /* in rooms.away, while no reader is there */
    struct list members;   /* of struct room_member */
    size_t n_members;
    struct list readers; /* [n_readers] */
    size_t n_readers;
    enum room_kind kind;
    struct room_agent *agent; /* of ROOM_AGENT: what the person is a member of */
    uint32_t principal;
    uint64_t gone_us; /* when its grace is over, while it is away */
    struct pace acts;
    char id[ROOM_ID_CHARS + 1];
    uint8_t proof[SHA256_BYTES];      /* the hash of its token */
    char token[ROOM_TOKEN_CHARS + 1]; /* "": nobody has said it to this process */
    char name[ROOM_PERSON_MAX_BYTES + 1];
};

/* rooms.c */

/* Checks a display name. INVALID. */
enum status room_person_name_check(const char *name, struct error *err) MUST_CHECK;
/* Gives a zeroed person its lists, id and name. */
void room_person_init(struct room_person *p, const struct rooms *r, enum room_kind kind,
                      uint32_t principal, const char *name);
/* Makes the person a member, and appends the entry of its coming. */
enum status room_member_join(struct room_member **out, struct room *room, struct room_person *p,
                             struct error *err) MUST_CHECK;
enum status room_is_full(struct error *err);
/* Frees m, and the room where it ends with it. why lives as long as the rooms. */
void room_member_leave(struct room_member *m, const char *why);
/* Presence or typing has changed. */
void room_member_changed(struct room_member *m);
/* Makes an entry with copies of what is said, and takes its bytes of the limit. */
enum status room_entry_make(struct room_entry **out, struct room *room, const struct room_person *p,
                            enum room_entry_kind kind, const struct room_said *said,
                            struct error *err) MUST_CHECK;
/* Takes e, which comes into the log once it is durable; then the agents and the readers are told.
 * UNAVAILABLE where it cannot be written now; then e is freed. */
enum status room_append(struct room *room, struct room_entry *e, struct error *err) MUST_CHECK;
/* The same for what has happened in any case: it is written as soon as that is possible. */
void room_append_surely(struct room *room, struct room_entry *e);
/* A write of a pending entry has ended. */
void room_entry_written(struct room *room, struct room_entry *e, bool is_durable);
/* Puts an entry of the journal into the log, by its number. */
void room_log_insert(struct room *room, struct room_entry *e);
void room_entry_free(struct room_entry *e, struct rooms *r, uint32_t principal);
/* Makes a room without a member. */
enum status room_open(struct room **out, struct rooms *r, uint32_t principal, const char *name,
                      struct error *err) MUST_CHECK;
void room_close_if_empty(struct room *room);
/* Makes a member of what the journal has, without an entry. */
enum status room_member_restore(struct room_member **out, struct room *room, struct room_person *p,
                                struct error *err) MUST_CHECK;
/* Makes a person of what the journal has, which is away, or finds it. Its grace begins with
 * room_people_may_come: until then hello is refused. */
enum status room_person_restore(struct room_person **out, struct rooms *r, uint32_t principal,
                                const char *id, const char *name, const uint8_t *proof,
                                struct error *err) MUST_CHECK;
void room_people_may_come(struct rooms *r);
struct room_person *room_person_of(const struct room *room, const char *id);
void room_notify(struct room *room);
void room_drop_oldest(struct room *room);

/* keeping.c */

/* A conversation that a room needs. */
struct room_pin {
    struct link link;      /* in its room's pins */
    struct hash_node node; /* in rooms.by_pin */
    struct conversation_id id;
};

/* What is kept of an agent. */
struct room_agent_state {
    enum room_policy policy;
    uint32_t every, heard;
    struct conversation_id conversation;
    uint32_t generation, turn, hears; /* turn: of the answer that it has begun; 0: none */
};

bool room_is_kept(const struct room *room);
/* Begins to keep a room. */
enum status room_keep(struct room *room, struct error *err) MUST_CHECK;
/* Writes a pending entry, and the state of its member with it. */
enum status room_keep_entry(struct room *room, struct room_entry *e, struct error *err) MUST_CHECK;
/* Writes the state of a member. */
enum status room_keep_member(const struct room_member *m, struct error *err) MUST_CHECK;
/* The journal forgets an entry; the room with its members, and then, one by one, its entries. */
void room_forget_entry(const struct room *room, uint32_t seq);
void room_forget(const struct room *room);
/* The room does not need the conversation after all, which ends. */
void room_pin_drop(struct room *room, const struct conversation_id *id);
/* The same, unless an entry names it or an agent of the room needs it. */
void room_pin_release(struct room *room, const struct conversation_id *id);
/* The conversations that the room has needed end with it. */
void room_pins_free(struct room *room);
/* The write of an entry that is freed tells nobody. */
void room_write_leave(struct room_entry *e);
/* Writes again what could not be written. */
void rooms_keep_again(struct rooms *r);
/* Asks the journal for what it has. */
void rooms_restore_begin(struct rooms *r);
/* Asks it once more, where it could not answer. */
void rooms_restore_again(struct rooms *r);
/* UNAVAILABLE until all that the journal has is read. */
enum status rooms_are_ready(const struct rooms *r, struct error *err) MUST_CHECK;
/* Whether a room needs this conversation: unknown while the journal's rooms are being read here. */
enum conversation_pin rooms_pin(const void *rooms, const struct conversation_id *id);
enum status room_pin_add(struct room *room, const struct conversation_id *id,
                         struct error *err) MUST_CHECK;

/* hearing.c */

/* What an agent is to hear. */
struct room_hearing {
    const struct room *room;
    const char *agent; /* its id */
    uint32_t heard;    /* up to this entry all is in its turns */
};

/* Whether others have said something since. */
bool room_hearing_has_news(const struct room_hearing *h);
/* Gives out the messages of the agent's next turn in c, of which there are some where it has news;
 * they live in the log and the arena. RANGE with REASON_CONTEXT_EXCEEDED where c has turns, and its
 * context no room for more of them and an answer. */
enum status room_hearing_gather(struct turn_request *out, const struct room_hearing *h,
                                const struct conversation *c, struct arena *arena,
                                struct error *err) MUST_CHECK;
/* Whether c has no turn: the next one begins with what the agent has heard and said elsewhere. */
bool room_hearing_is_new(const struct conversation *c);

/* agents.c */

enum status room_invite(struct room_person **out, struct room *room,
                        const struct room_invitation *i, struct error *err) MUST_CHECK;
void room_agent_state(const struct room_agent *a, struct room_agent_state *out);
/* The id of its conversation. */
const struct conversation_id *room_agent_conversation(const struct room_agent *a);
/* Whether that is it, or the full one before it, which the agent needs until its first turn in the
 * new one is complete, or it leaves. */
bool room_agent_needs(const struct room_agent *a, const struct conversation_id *id);
void room_agent_leave_full(struct room_agent *a);
/* Makes an agent of what the journal has. */
enum status room_agent_restore(struct room *room, const char *id, const char *name,
                               const struct room_agent_state *state, struct error *err) MUST_CHECK;
/* The room is read: the agent goes on with the answer that it had begun, or begins one that is
 * due. */
void room_agent_go_on(struct room_agent *a);

/* What others have said: the agents of the room answer where they are to. */
void room_agents_hear(struct room *room, const struct room_entry *e);
/* A text ends with NUL, so a model that says one says '?' in a room. */
void room_words_end_nowhere(char *text, size_t len);
/* RANGE, with what stands in place of an answer above ROOM_ANSWER_MAX_BYTES. */
enum status room_answer_too_long(struct error *err);
/* Takes what agents have said since. */
void room_agents_tick(struct rooms *r);
/* Ends what all agents of the rooms are saying, without entries. */
void room_agents_end(struct rooms *r);
/* The conversations of all agents may leave memory. */
void room_agents_unpin(struct rooms *r);
/* Frees an agent that is no member any more, with its conversation. */
void room_agent_free(struct room_agent *a);
/* Ends what the agent is saying; does nothing if p is a person. */
void room_agent_stop(const struct room_person *p);
/* Where a reader is in what an agent is saying. */
struct room_heard {
    uint64_t answer; /* which one */
    size_t at;       /* bytes that were told of it */
};
/* The next part of the agent's present answer. Returns false if there is none. heard has a place
 * for each agent of a room, and moves. */
bool room_agent_next_piece(const struct room_person *agent, struct room_heard *heard,
                           struct room_piece *ret);

#endif
