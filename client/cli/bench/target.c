#include "client/cli/bench/target.h"

#include <string.h>

const struct target_type *target_type_of(const char *address, const char **ret_rest)
{
    static const struct target_type *const types[] = {&parley_target,     &openai_target,
                                                      &openai_tls_target, &kserve_target,
                                                      &act_target,        &grpc_target};

    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        size_t len = strlen(types[i]->scheme);

        if (strncmp(address, types[i]->scheme, len) == 0 && address[len] != '\0') {
            *ret_rest = address + len;
            return types[i];
        }
    }
    return NULL;
}
