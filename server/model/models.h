/* The models that the daemon knows: those it was started with, and the files of --model-dir. They
 * are loaded and unloaded while the daemon serves. Users of models register callbacks for the
 * unload; this folder does not know them. All functions are called on the loop. */
#ifndef SERVER_MODEL_MODELS_H
#define SERVER_MODEL_MODELS_H

#include "server/model/known_models.h"

void models_init(struct models *r, const struct models_config *config);
/* Every model must be stopped, and the timer closed or never opened. */
void models_deinit(void *models);
/* Open and close the timer on the loop. */
void models_open(struct models *r);
void models_close(struct models *r);

/* Asks for the weights of principals again, because they have changed. */
void models_reweigh(struct models *r);

/* Users retire and close in the order in which they were added. */
void models_add_user(struct models *r, struct model_user *u);

/* Tells the users that m is ready, if it is. */
void models_tell_ready(const struct models *r, const struct model *m);

/* Registers a model and starts to load it, at the daemon's start. type is NULL if the path tells
 * the kind of agent. */
enum status models_start(struct models *r, const char *name, const char *path,
                         const struct agent_type *type, struct error *err) MUST_CHECK;
/* A model of the configuration. */
struct models_wanted {
    const char *name, *path; /* copied */
};

/* Makes a model known that is no file; models_load loads it. spec must outlive the models. Does
 * nothing if the model was added before. EXISTS if another model has the name; INVALID names the
 * rule for names. */
enum status models_add_type(struct models *r, const char *name, const struct agent_type *type,
                            const void *spec, struct error *err) MUST_CHECK;

/* Makes the model of a path known, as a file of --model-dir is; models_load loads it. A model of
 * that kind which has the name gets the path, for its next load. EXISTS if another model has the
 * name. */
enum status models_add_path(struct models *r, const char *name, const char *path,
                            struct error *err) MUST_CHECK;

/* Checks whether models_configure can do this: no model that would go is loading or is refused by a
 * user, and there is room for the new models. */
enum status models_check(const struct models *r, const struct models_wanted *wanted, size_t n,
                         struct error *err) MUST_CHECK;
/* Changes the models that were started into the wanted ones. Called after models_check, without a
 * return to the loop between the two. New models are loaded. A model that is not wanted is
 * unloaded, as by models_unload, and forgotten. A model that has another path now is unloaded, then
 * loaded from the new path. The models of --model-dir, plug-ins and echo stay. The order stays, and
 * with it the default model: new models come last. */
void models_configure(struct models *r, const struct models_wanted *wanted, size_t n);

/* Registers the files of --model-dir, and removes those that are missing and not loaded. */
enum status models_scan(struct models *r, struct error *err) MUST_CHECK;

/* Prepares models_get for a request that names a model. With memory_bytes, a known model that is
 * not loaded is loaded, and idle models may be unloaded for it. The same as models_load otherwise;
 * sets *ret_done also if models_get is to report the error. */
enum status models_want(struct models *r, const char *name, struct models_wait *w, bool *ret_done,
                        struct error *err) MUST_CHECK;

/* The same for a request that does not wait. models_get then says when to come again. */
void models_request(struct models *r, const char *name);

/* Finds a loaded or loading model by its name. "" is the default model: the first loaded one; with
 * memory_bytes the first one, loaded or not. NOT_FOUND names the served models; UNAVAILABLE if the
 * model is known but not loaded. */
enum status models_get(struct model **out, const struct models *r, const char *name,
                       struct error *err) MUST_CHECK;

/* Returns the entry of a model; NULL: the model is not known. */
struct model_entry *models_find(const struct models *r, const char *name);

/* Loads a model. w is notified when the model is loaded or has failed. With *ret_done the model is
 * loaded already, and w is not used. NOT_FOUND for an unknown name; UNAVAILABLE while the model
 * unloads or the daemon stops; EXHAUSTED. */
enum status models_load(struct models *r, const char *name, struct models_wait *w, bool *ret_done,
                        struct error *err) MUST_CHECK;
/* Unloads a model, which takes nothing new from now on. Requests in flight go on for at most
 * drain_timeout_ms. Then the model's conversations are closed, the model is stopped, and w is
 * notified. *ret_done as above. Fails if a user of the model refuses. */
enum status models_unload(struct models *r, const char *name, struct models_wait *w, bool *ret_done,
                          struct error *err) MUST_CHECK;
/* Unloads a model that a client needs no more, as for room: with memory_bytes, so that the next
 * request loads it again, and only if nothing uses it. Returns whether the model goes. */
bool models_release(struct models *r, const char *name);
/* Ends the wait: done is not called. Does nothing if w does not wait. */
void models_leave(struct models_wait *w);

/* Ends all waits, by calling done. No load or unload begins afterwards. */
void models_end(void *models);
/* Stops all models, after models_end, once nothing loads and no user is busy. Returns whether all
 * have stopped. If not, on_idle is called when one has stopped, and the caller calls this again. */
bool models_stop(struct models *r) MUST_CHECK;

#endif
