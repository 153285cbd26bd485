/* Names of ParlAI's own tasks, for data that ParlAI has downloaded or that stand in files. */
#ifndef WORLDS_VERBS_TASK_NAMES_H
#define WORLDS_VERBS_TASK_NAMES_H

#include <stdbool.h>

#include "base/arena.h"
#include "base/status.h"
#include "worlds/message/datatype.h"

struct task_places {
    const char *data_path;       /* ParlAI's folder of data */
    const char *file_path;       /* of fromfile:…; NULL: not given */
    bool has_datatype_extension; /* file_path is followed by _train.txt, _valid.txt or _test.txt */
};

/* Writes the list of tasks (with commas between) in which ParlAI's names are replaced by their
 * files: babi, babi:all1k, babi:all10k, babi:task1k:N, babi:task10k:N, fromfile:parlaiformat and
 * fromfile:fbformat, in letters of either case. Other tasks stay. The list is in arena, or tasks
 * itself. NOT_FOUND: the file is not there. INVALID: fromfile has no file. */
enum status task_names_resolve(const char **out, const char *tasks,
                               const struct task_places *places, enum fold fold,
                               struct arena *arena, struct error *err) MUST_CHECK;

#endif
