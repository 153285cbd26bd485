/* The plan of a chat service: which menu people come to, which pools they can wait in, and what the
 * worlds of each pool say and do. It is read from a YAML file with the keys of ParlAI's chat
 * services (plan_file.c). It never changes while the daemon runs. */
#ifndef SERVER_SERVICE_PLAN_H
#define SERVER_SERVICE_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct service_world;

enum {
    SERVICE_MAX_POOLS = 64,
    SERVICE_MAX_QUESTIONS = 32,
    SERVICE_MAX_CHOICES = 16, /* of a question, and the pools that a menu offers */
    SERVICE_MAX_PEOPLE = 64,  /* of a task */
    SERVICE_MAX_ELIGIBLE = 16,
    SERVICE_MAX_IGNORED = 64,
    SERVICE_TIMEOUT_S = 300, /* of a pool, as ParlAI has it */
    SERVICE_NOTICE_S = 30,
    SERVICE_GRACE_S = 120,
    SERVICE_MAX_TOKENS = 256,
    SERVICE_MAX_S = 7 * 24 * 3600,
};

/* A question of a form. */
struct service_question {
    const char *key, *text;
    const char *choices[SERVICE_MAX_CHOICES]; /* [n_choices] offered as quick replies */
    size_t n_choices;
    bool is_strict; /* nothing but a choice is an answer */
};

/* What a world of some type says. Texts that are NULL are not said. {KEY} in a text stands for what
 * the person has answered under KEY. */
struct service_script {
    const struct service_world *world;
    const char *welcome; /* to each person at the begin */
    const char *closing; /* at the end: of a form, behind the last answer */
    const char *invalid; /* to an answer that is none */
    const char *moving;  /* of a menu, before the name of the chosen pool */
    bool has_exit;       /* of a menu: EXIT ends the service for the person */
    const char *exit;    /* of a menu: the quick reply for it; NULL: none */
    bool keeps_exit;     /* it is offered always, not only at first */
    bool ignores_case;   /* of a menu: in what is chosen */
    struct service_question questions[SERVICE_MAX_QUESTIONS]; /* [n_questions] of a form */
    size_t n_questions;
};

/* When the agent of a room answers. */
enum service_policy {
    SERVICE_ANSWERS_ALL,   /* each text */
    SERVICE_ANSWERS_NAME,  /* each text with its name */
    SERVICE_ANSWERS_COUNT, /* each n-th text */
};

enum service_names { SERVICE_NAMES_AUTO, SERVICE_NAMES_ALWAYS, SERVICE_NAMES_NEVER };

struct service_datum {
    const char *key, *value;
};

struct service_pool_plan {
    const char *name, *title;         /* title: the entry of the menu */
    unsigned line;                    /* in the file */
    struct service_script onboarding; /* world NULL: there is none */
    struct service_script task;
    uint32_t timeout_s, notice_s;
    uint32_t idle_s; /* a task, or a form, without a text for so long ends; 0: it does not */
    size_t n_people; /* of a task: agents_required */
    const char *backup, *next;             /* names of pools; next may be EXIT; NULL: the menu */
    size_t backup_at;                      /* index of backup; SIZE_MAX: none */
    size_t next_at;                        /* index of next; SIZE_MAX: none, or EXIT */
    const char *roles[SERVICE_MAX_PEOPLE]; /* [n_roles]; NULL: who gets it is left out */
    size_t n_roles;                        /* 0: Agent_0, Agent_1, … */
    struct service_datum eligible[SERVICE_MAX_ELIGIBLE]; /* [n_eligible] what must be answered */
    size_t n_eligible;
    const char *model, *system,
        *agent_name;              /* model NULL: the task has no agent; "": the default */
    char *own_model, *own_system; /* owned: those of a world of one's own; NULL: none */
    enum service_policy policy;
    uint32_t policy_n;
    uint32_t max_tokens; /* of an answer; 0: as many as the context has room for */
    enum service_names names;
};

struct service_plan {
    char *path;
    struct service_script menu;
    struct service_pool_plan pools[SERVICE_MAX_POOLS]; /* [n_pools] */
    size_t n_pools;
    const char *task_name, *password; /* password NULL: none */
    const char *principal;            /* whose agents' conversations are; NULL: not given */
    const char *log;                  /* a file NAME.jsonl; NULL: nothing is logged */
    uint32_t grace_s;                 /* a person who is away for so long is gone */
    uint32_t max_workers;             /* ParlAI's threads; it bounds nothing */
    char
        *ignored[SERVICE_MAX_IGNORED]; /* [n_ignored] owned: ParlAI's keys that mean nothing here */
    size_t n_ignored;
    void *document; /* owned: the texts */
};

/* Reads the file. INVALID names the file, the line, the key, and what to do. */
enum status service_plan_open(struct service_plan **out, const char *path,
                              struct error *err) MUST_CHECK;
void service_plan_close(struct service_plan *p); /* p may be NULL */

/* Returns the pool's index; SIZE_MAX: there is none. */
size_t service_plan_find(const struct service_plan *p, const char *name);

#endif
