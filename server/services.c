#include "server/services.h"

#include <string.h>

#include "server/health.h"

enum {
    N_RPCS = N_CONVERSATIONS_RPCS + N_TURN_RPCS + N_WATCH_RPCS + N_MODELS_RPCS + N_ADMIN_RPCS +
             N_HEALTH_RPCS + N_ACT_RPCS + N_ATTACH_RPCS + N_TRAIN_RPCS + N_PARAMS_RPCS +
             N_PARAMS_UPDATE_RPCS + N_KSERVE_RPCS + N_KSERVE_INFER_RPCS + N_KSERVE_REPOSITORY_RPCS +
             N_REFLECTION_RPCS
};

const struct rpc *services_rpcs(size_t *ret_n)
{
    static struct rpc table[N_RPCS];
    static const struct {
        const struct rpc *rpcs;
        size_t n;
    } services[] = {
        {conversations_rpcs, N_CONVERSATIONS_RPCS},
        {turn_rpcs, N_TURN_RPCS},
        {watch_rpcs, N_WATCH_RPCS},
        {models_rpcs, N_MODELS_RPCS},
        {admin_rpcs, N_ADMIN_RPCS},
        {health_rpcs, N_HEALTH_RPCS},
        {act_rpcs, N_ACT_RPCS},
        {attach_rpcs, N_ATTACH_RPCS},
        {train_rpcs, N_TRAIN_RPCS},
        {params_rpcs, N_PARAMS_RPCS},
        {params_update_rpcs, N_PARAMS_UPDATE_RPCS},
        {kserve_rpcs, N_KSERVE_RPCS},
        {kserve_infer_rpcs, N_KSERVE_INFER_RPCS},
        {reflection_rpcs, N_REFLECTION_RPCS},
        {kserve_repository_rpcs, N_KSERVE_REPOSITORY_RPCS},
    };
    size_t n = 0;

    for (size_t i = 0; i < sizeof(services) / sizeof(services[0]); i++) {
        memcpy(table + n, services[i].rpcs, services[i].n * sizeof(table[0]));
        n += services[i].n;
    }
    *ret_n = n;
    return table;
}
