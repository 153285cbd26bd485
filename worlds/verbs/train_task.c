#include "worlds/verbs/verbs.h"

#include <stddef.h>
#include <stdio.h>

#include "cli/output/out.h"
#include "cli/output/progress.h"
#include "worlds/baselines/dictionary.h"
#include "worlds/baselines/simple.h"
#include "worlds/verbs/data.h"
#include "worlds/verbs/survey.h"

struct train_task {
    struct data_options data;
    const char *agent, *dict_file;
    uint32_t log_every_s;
    bool is_json;
};

static const struct option_row train_task_rows[] = {
    {"agent|m", "NAME", "unigram or ir_baseline (unigram); see also: --agent starspace --help",
     OPTION_TEXT, offsetof(struct train_task, agent), 0},
    {"dict-file|df", "FILE", "the file to write the dictionary to", OPTION_TEXT,
     offsetof(struct train_task, dict_file), 0},
    {"log-every-n-secs|lfc", "N",
     "seconds between progress lines when stderr is not a terminal (10)", OPTION_U32,
     offsetof(struct train_task, log_every_s), 0},
    {"json", NULL, "print one JSON object", OPTION_FLAG, offsetof(struct train_task, is_json), 0},
    {0},
};

struct learning {
    struct dictionary *dictionary;
    uint64_t n_examples, n_most; /* 0: no bound */
    struct run_progress progress;
};

static enum status learning_add(void *arg, const struct act *act, struct error *err)
{
    struct learning *l = arg;
    enum status rc = dictionary_add_act(l->dictionary, act, err);

    run_progress_tell(&l->progress, l->n_examples);
    return rc;
}

static void train_task_print(const struct train_task *t, const struct learning *l)
{
    if (t->is_json)
        (void)out_json(json_pack("{s:s,s:I,s:I}", "dict_file", t->dict_file, "examples",
                                 (json_int_t)l->n_examples, "words",
                                 (json_int_t)dictionary_n(l->dictionary))); /* a failure is
                                                                               remembered */
    else
        printf("%s: %zu words out of %llu examples\n", t->dict_file, dictionary_n(l->dictionary),
               (unsigned long long)l->n_examples);
}

static enum status train_task_learn(struct data_world *w, const struct train_task *t,
                                    struct error *err)
{
    struct learning l = {.n_most = t->data.n_examples};
    uint64_t n_all = 0;
    enum status rc = dictionary_open(&l.dictionary, err);

    if (rc != STATUS_OK)
        return rc;
    for (size_t i = 0; i < w->n_tasks; i++)
        n_all += teacher_n_examples(teacher_of(w->tasks[i]));
    run_progress_start(&l.progress, "train", n_all, t->log_every_s, &env_real);
    for (size_t i = 0; rc == STATUS_OK && i < w->n_tasks; i++)
        rc = survey_task(w->tasks[i], l.n_most, &l.n_examples, learning_add, &l, err);
    run_progress_end(&l.progress);
    if (rc == STATUS_OK)
        rc = dictionary_write(l.dictionary, t->dict_file, err);
    if (rc == STATUS_OK)
        train_task_print(t, &l);
    dictionary_close(l.dictionary);
    return rc;
}

enum exit_code train_task_run(const struct verb *verb, int argc, char **argv)
{
    struct train_task t = {.agent = "unigram", .log_every_s = 10};
    const struct option_group groups[] = {{data_option_rows, &t.data, NULL},
                                          {train_task_rows, &t, NULL}};
    struct data_world w = {0};
    struct error err;
    enum exit_code code;
    enum status rc;
    int first;

    if (train_model_is_wanted(argc, argv))
        return train_model_run(verb, argc, argv);
    data_options_init(&t.data, "train:ordered");
    if (!options_read(verb, groups, sizeof(groups) / sizeof(groups[0]), argc, argv, 0, 0, &first,
                      &code))
        return code;
    if (t.dict_file == NULL)
        return options_misuse(verb, "--dict-file is missing");
    if (!simple_needs_dictionary(t.agent))
        return options_misuse(
            verb, "the agent '%.40s' has no dictionary to build, it must be unigram or ir_baseline",
            t.agent);
    rc = data_tasks_open(&w, &t.data, &err);
    if (rc == STATUS_OK && w.config.shuffle)
        rc = error_set(
            &err, STATUS_INVALID,
            "--datatype %s is drawn at random and has no end: use train:ordered or train:stream",
            t.data.datatype);
    if (rc == STATUS_OK) {
        data_world_warn(&w);
        rc = train_task_learn(&w, &t, &err);
    }
    data_world_close(&w);
    return data_end(rc, &err);
}
