/* Stand-ins for models that are not served: what is stored of a conversation needs no model to be
 * read, forked, rewound or closed. Their clones take in stored turns and keep nothing of them; no
 * turn is asked of them. All functions are called on the loop. */
#ifndef SERVER_MODEL_ABSENT_H
#define SERVER_MODEL_ABSENT_H

#include "base/list.h"
#include "server/model/model.h"

struct absent_models {
    const struct env *env;
    struct list models;
};

void absent_models_init(struct absent_models *all, const struct env *env);
/* Frees the stand-ins. Nobody may use one any more. */
void absent_models_deinit(struct absent_models *all);

/* Returns the stand-in for this version of the model. A stand-in is made when it is first asked
 * for, and stays: there are as many as there were models. EXHAUSTED. */
enum status absent_models_get(struct model **out, struct absent_models *all, const char *name,
                              const char *version, struct error *err) MUST_CHECK;

/* Returns whether m is a stand-in. model_check_ready fails for a stand-in without saying why. */
bool model_is_absent(const struct model *m);

#endif
