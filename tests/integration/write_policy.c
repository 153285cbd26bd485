/* Writes the tutorial's policy for CartPole, with fresh parameters: `write_policy FILE`; followed
 * by "lstm", a recurrent one that also predicts the return; by INPUTS ACTIONS, one for another
 * environment. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agents/policy/policy.h"

int main(int argc, char **argv)
{
    struct policy_spec spec;
    struct error err;

    if (argc < 2 || argc > 4 || (argc == 3 && strcmp(argv[2], "lstm") != 0))
        return 2;
    policy_spec_cartpole(&spec);
    if (argc == 4) {
        spec.n_observations = strtoul(argv[2], NULL, 10);
        spec.n_actions = strtoul(argv[3], NULL, 10);
        spec.dropout = 0;
    }
    if (argc == 3) {
        spec.kind = POLICY_LSTM;
        spec.n_hidden = 16;
        spec.dropout = 0;
        spec.has_value = true;
    }
    if (policy_file_create(argv[1], &spec, 1, &err) == STATUS_OK)
        return 0;
    (void)fprintf(stderr, "%s\n", err.text);
    return 1;
}
