/* A person in a room, across all its connections: a lost one is made again, each entry of the room
 * is shown once, and what is said is said once. One thread uses it. */
#ifndef CLIENT_CLI_CHAT_ATTENDANCE_H
#define CLIENT_CLI_CHAT_ATTENDANCE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "client/lib/parley.h"
#include "parley/v1/rooms.pb-c.h"

enum { ATTENDANCE_MAX_PEOPLE = 64 };

struct attendance_person {
    char id[17], name[129];
    bool is_away, is_typing, is_agent;
};

struct attendance {
    /* Set by the caller, in a zeroed struct. */
    struct parley_channel *channel;
    const char *room;
    const char *wanted_name; /* "": the server makes one up */
    uint32_t patience_ms;    /* how long a lost connection is looked for */
    /* In attendance_step. entry: each once, in order; n_missed: how many before it the room had
     * dropped; is_own: a call of attendance_say made it. refused: the server refused what was
     * asked. */
    void (*entry)(void *arg, const Parley__V1__RoomEntry *entry, uint32_t n_missed, bool is_own);
    void (*refused)(void *arg, const Parley__V1__RoomError *error);
    void *arg;

    /* For the caller to read. */
    int fd; /* readable when attendance_step has something to do */
    bool is_in, has_ended;
    char name[129], id[17];
    char why[128];           /* it has ended: what the server said; "": nothing */
    struct parley_error err; /* it has ended by this failure, or PARLEY_OK */
    uint32_t last_seq;       /* of the entries that were shown */
    uint32_t next_seq;       /* of the entry that came next when the room was entered last */
    uint32_t n_said;         /* what is in the room of what was said */
    size_t n_people;
    struct attendance_person people[ATTENDANCE_MAX_PEOPLE];

    /* The rest is attendance.c's. */
    struct parley_call *call; /* NULL: between two connections */
    int event_fd, timer_fd;
    char token[65];
    struct list to_say; /* of struct attendance_text; the first is under way */
    uint32_t client_seq;
    uint32_t said_seq; /* of the last entry that was said */
    bool is_leaving, was_entered;
    struct parley_error lost;                        /* why the connection was lost */
    uint64_t give_up_ms, again_ms, say_ms, leave_ms; /* times of env_real; 0: none */
    unsigned delay_ms;

    /* Shared with the channel's thread. */
    pthread_mutex_t lock;
    pthread_cond_t has_room;
    struct list inbox; /* guarded by lock, as are the next five; of struct attendance_frame */
    size_t n_inbox;
    bool is_closed, has_call_ended;
    struct parley_error call_err;
};

/* Begins to enter the room. False, with an error printed: the kernel has no descriptor left. The
 * caller calls attendance_close in any case. */
bool attendance_open(struct attendance *a);
void attendance_close(struct attendance *a);

/* Does what is to be done now, without waiting. */
void attendance_step(struct attendance *a);
/* Says a text after those before it. */
void attendance_say(struct attendance *a, const char *text);
/* Whether there are texts of which the server has not said that they are in the room. */
bool attendance_has_unsaid(const struct attendance *a);
/* Whether all was said, or refused, and all entries up to those were shown. */
bool attendance_is_settled(const struct attendance *a);
/* Tells the others whether the person types; nothing without a connection. */
void attendance_type(struct attendance *a, bool on);
/* Ask for an agent to come, to go, and to end what it says; nothing without a connection. */
void attendance_invite(struct attendance *a, const char *agent, const char *name);
void attendance_dismiss(struct attendance *a, const char *id);
void attendance_stop(struct attendance *a);
/* Leaves the room when all was said; has_ended follows, soon even without a connection. */
void attendance_leave(struct attendance *a);

#endif
