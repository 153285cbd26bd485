/* The models that the daemon knows: those it was started with, and the files of --model-dir. They
 * are loaded and unloaded while the daemon serves. Users of models register callbacks for the
 * unload; this folder does not know them. Loop. */
#ifndef SERVER_MODEL_MODELS_H
#define SERVER_MODEL_MODELS_H

#include "server/model/known_models.h"

void models_init(struct models *r, const struct models_config *config);
/* Every model must be stopped, and the timer closed or never opened. */
void models_deinit(void *models);
/* Open and close the timer on the loop. */
void models_open(struct models *r);
void models_close(struct models *r);

/* The weights of principals have changed. */
void models_reweigh(struct models *r);

/* Users retire and close in the order in which they were added. */
void models_add_user(struct models *r, struct model_user *u);

/* Tells the users that m is ready, if it is. */
void models_tell_ready(const struct models *r, const struct model *m);

/* Registers a model and starts to load it: for the daemon's start. type: of an agent that its path
 * does not tell; NULL: by the path. */
enum status models_start(struct models *r, const char *name, const char *path,
                         const struct agent_type *type, struct error *err) MUST_CHECK;
/* A model of the configuration. */
struct models_wanted {
    const char *name, *path; /* copied */
};

/* Makes a model known that is no file, to be loaded by models_load. spec outlives the models.
 * EXISTS where the name is another's; fine where it was added before. INVALID names the rule for
 * names. */
enum status models_add_type(struct models *r, const char *name, const struct agent_type *type,
                            const void *spec, struct error *err) MUST_CHECK;

/* Whether models_configure can do it: a model that would go is neither loading nor refused by a
 * user, and there is room for the new ones. */
enum status models_check(const struct models *r, const struct models_wanted *wanted, size_t n,
                         struct error *err) MUST_CHECK;
/* After models_check, without a return to the loop. New models are loaded; those that were started
 * and are not wanted are unloaded and forgotten, as by models_unload; one with another path is
 * unloaded, then loaded from it. Those of --model-dir, plug-ins and echo stay. The order, and with
 * it the default, stays: new ones come last. */
void models_configure(struct models *r, const struct models_wanted *wanted, size_t n);

/* Registers the files of --model-dir, and removes those that are missing and not loaded. */
enum status models_scan(struct models *r, struct error *err) MUST_CHECK;

/* For a request that names a model, before models_get: with memory_bytes, a known model that is not
 * loaded is loaded, and idle ones may be unloaded for it. As models_load; *ret_done also where
 * models_get is to report the error. */
enum status models_want(struct models *r, const char *name, struct models_wait *w, bool *ret_done,
                        struct error *err) MUST_CHECK;

/* The same for a request that does not wait: models_get then says when to come again. */
void models_request(struct models *r, const char *name);

/* A loaded or loading model by name, "" the default: the first loaded one; with
 * memory_bytes the first one, loaded or not. STATUS_NOT_FOUND names the served ones;
 * UNAVAILABLE: known, but not loaded. */
enum status models_get(struct model **out, const struct models *r, const char *name,
                       struct error *err) MUST_CHECK;

/* NULL: not known. */
struct model_entry *models_find(const struct models *r, const char *name);

/* w is notified when the model is loaded or has failed; *ret_done: it is loaded already, and w is
 * not used. NOT_FOUND for an unknown name; UNAVAILABLE while it is unloaded or the daemon stops;
 * EXHAUSTED. */
enum status models_load(struct models *r, const char *name, struct models_wait *w, bool *ret_done,
                        struct error *err) MUST_CHECK;
/* The model takes nothing new. Requests in flight go on for at most drain_timeout_ms; then its
 * conversations are closed, it is stopped, and w is notified. *ret_done as above. Also fails with
 * its users' refusals. */
enum status models_unload(struct models *r, const char *name, struct models_wait *w, bool *ret_done,
                          struct error *err) MUST_CHECK;
/* done is not called. Does nothing when w is not waiting. */
void models_leave(struct models_wait *w);

/* Calls done for every waiter; no load or unload begins afterwards. */
void models_end(void *models);
/* After models_end, once nothing loads and no user is busy: stops all models. Returns whether all
 * have stopped; on_idle is called as each does, and then models_stop is to be called again. */
bool models_stop(struct models *r) MUST_CHECK;

#endif
