/* What the chat service consists of: the types of service.h, which its other files share. */
#ifndef SERVER_SERVICE_SERVICE_TYPES_H
#define SERVER_SERVICE_SERVICE_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/checksum.h"
#include "base/hash.h"
#include "base/list.h"
#include "base/shared_limit.h"
#include "base/status.h"
#include "server/service/plan.h"

struct alarm;
struct body_reader;
struct body_writer;
struct env;
struct scene;
struct service_agent;
struct service_keeping;

enum {
    SERVICE_TEXT_MAX_BYTES = 16 << 10,
    SERVICE_PAYLOAD_MAX_BYTES = 64 << 10, /* as JSON that the service has written */
    SERVICE_ID_MIN_CHARS = 16,            /* shorter ones can be guessed, and are not taken */
    SERVICE_ID_MAX_CHARS = 128,
    SERVICE_NAME_MAX_CHARS = 32, /* of a person */
    SERVICE_MAX_PEOPLE_ALL = 20000,
    SERVICE_MAX_BYTES = 256 << 20,       /* of messages that are not taken yet, and of answers */
    SERVICE_UNTAKEN_MAX_BYTES = 1 << 20, /* of one person */
    SERVICE_TOLD_MAX_BYTES = 128 << 10,  /* of a message of an agent or of a world of one's own: six
                                            times as much, as JSON, fits into a socket's buffer */
    SERVICE_ANSWER_MAX_BYTES = 1024,
    SERVICE_DATA_MAX_BYTES = 64 << 10,  /* of a person's answers */
    SERVICE_LOG_MAX_BYTES = 1 << 20,    /* of a task's log */
    SERVICE_KEPT_MAX_BYTES = 128 << 20, /* of all logs in the journal, and of all texts heard */
    SERVICE_SAYS_PER_S = 5,
    SERVICE_SAYS_AT_ONCE = 20,
    SERVICE_NUMBER_MS = 1000, /* the least time between two counts of who waits in a pool */
};

enum service_state {
    SERVICE_NEW, /* the menu comes with the next text */
    SERVICE_MENU,
    SERVICE_FORM,
    SERVICE_WAITING,
    SERVICE_TASK,
    SERVICE_GONE,
};

/* Where a person is. */
struct service_place {
    enum service_state state;
    const struct service_pool *pool; /* of SERVICE_FORM, SERVICE_WAITING and SERVICE_TASK */
    uint32_t position, n_waiting;    /* of SERVICE_WAITING: from 1, the first came first */
};

/* What a person is told. */
struct service_message {
    struct link link; /* in its person's untaken */
    size_t size_bytes;
    uint32_t number;     /* among its person's; 0: it is never kept */
    bool is_kept;        /* it is in the journal, or in what is to be written */
    uint64_t turn;       /* the person gets it once this turn of the keeping is written */
    const char *text;    /* "" with a payload */
    const char *payload; /* a JSON object; NULL: none */
    const char *const *quick_replies; /* [n_quick_replies] */
    size_t n_quick_replies;           /* 0: none are offered */
};

enum service_end {
    SERVICE_END_REPLACED, /* the person has come back by another connection */
    SERVICE_END_SLOW,     /* it takes its messages too slowly */
    SERVICE_END_MEMORY,
    SERVICE_END_MOVED, /* another process has the person */
};

/* One connection. It is the transport's, which embeds it. */
struct service_peer {
    struct chat_service *service;
    struct service_user *user; /* NULL: it has not said anything yet, or the person is gone */
    bool is_watching;          /* it is told where the person is */
    struct service_place told; /* is_watching: what it was told last */
    void (*notify)(struct service_peer *p); /* there is something for service_peer_next */
    /* The person is gone from this connection, which the transport closes later. */
    void (*end)(struct service_peer *p, enum service_end why, const char *text);
};

/* What the agents of tasks are made of. A failure ends the task, but for ask's EXHAUSTED and
 * UNAVAILABLE: people are told why, and the agent keeps what it has heard. A failure of what ask
 * began comes by service_agent_failed. Nothing is called back inside a call. */
struct service_agents {
    enum status (*open)(void *self, struct service_agent **out, struct scene *s,
                        const struct service_pool_plan *plan, struct error *err);
    /* Takes in what somebody says, without answering. name NULL: texts bear no names. */
    enum status (*hear)(struct service_agent *a, const char *name, const char *text,
                        struct error *err);
    /* Begins an answer to all that was heard; service_answered has it. */
    enum status (*ask)(struct service_agent *a, struct error *err);
    /* Forgets all. What was begun is not answered. */
    enum status (*reset)(struct service_agent *a, struct error *err);
    void (*close)(struct service_agent *a); /* NULL is fine */
    /* The rest only where a service is kept. keep writes what a later process needs for restore,
     * which makes the agent again; what people have said since its last answer is told to it by
     * hear. Then go_on has it answer, if the earlier process asked it, or had begun to:
     * service_answering tells of the latter. */
    void (*keep)(const struct service_agent *a, struct body_writer *w);
    enum status (*restore)(void *self, struct service_agent **out, struct scene *s,
                           const struct service_pool_plan *plan, struct body_reader *body,
                           struct error *err);
    void (*go_on)(struct service_agent *a, bool is_asked);
    /* Frees it; a later process restores it. */
    void (*leave)(struct service_agent *a);
    /* Closes, later, what keep has written of an agent whose task is gone. */
    void (*forget)(void *self, struct body_reader *body);
    /* What keep has written up to this turn is durable, or before what is appended now. */
    void (*written)(void *self, uint64_t turn);
    /* The service ends: what is not closed yet stays open. */
    void (*end)(void *self);
};

struct service_config {
    const struct service_plan *plan; /* NULL: there is no service */
    const struct env *env;
    struct alarm *alarm; /* rings service_tick */
    const struct service_agents *agents;
    void *agents_self;
    void (*work)(void *agents_self); /* after service_wake, on the loop; may be NULL */
    /* Takes the line of a task that has ended, in ParlAI's Conversations format. NULL: none. */
    void (*log)(void *arg, const char *line, size_t len);
    void *log_arg;
    const char *metadata_path; /* of the log, which its lines name; may be NULL */
};

struct service_pool {
    const struct service_pool_plan *plan;
    struct list waiting;   /* of struct service_user: the first came first */
    struct list ready;     /* those of them that may be in the next task: fewer than it needs */
    struct list unnoticed; /* those of them that were not told that it takes long */
    struct list scenes;    /* of struct scene, forms and tasks: the longest silent first */
    uint32_t n_waiting;
    uint64_t numbered_us; /* when service_pool_number ran last */
    uint64_t number_us;   /* when it runs next; 0: it is not due */
};

struct chat_service {
    struct service_config config;
    struct service_pool pools[SERVICE_MAX_POOLS]; /* [plan->n_pools] */
    struct hash by_id;               /* of struct service_user that have said one, by its hash */
    struct sha256 *sha256;           /* NULL: not used yet */
    struct service_keeping *keeping; /* NULL: people and tasks are only in memory */
    struct list users, away, doomed; /* of struct service_user */
    struct shared_limit n_users, bytes;
    struct shared_limit log_bytes, heard_bytes; /* of what the journal has */
    size_t n_waiting, n_tasks, n_away;
    size_t n_watching; /* connections that are told where their people are */
    uint64_t n_places; /* numbers of waiting places that were given out so far; they rise */
    uint64_t n_said, n_tasks_begun, n_tasks_failed, n_timed_out;
    bool is_draining, has_ended;
    bool is_woken;    /* the agents have work */
    uint64_t wake_us; /* when they have; 0: no time is set */
};

#endif
