/* A world of the user's own as a task: its code runs in an attached worker (@parley.world on a
 * class of the Python package), which says who speaks next, who hears what, and when the task ends.
 * The task's agent is the conversation with it; worlds/verbs/attached_script.h has the messages.
 * These are the functions of struct service_world. */
#ifndef SERVER_SERVICE_SCRIPT_H
#define SERVER_SERVICE_SCRIPT_H

#include <stdbool.h>

#include "server/service/plan.h"

struct scene;
struct service_user;

/* Whether name is attached:NAME, or attached:NAME:ARGUMENT. */
bool script_has_name(const char *name);
/* Sets own_model and own_system of the pool by such a name. Frees none. */
void script_set_agent(struct service_pool_plan *pool, const char *name);

void script_begin(struct scene *s);
void script_said(struct scene *s, struct service_user *u, const char *text, const char *payload);
void script_answered(struct scene *s, const char *text);
void script_left(struct scene *s, const struct service_user *u, const char *name);

#endif
