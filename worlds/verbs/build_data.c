/* parley build-data: a task's data file and its index, as a :stream reads them. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/output/out.h"
#include "worlds/participant/participant.h"
#include "worlds/teachers/data_file.h"
#include "worlds/verbs/data.h"
#include "worlds/verbs/verbs.h"

struct build_data {
    struct data_options data;
    struct participant_options agent;
    bool preprocess, is_json;
};

static const struct option_row build_data_rows[] = {
    {"preprocess|pytp", "BOOL",
     "let --agent observe each example, and store its vectors for this agent (false)", OPTION_BOOL,
     offsetof(struct build_data, preprocess), 0},
    {"json", NULL, "print one JSON object", OPTION_FLAG, offsetof(struct build_data, is_json), 0},
    {0},
};

static void build_data_print(const struct build_data *b, const char *path,
                             const struct data_index *x)
{
    if (b->is_json)
        (void)out_json(json_pack("{s:s,s:I,s:I,s:I,s:I}", "file", path, "episodes",
                                 (json_int_t)x->n_episodes, "examples", (json_int_t)x->n_examples,
                                 "bytes", (json_int_t)x->data_bytes, "skipped",
                                 (json_int_t)x->n_skipped)); /* out_end reports a failure */
    else
        printf("%s: %llu episodes, %llu examples, %llu bytes; %llu bad lines left out\n", path,
               (unsigned long long)x->n_episodes, (unsigned long long)x->n_examples,
               (unsigned long long)x->data_bytes, (unsigned long long)x->n_skipped);
}

static enum status build_data_write(const struct build_data *b, struct error *err)
{
    struct data_world w = {0}; /* only the agent, no world */
    struct data_index index = {0};
    struct teacher_config config;
    const char *task = NULL;
    char *path = NULL;
    enum status rc;

    arena_init(&w.arena, 1 << 16);
    rc = data_teacher_config(&config, &b->data, err);
    if (rc == STATUS_OK)
        rc = data_task(&task, &b->data, &w.arena, err);
    if (rc == STATUS_OK && b->preprocess)
        rc = data_agent_open(&w, &b->data, &b->agent, err);
    if (rc == STATUS_OK)
        rc = data_path_of(&path, task, &config, err);
    if (rc == STATUS_OK)
        rc = data_build(task, path, &config, w.agent, err);
    if (rc == STATUS_OK)
        rc = data_index_open(&index, path, NULL, NULL, err);
    if (rc == STATUS_OK)
        build_data_print(b, path, &index);
    data_index_close(&index);
    data_world_close(&w);
    free(path);
    return rc;
}

enum exit_code build_data_run(const struct verb *verb, int argc, char **argv)
{
    struct build_data b = {0};
    const struct option_group groups[] = {{data_option_rows, &b.data, NULL},
                                          {participant_option_rows, &b.agent, NULL},
                                          {build_data_rows, &b, NULL}};
    struct error err;
    enum exit_code code;
    int first;

    data_options_init(&b.data, "train:stream");
    participant_options_init(&b.agent);
    if (!options_read(verb, groups, sizeof(groups) / sizeof(groups[0]), argc, argv, 0, 0, &first,
                      &code))
        return code;
    if (!data_has_task(&b.data))
        return options_misuse(verb, "--task is missing");
    if (b.preprocess && b.agent.agent == NULL && b.agent.model == NULL)
        return options_misuse(verb, "--preprocess needs --agent");
    return data_end(build_data_write(&b, &err), &err);
}
