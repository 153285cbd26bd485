/* A world of the chat service is a state machine: it is told what happens in a scene, and acts by
 * the calls of scene.h. It has no thread and never waits; a scene's state is a few numbers. The
 * same contract serves menus, forms and tasks. All functions are called on the loop. */
#ifndef SERVER_SERVICE_WORLD_H
#define SERVER_SERVICE_WORLD_H

#include <stdbool.h>
#include <stddef.h>

struct scene;
struct service_user;

enum scene_kind { SCENE_MENU, SCENE_FORM, SCENE_TASK };

struct service_world {
    const char *name; /* in a plan */
    enum scene_kind kind;
    bool has_agent; /* the plan names a model */
    bool is_script; /* its code is the agent's */
    size_t min_people, max_people;
    void (*begin)(struct scene *s);
    /* A person says something. payload is a JSON object, or NULL. */
    void (*said)(struct scene *s, struct service_user *u, const char *text, const char *payload);
    /* The agent has answered. Only of worlds with an agent. */
    void (*answered)(struct scene *s, const char *text);
    /* The person has left, and is in the scene no more. NULL: the scene ends with it. */
    void (*left)(struct scene *s, const struct service_user *u, const char *name);
};

#endif
