/* Every service that the daemon answers. Each table is defined with its handlers and listed
 * here. */
#ifndef SERVER_API_SERVICES_H
#define SERVER_API_SERVICES_H

#include "server/call/call.h"

/* clang-format off */
#define SERVICES(TABLE) \
    TABLE(conversations_rpcs) \
    TABLE(conversations_list_rpcs) \
    TABLE(conversations_import_rpcs) \
    TABLE(turn_rpcs) \
    TABLE(ask_rpcs) \
    TABLE(watch_rpcs) \
    TABLE(embeddings_rpcs) \
    TABLE(models_rpcs) \
    TABLE(admin_rpcs) \
    TABLE(health_rpcs) \
    TABLE(act_rpcs) \
    TABLE(attach_rpcs) \
    TABLE(train_rpcs) \
    TABLE(learn_rpcs) \
    TABLE(params_rpcs) \
    TABLE(params_update_rpcs) \
    TABLE(kserve_rpcs) \
    TABLE(kserve_infer_rpcs) \
    TABLE(reflection_rpcs) \
    TABLE(kserve_repository_rpcs) \
    TABLE(conversations_update_rpcs) \
    TABLE(agents_rpcs) \
    TABLE(env_rpcs) \
    TABLE(env_rollout_rpcs) \
    TABLE(registry_rpcs) \
    TABLE(store_rpcs) \
    TABLE(store_pull_rpcs) \
    TABLE(replay_rpcs) \
    TABLE(replay_insert_rpcs) \
    TABLE(replay_sample_rpcs) \
    TABLE(work_rpcs) \
    TABLE(work_map_rpcs) \
    TABLE(work_attach_rpcs)
/* clang-format on */

#define SERVICES_DECLARE(table) extern const struct rpc_table table;
SERVICES(SERVICES_DECLARE)

struct params_spec;
struct access_sharing;
struct arena;

/* Reads what the service describes a set of parameters by: params_keeping's read_config. */
enum status services_read_params(struct params_spec *out, struct access_sharing *sharing,
                                 const void *config, size_t size_bytes, struct arena *arena,
                                 struct error *err) MUST_CHECK;

/* [*ret_n]; static. */
const struct rpc_table *const *services_tables(size_t *ret_n);

#endif
