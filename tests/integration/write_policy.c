/* Writes the tutorial's policy for CartPole, with fresh parameters: `write_policy FILE`. */
#include <stdio.h>

#include "agents/policy/policy.h"

int main(int argc, char **argv)
{
    struct policy_spec spec;
    struct error err;

    if (argc != 2)
        return 2;
    policy_spec_cartpole(&spec);
    if (policy_file_create(argv[1], &spec, 1, &err) == STATUS_OK)
        return 0;
    (void)fprintf(stderr, "%s\n", err.text);
    return 1;
}
