/* The models that the daemon knows: those it was started with, and the files of --model-dir. They
 * are loaded and unloaded while it serves. Loop. */
#ifndef SERVER_REPOSITORY_H
#define SERVER_REPOSITORY_H

#include <uv.h>

#include "base/list.h"
#include "server/model.h"

struct daemon;

enum { DAEMON_MAX_MODELS = 64, REPOSITORY_MAX_MODELS = 1024 };

enum entry_state { ENTRY_UNLOADED, ENTRY_LOADING, ENTRY_READY, ENTRY_UNLOADING };

/* A model that is known, whether loaded or not. */
struct entry {
    struct link link;
    struct daemon *daemon;
    char *name, *path; /* path NULL: echo */
    bool is_from_dir;
    enum entry_state state;
    struct model *model; /* but for ENTRY_UNLOADED */
    bool is_stopping;    /* unloading: its conversations are closed */
    uint64_t drain_until_us;
    struct error why;  /* unloaded: the last load's failure; its text "" for none */
    struct list waits; /* for the end of what it is about */
};

struct repository {
    struct daemon *daemon;
    struct list entries; /* as they were made known: of those that are loaded, the first is the
                            default */
    size_t n_entries;
    uv_timer_t timer; /* while something unloads */
};

/* One who waits for a load or an unload: the caller's memory until done, or repository_leave. */
struct repository_wait {
    struct link link;
    /* Once, not inside a function of this header but repository_end. */
    void (*done)(struct repository_wait *w, const struct error *err);
};

void repository_init(struct repository *r, struct daemon *d);
/* Every model is stopped; the timer is closed, or was never opened. */
void repository_deinit(struct repository *r);

/* Makes a model known, and starts to load it: for the daemon's start. */
enum status repository_start(struct repository *r, const char *name, const char *path,
                             struct error *err) MUST_CHECK;
/* Makes the files of --model-dir known, and forgets those that are gone and not loaded. */
enum status repository_scan(struct repository *r, struct error *err) MUST_CHECK;

/* NULL: not known. */
struct entry *repository_find(const struct repository *r, const char *name);

/* w is told when it is loaded, or why it is not; *ret_done: it is already, w is not used. NOT_FOUND
 * for a name that is not known; UNAVAILABLE while it is unloaded or the daemon stops; EXHAUSTED. */
enum status repository_load(struct repository *r, const char *name, struct repository_wait *w,
                            bool *ret_done, struct error *err) MUST_CHECK;
/* From now on it takes nothing new. What is in flight goes on, for as long as a drain may take;
 * then its conversations are closed, and it is gone: w is told. *ret_done as above. PRECONDITION
 * while it learns or observers are attached to it. */
enum status repository_unload(struct repository *r, const char *name, struct repository_wait *w,
                              bool *ret_done, struct error *err) MUST_CHECK;
/* w is not told. Does nothing for one that waits for nothing. */
void repository_leave(struct repository_wait *w);

/* For the daemon: a model's load is over. */
void repository_loaded(struct repository *r, struct model *m);
/* For the daemon, which ends: whoever waits is told, and nothing more is begun. */
void repository_end(struct repository *r);

#endif
