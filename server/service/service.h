/* The chat service: people come to a menu, answer a form, wait in a pool until enough are there, do
 * a task together, and come back to the menu. Each place but the pool is a scene that a world plays
 * (worlds.h). Nothing here blocks or has a thread: what waits is a time in a list, and one alarm
 * rings for the earliest. A person is a connection; one that has said an id may lose it for a while
 * and come back. All functions are called on the loop. */
#ifndef SERVER_SERVICE_SERVICE_H
#define SERVER_SERVICE_SERVICE_H

#include "server/service/service_types.h"

struct buf;
struct journal;

void service_init(struct chat_service *s, const struct service_config *config);
/* No peer may be left. */
void service_deinit(void *service);
/* Does all whose time has come. */
void service_tick(void *service);
/* Tells everybody that the service stops; no task begins any more. */
void service_drain(void *service);
/* All people are gone, and their tasks' agents closed; nobody comes any more. */
void service_end(void *service);
void service_metrics(const struct chat_service *s, struct buf *out);

/* Where a service is kept. */
struct service_storage {
    struct journal *journal;   /* NULL: only in memory */
    uint64_t (*unix_ms)(void); /* the wall clock */
    /* What the journal has was read under this epoch. Returns whether that holds; if not,
     * service_leave was called inside. NULL: it holds. */
    bool (*arrived)(void *self, uint64_t epoch);
    void *self;
};

/* Keeps people who have an id, and tasks, in the journal, and reads those that earlier processes
 * had: until then nobody can come. */
void service_keep(struct chat_service *s, const struct service_storage *storage);
/* Another process has the people and their tasks: all of them leave memory, as the journal has
 * them, and are read again once they are here again. Does nothing if nothing is kept. */
void service_leave(struct chat_service *s, const struct error *why);

void service_peer_init(struct service_peer *p, struct chat_service *s,
                       void (*notify)(struct service_peer *p),
                       void (*end)(struct service_peer *p, enum service_end why, const char *text));
/* A connection says something. id, which only counts in its first text, is the secret by which the
 * person comes back after a lost connection; NULL or one of a wrong length: it cannot. payload is a
 * JSON object, or NULL. EXHAUSTED: there are too many people. UNAVAILABLE: the service has ended,
 * or reads its people yet. */
enum status service_peer_said(struct service_peer *p, const char *id, const char *text,
                              const char *payload, struct error *err) MUST_CHECK;
/* Returns what the person is to be told next; NULL: nothing. service_peer_took removes it. */
const struct service_message *service_peer_next(const struct service_peer *p);
void service_peer_took(struct service_peer *p);
/* From now on the connection is told where its person is. */
void service_peer_watch(struct service_peer *p);
/* Finds where the person is now, and where the connection was told that it is, once all messages
 * are taken. False: it was told so. */
bool service_peer_place(struct service_peer *p, struct service_place *ret_from,
                        struct service_place *ret_to);
/* For how many ms from now the person of p, which waits, stays in its pool at the most. */
uint64_t service_peer_waits_ms(const struct service_peer *p);
/* Says that the connection is closed. The person is away, or gone if it has no id. */
void service_peer_close(struct service_peer *p);

/* "waiting", … */
const char *service_state_name(enum service_state s);

/* --- for agents --- */

/* Has the config's work called soon, never inside. */
void service_wake(struct chat_service *s);
/* The scene may be freed inside, and its agent closed. The people of a scene whose agent has failed
 * are told that it is closed, and go to the menu, as with ParlAI's worlds that raise. */
void service_answered(struct scene *s, const char *text);
/* It has heard what it was asked, and has no answer. */
void service_unanswered(struct scene *s, const struct error *err);
void service_agent_failed(struct scene *s, const struct error *err);
/* An earlier process had asked the agent, which goes on with its answer. */
void service_answering(struct scene *s);
/* Has the config's work called at this time. */
void service_wake_at(struct chat_service *s, uint64_t at_us);

#endif
