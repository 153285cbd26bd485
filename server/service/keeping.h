/* The chat service in the journal: the inside of service.h. People who have said an id, and tasks,
 * are kept things, which are written when they change: at the end of each turn, which is what
 * service_settle ends. What people are told in a turn they get when all changes of this turn and of
 * those before it are durable, so nobody has seen what a crash could take back. All functions are
 * called on the loop, and do nothing where nothing is kept. */
#ifndef SERVER_SERVICE_KEEPING_H
#define SERVER_SERVICE_KEEPING_H

#include "server/journal/body_bytes.h"
#include "server/journal/journal.h"
#include "server/service/scene.h"
#include "server/service/service.h"
#include "server/service/user.h"

enum {
    SERVICE_BODY_VERSION = 2, /* 2: tasks have at */
    SERVICE_BODY_BYTES = 4 << 20,
    SERVICE_RETRY_MS = 1000,            /* between attempts to write, and to read */
    SERVICE_QUEUE_MAX_BYTES = 64 << 20, /* that wait to be written; then the turn does not end */
    /* The kinds of things, which are stored. */
    SERVICE_OF_USER = 'u',
    SERVICE_OF_MESSAGE = 'w', /* what a person was told and has not got yet */
    SERVICE_OF_TASK = 't',
    SERVICE_OF_LINE = 'l',  /* of a task's log */
    SERVICE_OF_HEARD = 'h', /* a text that a task's agent has not answered yet */
};

struct service_restore;

struct service_keeping {
    struct chat_service *service;
    struct service_storage storage;
    struct service_restore *restore; /* NULL: all that the journal has is read */
    uint64_t epoch;                  /* the journal's, under which it was read */
    struct list users, scenes;       /* that have changed since they were written */
    struct list queue;               /* of struct service_record, in their order */
    size_t queue_bytes;              /* of all of them */
    size_t n_writing;                /* the first of them, which are being written; 0: none are */
    size_t n_strays;       /* transactions in flight whose records are not in the queue any more */
    struct list holding;   /* of struct service_user that have messages of turns after written */
    uint64_t turn;         /* the present one */
    uint64_t written_turn; /* this one and those before it are durable */
    uint64_t again_us;     /* when what failed is written again; 0: nothing has failed */
    bool is_over;          /* the service has ended: what happens now is not kept */
};

/* keeping.c */

/* The person, or the task, is written at the end of the turn. */
void service_user_changed(struct service_user *u);
void scene_changed(struct scene *s);
/* The journal forgets a thing: what of SERVICE_OF_…, number NULL: it has none. */
void service_unkeep(struct service_keeping *k, int what, const void *id, size_t id_len,
                    const uint32_t *number);
/* The journal forgets the person with its messages; a message; a task with its lines. */
void service_user_unkeep(struct service_user *u);
void service_message_unkeep(struct service_user *u, struct service_message *m);
void scene_unkeep(struct scene *s);
/* Keeps the next line of the task's log, which is cut if that fails, or the next text that its
 * agent hears. EXHAUSTED: there is no memory, or all tasks have too many of them. */
void scene_keep_line(struct scene *s, const char *name, const char *text, bool is_new_group);
enum status scene_keep_heard(struct scene *s, const char *name, const char *text,
                             struct error *err) MUST_CHECK;
/* The journal has this line, or this text, of an earlier process. */
void scene_hold_line(struct scene *s, const char *name, const char *text);
void scene_hold_heard(struct scene *s, uint32_t number, const char *name, const char *text);
/* The agent has answered all up to number, which is asked, or has forgotten all: n_heard. */
void scene_unkeep_heard(struct scene *s, uint32_t number);
/* A new message of u: whether it waits until its turn is durable. */
bool service_message_waits(struct service_user *u, struct service_message *m);
/* Whether the person may get it now. */
bool service_message_is_due(const struct service_user *u, const struct service_message *m);
/* The same for where the person is, which has changed. */
void service_user_moved(struct service_user *u);
bool service_place_is_due(const struct service_user *u);
/* The person's connection is told where it is as soon as that is durable. */
void service_place_tell(struct service_user *u);
/* Ends the turn, unless the journal fails: writes what has changed. */
void service_keeping_settle(struct chat_service *s);
/* Whether the journal cannot be written now, or too much waits to be. */
bool service_keeping_is_failing(const struct chat_service *s);
/* When there is something to do next; UINT64_MAX: never. */
uint64_t service_keeping_next_us(const struct chat_service *s);
/* Has the journal written all; from now on nothing is kept any more. */
void service_keeping_end(struct chat_service *s);
/* Nothing is kept any more, and what was not written is forgotten; until service_keeping_return,
 * which asks the journal for what it has. */
void service_keeping_leave(struct chat_service *s);
void service_keeping_return(struct chat_service *s);
void service_keeping_close(struct chat_service *s);
/* The wall clock's time, in ms, of a time of env, and back. A time before env's first is that. */
uint64_t service_keeping_unix_ms(const struct chat_service *s, uint64_t us);
uint64_t service_keeping_us(const struct chat_service *s, uint64_t unix_ms);

/* restore.c */

/* Asks the journal for what it has, or does so again. */
void service_restore_ask(struct service_keeping *k);
void service_restore_again(struct service_keeping *k);
void service_restore_leave(struct service_keeping *k);

/* service.c: what restore.c makes people and tasks of. */

/* Makes a person, which has an id unless proof is NULL. */
enum status service_user_open(struct service_user **out, struct chat_service *s,
                              const uint8_t *proof, struct error *err) MUST_CHECK;
struct service_user *service_find_proof(const struct chat_service *s, const uint8_t *proof);
/* Puts the people into a new scene. False: there is no memory, and nothing has changed. */
bool scene_open(struct scene **out, struct chat_service *service,
                const struct service_script *script, struct service_pool *pool,
                struct service_user *const *people, size_t n) MUST_CHECK;
enum status scene_open_log(struct scene *s, struct error *err) MUST_CHECK;
void scene_close(struct scene *s);
/* Somebody of the scene said something last at this time. */
void scene_set_said(struct scene *s, uint64_t said_us);
/* Somebody has left the task while no process was there. Returns whether the task goes on. */
bool scene_lost(struct scene *s, const char *role);
/* Adds the person at the end of its pool's queue. */
void service_user_wait(struct service_user *u, bool is_noticed);
/* Puts a person without a place into the menu, and tells it that its world is closed. */
void service_user_start_again(struct service_user *u);
/* The person is away from now on. */
void service_user_go_away(struct service_user *u);
void service_settle(struct chat_service *s);

#endif
