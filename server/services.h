/* Every method that the daemon answers: the one table by which the port dispatches. */
#ifndef SERVER_SERVICES_H
#define SERVER_SERVICES_H

#include "server/call.h"

/* [*ret_n]; lives for ever. */
const struct rpc *services_rpcs(size_t *ret_n);

/* The rows of each service. */
enum { N_CONVERSATIONS_RPCS = 7, N_TURN_RPCS = 2, N_WATCH_RPCS = 1, N_MODELS_RPCS = 4 };
enum { N_ADMIN_RPCS = 1, N_ACT_RPCS = 3, N_ATTACH_RPCS = 1, N_TRAIN_RPCS = 1 };
enum { N_KSERVE_RPCS = 15, N_KSERVE_INFER_RPCS = 2, N_KSERVE_REPOSITORY_RPCS = 3 };
enum { N_REFLECTION_RPCS = 2 };
enum { N_PARAMS_RPCS = 5, N_PARAMS_UPDATE_RPCS = 2 };
extern const struct rpc conversations_rpcs[N_CONVERSATIONS_RPCS];
extern const struct rpc turn_rpcs[N_TURN_RPCS];
extern const struct rpc watch_rpcs[N_WATCH_RPCS];
extern const struct rpc models_rpcs[N_MODELS_RPCS];
extern const struct rpc admin_rpcs[N_ADMIN_RPCS];
extern const struct rpc act_rpcs[N_ACT_RPCS];
extern const struct rpc attach_rpcs[N_ATTACH_RPCS];
extern const struct rpc train_rpcs[N_TRAIN_RPCS];
extern const struct rpc params_rpcs[N_PARAMS_RPCS];
extern const struct rpc kserve_rpcs[N_KSERVE_RPCS];
extern const struct rpc kserve_repository_rpcs[N_KSERVE_REPOSITORY_RPCS];
extern const struct rpc reflection_rpcs[N_REFLECTION_RPCS];
extern const struct rpc kserve_infer_rpcs[N_KSERVE_INFER_RPCS];
extern const struct rpc params_update_rpcs[N_PARAMS_UPDATE_RPCS];

#endif
