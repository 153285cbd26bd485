/* What a world can do in its scene: the inside of service.h, for worlds.c. */
#ifndef SERVER_SERVICE_SCENE_H
#define SERVER_SERVICE_SCENE_H

#include "server/service/service_types.h"

/* A scene: its people, and the few numbers that are its world's state. */
struct scene {
    struct link link;    /* in its pool's scenes */
    struct link changed; /* of a task: in what is to be written of the service */
    struct chat_service *service;
    const struct service_script *script;
    struct service_pool *pool; /* NULL: of a menu */
    struct service_agent *agent;
    size_t at;       /* the world's: which question is open, or who may speak */
    size_t n_turns;  /* the world's: since somebody was asked */
    uint32_t n_said; /* since the agent was asked last */
    bool is_asked;   /* the agent answers now */
    bool is_due;     /* it is to be asked again then */
    bool is_over;
    bool is_playing;  /* a function of its world runs */
    bool is_left;     /* is_over: the people go to the menu, not on */
    bool is_exit;     /* is_over: the people leave the service */
    size_t to;        /* is_over: index of the pool that a menu has given */
    uint64_t said_us; /* when somebody said something last */
    bool is_log_cut;
    struct buf *log;   /* the dialog so far; NULL: none is kept */
    uint64_t spoken;   /* bits of those who have spoken in the log's last group */
    uint64_t id;       /* of a task that is kept */
    uint32_t n_logged; /* lines of the log that are kept: 1 to n_logged */
    uint32_t n_heard;  /* texts that the agent has heard */
    uint32_t answered; /* up to this one it has answered; those behind it are kept */
    uint32_t asked;    /* is_asked: up to this one its answer reads */
    uint32_t restored; /* up to this one an earlier process had told it */
    /* What the journal has of it: lines of the log; texts behind answered, those of them up to
     * asked, and up to restored. */
    size_t log_bytes, heard_bytes, asked_bytes, restored_bytes;
    size_t n_people;
    struct service_user *people[]; /* [n_people] */
};

/* Tells a person a text, with {KEY} replaced. NULL: nothing. */
void scene_tell(struct scene *s, struct service_user *u, const char *text);
/* The same with quick replies, without replacing anything. */
void scene_offer(struct scene *s, struct service_user *u, const char *text,
                 const char *const *quick_replies, size_t n);
/* Tells a text (NULL: none), and then the payload (NULL: none) as a message of its own, as ParlAI
 * does, which leaves the text out. */
void scene_show(struct scene *s, struct service_user *u, const char *text, const char *payload);
/* Hands on what somebody says, by its name if the plan wants names; from NULL: the agent's. The one
 * who says it is not told. */
void scene_relay(struct scene *s, const struct service_user *from, const char *text,
                 const char *payload);
/* Gives a text to the agent, and asks it if its policy says so. */
void scene_hear(struct scene *s, const struct service_user *from, const char *text);
/* Gives the agent a message of the world's, and asks it. */
void scene_order(struct scene *s, const char *message);
/* Asks the agent for an answer to what it has heard: it could not answer. */
void scene_ask(struct scene *s);
/* Puts what somebody says into the log; from NULL: the agent. */
void scene_log(struct scene *s, const struct service_user *from, const char *text);
bool scene_has_names(const struct scene *s); /* texts bear the names of who says them */
void scene_reset_agent(struct scene *s);
/* Ends the scene once the world's function has returned. */
void scene_end(struct scene *s);
void scene_leave(struct scene *s); /* the people go to the menu */
void scene_exit(struct scene *s);  /* the people leave the service */
void scene_go_to(struct scene *s, size_t pool);
/* Keeps an answer of the person. */
void scene_keep(struct scene *s, struct service_user *u, const char *key, const char *value);
/* The agent's name, or the person's. */
const char *scene_name(const struct scene *s, const struct service_user *u);

/* --- for service.c --- */

void scene_answered(struct scene *s, const char *text);
/* The agent has no answer: people are told so, and a world of one's own fails. */
void scene_unanswered(struct scene *s, const struct error *err);
/* Appends an act to the log. False: it has no room for it. */
bool scene_log_act(struct scene *s, const char *name, const char *text, bool is_new_group);
/* The agent has failed: the people are told, and go to the menu. */
void scene_fail(struct scene *s, const struct error *err);
/* Hands the log of a task to the service's config. */
void scene_write_log(const struct scene *s);

#endif
