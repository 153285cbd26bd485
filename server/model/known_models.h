/* The models that the daemon knows: an entry for each model, with the calls that wait for the model
 * and the users of it. models.h changes the entries; budget.h chooses which models make room for
 * another one. All functions are called on the loop. */
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

/* A wait for a load or an unload. It lies in the caller's memory until done is called, or
 * models_leave is. */
struct models_wait {
    struct link link;
    /* Called once, not inside a function of this header except models_end. */
    void (*done)(struct models_wait *w, const struct error *err);
};

/* A known model, loaded or not. */
struct model_entry {
    struct link link;
    struct models *models;
    char *name, *path;             /* path is NULL for echo, and for models with a type */
    const struct agent_type *type; /* of plug-ins and of models_add_type; NULL: the path decides */
    const void *spec;              /* of models_add_type; else NULL */
    bool is_from_dir;
    bool is_forgotten; /* the entry is removed once the model is unloaded */
    char *next_path;   /* the path from which the model is loaded once it is unloaded; NULL: none */
    enum model_entry_state state;
    struct model *model; /* NULL if MODEL_ENTRY_UNLOADED */
    bool is_stopping;    /* the model unloads, and its users have closed all uses of it */
    uint64_t drain_until_us;
    struct error why;  /* the failure of the last load; the text is "" if it did not fail */
    struct list waits; /* of struct models_wait: for the end of the load or unload */
    struct list wants; /* of struct models_wait: for a load that begins when there is room, or when
                          the unload is over */
    uint64_t bytes;    /* what the model took when it was loaded last; 0: it was never loaded */
    uint64_t used_us;  /* when the model was asked for last */
    struct models_wait own; /* the entry's own wait, for a request that does not wait itself */
    bool is_kept_out;       /* a call has unloaded the model, so no request loads it again */
};

/* A user of models, in its own memory, which outlives the models. Each callback may be NULL. */
struct model_user {
    struct link link;
    /* Tells that the model takes turns from now on: it is loaded, or a worker computes for it
     * again. */
    void (*ready)(struct model_user *u, const struct model *m);
    /* Returns whether the user still uses the model, which is stopped only afterwards. */
    bool (*is_busy)(const struct model_user *u, const struct model *m);
    /* Says why the model may not be unloaded now; OK: it may be. */
    enum status (*refuse_unload)(const struct model_user *u, const struct model *m,
                                 struct error *err);
    /* Tells that the model is about to be unloaded: the user takes nothing new of it; requests in
     * flight go on. */
    void (*retire)(struct model_user *u, struct model *m);
    /* Closes the user's objects of the model; none is left once the user is not busy. */
    void (*close)(struct model_user *u, struct model *m);
};

struct models_config {
    uv_loop_t *loop;
    const struct env *env;
    const char *model_dir;     /* NULL: there is none */
    bool is_offline;           /* nothing is fetched */
    uint64_t drain_timeout_ms; /* of an unload */
    uint64_t memory_bytes;     /* for weights and KV pages of all models; 0: no bound */
    struct model_config model; /* of each model, without its name and path */
    /* Checks whether a load or unload may begin now. */
    enum status (*check_serving)(void *arg, struct error *err);
    /* Tells that the model loads, is ready, has failed, or drains. */
    void (*on_change)(void *arg, struct model *m);
    void (*on_idle)(void *arg); /* tells that a load is over, or that a model has stopped */
    void *arg;
};

struct models {
    struct models_config config;
    struct list entries; /* in order of registration; the first loaded one is the default */
    size_t n_entries;
    struct model *loaded[MODELS_MAX_LOADED]; /* [n_loaded] loaded or loading; [0] is the default */
    size_t n_loaded;
    size_t n_loading;
    size_t n_running; /* models that are started and not stopped */
    struct list users;
    uv_timer_t timer; /* active while a model unloads */
    bool has_ended, is_stopping;
    struct list pulls; /* of struct model_pull_job */
    size_t n_pulls;
    uint64_t n_evicted;       /* models unloaded to make room */
    struct list light_steps;  /* of struct model: those with a step that waits to run on the loop */
    struct compiler compiler; /* compiles constraints for all models */
};

#endif
