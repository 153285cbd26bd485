/* What the daemon holds of the models that it knows: an entry for each, and those that wait for it
 * or use it. models.h changes them; budget.h chooses which of them make room for another. Loop. */
#ifndef SERVER_MODEL_KNOWN_MODELS_H
#define SERVER_MODEL_KNOWN_MODELS_H

#include <uv.h>

#include "base/list.h"
#include "server/model/model.h"

struct models;

enum { MODELS_MAX_LOADED = 128, MODELS_MAX_KNOWN = 1024 };

enum model_entry_state {
    MODEL_ENTRY_UNLOADED,
    MODEL_ENTRY_LOADING,
    MODEL_ENTRY_READY,
    MODEL_ENTRY_UNLOADING
};

/* A wait for a load or an unload: the caller's memory until done, or models_leave. */
struct models_wait {
    struct link link;
    /* Called once, not inside a function of this header except models_end. */
    void (*done)(struct models_wait *w, const struct error *err);
};

/* A known model, loaded or not. */
struct model_entry {
    struct link link;
    struct models *models;
    char *name, *path;             /* path NULL: echo, unless there is a type */
    const struct agent_type *type; /* of plug-ins and of models_add_type; NULL: by the path */
    const void *spec;              /* of models_add_type; else NULL */
    bool is_from_dir;
    bool is_forgotten; /* removed once it is unloaded */
    char *next_path;   /* loaded once it is unloaded; NULL: none */
    enum model_entry_state state;
    struct model *model; /* NULL if MODEL_ENTRY_UNLOADED */
    bool is_stopping;    /* unloading: its users have closed all uses of it */
    uint64_t drain_until_us;
    struct error why;  /* unloaded: the last load's failure; its text is "" for none */
    struct list waits; /* for the end of the load or unload */
    struct list wants; /* for a load that begins when there is room, or when the unload is over */
    uint64_t bytes;    /* that it took when it was loaded last; 0: never, or nothing */
    uint64_t used_us;  /* when it was asked for last */
    struct models_wait own; /* of a request that does not wait itself */
    bool is_kept_out;       /* unloaded by a call: a request does not load it */
};

/* A user of models, in its own memory, which outlives the models. Each callback may be NULL. */
struct model_user {
    struct link link;
    /* The model takes turns from now on: it is loaded, or a worker computes for it again. */
    void (*ready)(struct model_user *u, const struct model *m);
    /* The user still uses the model, which is stopped only afterwards. */
    bool (*is_busy)(const struct model_user *u, const struct model *m);
    /* Why the model may not be unloaded now. */
    enum status (*refuse_unload)(const struct model_user *u, const struct model *m,
                                 struct error *err);
    /* The model is about to be unloaded: nothing new of it is taken; requests in flight go on. */
    void (*retire)(struct model_user *u, struct model *m);
    /* Closes the user's objects of the model; none is left once the user is not busy. */
    void (*close)(struct model_user *u, struct model *m);
};

struct models_config {
    uv_loop_t *loop;
    const struct env *env;
    const char *model_dir;     /* NULL: there is none */
    uint64_t drain_timeout_ms; /* of an unload */
    uint64_t memory_bytes;     /* for weights and KV pages of all models; 0: no bound */
    struct model_config model; /* of each model, without its name and path */
    /* Whether a load or unload may begin now. */
    enum status (*check_serving)(void *arg, struct error *err);
    /* The model loads, is ready, has failed, or drains. */
    void (*on_change)(void *arg, struct model *m);
    void (*on_idle)(void *arg); /* a load is over, or a model has stopped */
    void *arg;
};

struct models {
    struct models_config config;
    struct list entries; /* in order of registration; the first loaded one is the default */
    size_t n_entries;
    struct model *loaded[MODELS_MAX_LOADED]; /* [n_loaded] or loading; [0] is the default */
    size_t n_loaded;
    size_t n_loading;
    size_t n_running; /* started and not stopped */
    struct list users;
    uv_timer_t timer; /* active while a model unloads */
    bool has_ended, is_stopping;
    uint64_t n_evicted;       /* models unloaded to make room */
    struct list light_steps;  /* of loaded models: what waits to be computed on the loop */
    struct compiler compiler; /* of constraints, for all models */
};

#endif
