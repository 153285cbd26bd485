/* parley eval: one of three scores, by what the command line names. */
#include "agents/verbs/verbs.h"
#include "worlds/verbs/verbs.h"

enum exit_code eval_run(const struct verb *verb, int argc, char **argv)
{
    if (eval_task_is_wanted(argc, argv))
        return eval_task_run(verb, argc, argv);
    if (score_is_wanted(argc, argv))
        return score_run(verb, argc, argv);
    return eval_golden_run(verb, argc, argv);
}
