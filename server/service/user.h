/* A person of the chat service: the inside of service.h. */
#ifndef SERVER_SERVICE_USER_H
#define SERVER_SERVICE_USER_H

#include "base/pace.h"
#include "server/service/service_types.h"

/* An answer that the person has given. */
struct service_answer {
    struct link link; /* in its person's answers */
    size_t size_bytes;
    const char *key, *value;
};

struct service_user {
    struct hash_node node; /* in by_id, if it has an id */
    struct link link;      /* in users */
    struct link away;      /* in away, while no peer is there */
    struct link doomed;    /* in doomed: it is removed before the service is left */
    struct link waiting;   /* in its pool's waiting */
    struct link ready;     /* in its pool's ready */
    struct link unnoticed; /* in its pool's unnoticed */
    struct link changed;   /* in what is to be written of the service */
    struct link holding;   /* in the keeping's holding: it has messages that are not durable */
    struct chat_service *service;
    struct service_peer *peer; /* NULL: it is away */
    enum service_state state;
    struct scene *scene;       /* SERVICE_MENU, SERVICE_FORM, SERVICE_TASK */
    struct service_pool *pool; /* SERVICE_FORM: where it goes; SERVICE_WAITING; SERVICE_TASK */
    enum service_end doom;
    bool is_admitted; /* it has said the password, or none is asked for */
    uint64_t since_us, gone_us;
    uint64_t place;               /* SERVICE_WAITING: grows with the order of coming */
    uint32_t position, n_waiting; /* SERVICE_WAITING: when its pool was counted last */
    uint64_t moved_turn;          /* of the keeping: in which its state has changed last */
    struct pace says;
    struct list answers; /* of struct service_answer */
    size_t answers_bytes;
    struct list untaken; /* of struct service_message */
    size_t untaken_bytes;
    uint32_t n_told;                /* messages so far */
    bool is_kept;                   /* the journal has it, or it is in what is to be written */
    struct restored_user *restored; /* while what was stored is read; else NULL */
    char role[4 * SERVICE_NAME_MAX_CHARS + 1]; /* in its task */
    bool has_id;
    uint8_t proof[SHA256_BYTES]; /* has_id: the hash of its id */
};

/* Whether others may see text as a name: one line of 1 to 32 characters, without a colon. */
bool service_is_name(const char *text);

/* The value of an answer; NULL: there is none. */
const char *service_user_answer(const struct service_user *u, const char *key);
/* Keeps an answer in place of the one with the same key; NULL-safe for no key. Without memory, or
 * past the limit, the person is removed. */
void service_user_keep(struct service_user *u, const char *key, const char *value);
void service_user_forget(struct service_user *u); /* all answers */

/* What a message takes of SERVICE_UNTAKEN_MAX_BYTES. */
size_t service_message_size_bytes(const char *text, const char *payload,
                                  const char *const *quick_replies, size_t n_quick_replies);
/* Puts a message into the person's untaken. Without memory, or past the limit, the person is
 * removed before the service is left. */
void service_user_tell(struct service_user *u, const char *text, const char *payload,
                       const char *const *quick_replies, size_t n_quick_replies);
/* The next that the connection takes; NULL: none. */
const struct service_message *service_user_first_message(const struct service_user *u);
void service_user_drop_message(struct service_user *u); /* that one */
/* Puts a text before all others, which the person gets at once. */
void service_user_tell_first(struct service_user *u, const char *text);
void service_user_drop_messages(struct service_user *u);
/* Has the person removed, with its connection's end. */
void service_user_doom(struct service_user *u, enum service_end why);
/* Whether a person of this pool's plan may be in its tasks. */
bool service_user_is_eligible(const struct service_user *u, const struct service_pool_plan *plan);

#endif
