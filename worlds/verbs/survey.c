#include "worlds/verbs/survey.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "worlds/message/act.h"
#include "worlds/participant/participant.h"

enum status survey_task(struct participant *task, uint64_t n_most, uint64_t *n_done, survey_fn each,
                        void *arg, struct error *err)
{
    static const struct participant_slot place = {0};
    struct participant_clone *c = xalloc(participant_clone_size(task));
    struct arena arena;
    enum status rc = participant_clone_init(c, task, &place, err);
    bool is_over = false;

    arena_init(&arena, SIZE_MAX);
    while (rc == STATUS_OK && !is_over && (n_most == 0 || *n_done < n_most)) {
        struct act act;

        arena_deinit(&arena);
        act_init(&act, &arena);
        rc = task->type->act(c, &act, err);
        if (rc != STATUS_OK)
            break;
        is_over = task->type->epoch_done(c);
        if (act_is_padding(&act))
            continue;
        ++*n_done;
        rc = each(arg, &act, err);
    }
    participant_clone_deinit(c);
    arena_deinit(&arena);
    free(c);
    return rc;
}
