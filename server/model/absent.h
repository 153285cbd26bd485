/* Stand-ins for models that are not served: what is stored of a conversation needs no model to be
 * read, forked, rewound or closed. Their clones take in stored turns and keep nothing of them; no
 * turn is asked of them. Loop. */
#ifndef SERVER_MODEL_ABSENT_H
#define SERVER_MODEL_ABSENT_H

#include "base/list.h"
#include "server/model/model.h"

struct absent_models {
    const struct env *env;
    struct list models;
};

void absent_models_init(struct absent_models *all, const struct env *env);
void absent_models_deinit(struct absent_models *all); /* nobody uses one */

/* The stand-in for this version of the model. It is made when first asked for and stays: there are
 * as many as models that were once served. */
enum status absent_models_get(struct model **out, struct absent_models *all, const char *name,
                              const char *version, struct error *err) MUST_CHECK;

/* Whether m is a stand-in, for which model_check_ready fails without saying why. */
bool model_is_absent(const struct model *m);

#endif
