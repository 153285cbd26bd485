/* What the files of this folder share: people and agents, and how entries come into a log. All
 * functions are called on the loop. */
#ifndef SERVER_ROOM_ROOM_PARTS_H
#define SERVER_ROOM_ROOM_PARTS_H

#include "server/room/rooms.h"

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
    uint64_t gone_us;   /* when its grace is over, while it is away */
    uint64_t acted_us;  /* up to when its acts are counted */
    uint64_t credit_us; /* how long it could act without waiting */
    void *data;         /* the service's */
    struct room_waiting waiting;
    struct room_moved moved;
    uint64_t waiting_version, moved_version; /* count changes; a reader has seen up to its own */
    char id[ROOM_ID_CHARS + 1];
    char token[ROOM_TOKEN_CHARS + 1];
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
/* Frees m, and the room where it ends with it. why as of room_remove. */
void room_member_leave(struct room_member *m, const char *why);
/* Presence or typing has changed. */
void room_member_changed(struct room_member *m);
/* Makes an entry with copies of what is said, and takes its bytes of the limit. p NULL: a world. */
enum status room_entry_make(struct room_entry **out, struct room *room, const struct room_person *p,
                            enum room_entry_kind kind, const struct room_said *said,
                            struct error *err) MUST_CHECK;
/* Takes e, and tells the world, the agents and the readers. */
void room_append(struct room *room, struct room_entry *e);
void room_notify(struct room *room);

/* agents.c */

/* What others have said: the agents of the room answer where they are to. */
void room_agents_hear(struct room *room, const struct room_entry *e);
/* Takes what agents have said since. */
void room_agents_tick(struct rooms *r);
/* Ends what all agents of the rooms are saying, without entries. */
void room_agents_end(struct rooms *r);
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
