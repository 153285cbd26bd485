/* The agents of the chat service's tasks: each is a conversation with a model of the daemon. What
 * people say is gathered, and becomes one message of the conversation's next turn. All functions
 * are called on the loop. */
#ifndef SERVER_SERVICE_AGENTS_H
#define SERVER_SERVICE_AGENTS_H

#include "base/list.h"
#include "server/service/service.h"

struct conversations;
struct models;

enum { SERVICE_HEARD_MAX_BYTES = 256 << 10 }; /* since an agent's last answer */

/* The self of service_conversations. */
struct service_agents_host {
    struct conversations *conversations;
    struct models *models;
    struct chat_service *service;
    struct list ready;     /* of struct service_agent with something to read */
    struct list sleeping;  /* of those that wait for their model */
    uint64_t wake_us;      /* when those look again */
    struct list forgotten; /* those whose task is gone, which are closed */
    struct list left;      /* of struct service_left, as they were left */
    /* Finds the principal whose conversations they are. False: it has no key any more. */
    bool (*principal)(void *arg, uint32_t *out);
    void *principal_arg;
};

void service_agents_host_init(struct service_agents_host *h);
/* Reads the answers that have come: the work of service_config. */
void service_agents_work(void *host);

extern const struct service_agents service_conversations;

#endif
