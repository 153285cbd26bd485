/* parley train --agent: makes a vocabulary of the data and a learner, and lets the train loop teach
 * the learner. A table says how each kind of learner is made and read. */
#include "worlds/verbs/verbs.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agents/message.h"
#include "agents/plugin/plugin.h"
#include "agents/words/word_table.h"
#include "base/alloc.h"
#include "cli/output/console.h"
#include "cli/output/out.h"
#include "worlds/learners/seq2seq.h"
#include "worlds/learners/starspace.h"
#include "worlds/participant/participant.h"
#include "worlds/participant/speaker.h"
#include "worlds/teachers/data_file.h"
#include "worlds/verbs/attached_acts.h"
#include "worlds/verbs/attached_agent.h"
#include "worlds/verbs/data.h"
#include "worlds/verbs/survey.h"
#include "worlds/verbs/train_checkpoint.h"
#include "worlds/verbs/train_loop.h"

struct train_model {
    struct data_options data;
    char *own_task; /* of which train_preprocess has made data.task; NULL: it has not */
    struct train_loop_options loop;
    const char *agent, *path, *init_path, *valid_task;
    bool loads_checkpoint, preprocess;
    int64_t history_size;
    uint32_t n_words;
    const char *backend;
    uint32_t n_threads, n_hidden, max_words;
    bool skip_generation;
    /* starspace */
    uint32_t n_dims, n_negatives, cache_size;
    float max_norm, margin;
    float rate;
    unsigned set;
};

enum { TRAIN_RATE = 1 };

#define TRAIN(name, kind, member, value, help)                           \
    {                                                                    \
        name, value, help, kind, offsetof(struct train_model, member), 0 \
    }

static const struct option_row train_model_rows[] = {
    TRAIN("agent|m", OPTION_TEXT, agent, "NAME",
          "starspace, seq2seq, or an agent of your own that learns: attached:NAME, plugin:FILE.so"),
    TRAIN("model-file|mf", OPTION_TEXT, path, "FILE",
          "the file to write the agent to; agents of your own get it as an argument of save_model"),
    TRAIN("init-model|im", OPTION_TEXT, init_path, "FILE",
          "start from this agent of the same kind; its sizes and words stay"),
    TRAIN("load-from-checkpoint", OPTION_BOOL, loads_checkpoint, "BOOL",
          "continue from FILE.checkpoint if it exists (true)"),
    TRAIN("evaltask|et", OPTION_TEXT, valid_task, "TASK[,TASK]",
          "data of the validations (--task)"),
    TRAIN("pytorch-preprocess|pytp", OPTION_BOOL, preprocess, "BOOL",
          "starspace, seq2seq: first build a file with what the agent makes of each example, and "
          "train on it (false)"),
    TRAIN("history-size|histsz", OPTION_I64, history_size, "N",
          "how many past utterances the agent sees; 0 or -1: all (-1)"),
    TRAIN("dict-maxtokens", OPTION_U32, n_words, "N", "the most words in the vocabulary (all)"),
    {"learningrate|lr", "X",
     "learning rate (starspace: 0.1, of gradient descent; seq2seq: 0.003, of Adam)",
     OPTION_FLOAT_FROM_0, offsetof(struct train_model, rate), TRAIN_RATE},
    TRAIN("embeddingsize|esz", OPTION_U32, n_dims, "N", "size of a word's vector (128)"),
    TRAIN("hiddensize|hs", OPTION_U32, n_hidden, "N", "seq2seq: size of the state (128)"),
    TRAIN("skip-generation", OPTION_BOOL, skip_generation, "BOOL",
          "seq2seq: in validations, score labels and generate no replies (false)"),
    TRAIN("max-tokens", OPTION_U32, max_words, "N",
          "seq2seq: the most tokens of a reply in validations (128)"),
    TRAIN("backend", OPTION_TEXT, backend, "NAME", "seq2seq: the backend, cpu or ref (cpu)"),
    TRAIN("threads", OPTION_U32, n_threads, "N",
          "seq2seq: threads that compute (the number of cores)"),
    TRAIN("embeddingnorm|enorm", OPTION_FLOAT, max_norm, "X",
          "starspace: the largest norm of a word's vector (10)"),
    TRAIN("margin", OPTION_FLOAT, margin, "X",
          "starspace: the margin of the loss: a wrong label may have a cosine up to X (0.1)"),
    TRAIN("neg-samples|k", OPTION_U32, n_negatives, "N",
          "starspace: number of wrong labels per step (10)"),
    TRAIN("cache-size|cs", OPTION_U32, cache_size, "N",
          "starspace: number of cached labels that wrong ones are drawn from (1000)"),
    {0},
};

/* --- the kinds -------------------------------------------------------------------------------- */

/* A kind of agent that learns. open: from words, which it takes also on failure, or from init_path
 * where words is NULL. A foreign kind is code of the user's own, which has its state itself: it has
 * no words, and no checkpoints (write, restore and pause are NULL). */
struct learner_kind {
    const char *name;
    bool is_foreign; /* name is a prefix */
    enum status (*open)(struct participant **out, const struct train_model *t,
                        struct word_table *words, struct error *err);
    enum status (*save)(void *participant, const char *path, struct error *err);
    /* With all that learning goes on from, and the text; and that again, into an agent that was
     * opened from the file. */
    enum status (*write)(struct participant *participant, const char *state, const char *path,
                         struct error *err);
    enum status (*restore)(struct participant *participant, const char *path, struct error *err);
    void (*pause)(struct participant *participant, bool is_paused);
    survey_fn candidate; /* of each act, with the participant; NULL: the kind has no candidates */
};

static enum status train_starspace_open(struct participant **out, const struct train_model *t,
                                        struct word_table *words, struct error *err)
{
    const struct starspace_spec spec = {
        .n_dims = t->n_dims, .max_norm = t->max_norm, .seed = t->data.seed};
    struct starspace_participant_config c;
    struct starspace *s;
    enum status rc = words != NULL ? starspace_create(&s, &spec, words, err)
                                   : starspace_read(&s, t->init_path, err);

    if (rc != STATUS_OK)
        return rc;
    starspace_participant_config_init(&c);
    c.listener.history.size = t->history_size;
    c.listener.text_truncate = data_text_bound(&t->data);
    c.listener.label_truncate = data_label_bound(&t->data);
    c.learns = true;
    c.learn =
        (struct starspace_learn_config){.rate = (t->set & TRAIN_RATE) != 0 ? t->rate : c.learn.rate,
                                        .margin = t->margin,
                                        .n_negatives = t->n_negatives,
                                        .cache_size = t->cache_size,
                                        .seed = t->data.seed};
    return starspace_participant_open(out, s, &c, err);
}

static enum status train_starspace_save(void *participant, const char *path, struct error *err)
{
    return starspace_save(starspace_participant_space(participant), path, err);
}

static enum status train_starspace_write(struct participant *participant, const char *state,
                                         const char *path, struct error *err)
{
    return starspace_learner_save(starspace_participant_learner(participant), state, path, err);
}

static enum status train_starspace_restore(struct participant *participant, const char *path,
                                           struct error *err)
{
    return starspace_learner_restore(starspace_participant_learner(participant), path, err);
}

static enum status train_starspace_candidate(void *participant, const struct act *act,
                                             struct error *err)
{
    const struct value *labels = act_list(act, ACT_LABELS);
    enum status rc = STATUS_OK;

    for (size_t i = 0; rc == STATUS_OK && labels != NULL && i < labels->list.n; i++)
        rc = starspace_add_candidate(starspace_participant_space(participant),
                                     labels->list.items[i], err);
    return rc;
}

static enum status train_seq2seq_open(struct participant **out, const struct train_model *t,
                                      struct word_table *words, struct error *err)
{
    const struct seq2seq_spec spec = {
        .n_dims = t->n_dims, .n_hidden = t->n_hidden, .seed = t->data.seed};
    const struct seq2seq_config config = {.backend = t->backend, .n_threads = t->n_threads};
    struct seq2seq_participant_config c;
    struct seq2seq *s;
    enum status rc = words != NULL ? seq2seq_create(&s, &spec, words, &config, err)
                                   : seq2seq_read(&s, t->init_path, &config, err);

    if (rc != STATUS_OK)
        return rc;
    seq2seq_participant_config_init(&c);
    c.listener.history.size = t->history_size;
    c.listener.text_truncate = data_text_bound(&t->data);
    c.listener.label_truncate = data_label_bound(&t->data);
    c.learns = true;
    c.no_reply = t->skip_generation;
    c.max_words = t->max_words;
    if ((t->set & TRAIN_RATE) != 0)
        c.rate = t->rate;
    return seq2seq_participant_open(out, s, &c, err);
}

static enum status train_seq2seq_save(void *participant, const char *path, struct error *err)
{
    return seq2seq_save(seq2seq_participant_model(participant), path, err);
}

static enum status train_seq2seq_write(struct participant *participant, const char *state,
                                       const char *path, struct error *err)
{
    return seq2seq_save_training(seq2seq_participant_model(participant), state, path, err);
}

static enum status train_seq2seq_restore(struct participant *participant, const char *path,
                                         struct error *err)
{
    return seq2seq_restore_training(seq2seq_participant_model(participant), path, err);
}

static const char attached_prefix[] = "attached:";

static enum status train_attached_open(struct participant **out, const struct train_model *t,
                                       struct word_table *words, struct error *err)
{
    const struct attached_agent_config config = {.name = t->agent + sizeof(attached_prefix) - 1,
                                                 .seed = t->data.seed};
    enum status rc = attached_agent_open(out, &t->data.connection, &config, err);

    if (rc != STATUS_OK)
        return rc;
    if (!attached_acts_is(*out))
        rc = error_set(err, STATUS_PRECONDITION,
                       "%.80s takes texts alone, so it cannot learn: agents of the Python package "
                       "take labels, too",
                       t->agent);
    else if (t->init_path != NULL)
        rc = attached_acts_load(*out, t->init_path, err);
    if (rc != STATUS_OK)
        participant_unref(*out);
    return rc;
}

static enum status train_attached_save(void *participant, const char *path, struct error *err)
{
    return attached_acts_save(participant, path, err);
}

static const char plugin_prefix[] = "plugin:";

static enum status train_plugin_open(struct participant **out, const struct train_model *t,
                                     struct word_table *words, struct error *err)
{
    const char *path = t->agent + sizeof(plugin_prefix) - 1;
    struct speaker_config c = {.type = &plugin_agent,
                               .agent = {.name = "plugin", .path = path, .env = &env_real},
                               .learns = true};
    enum status rc;

    if (t->data.n_threads > 1)
        return error_set(err, STATUS_INVALID,
                         "a plug-in learns on one thread: leave out --numthreads");
    sampling_init(&c.sampling);
    c.sampling.temperature = 0;
    c.sampling.seed = t->data.seed;
    c.sampling.has_seed = true;
    rc = speaker_open(out, &c, err);
    if (rc != STATUS_OK)
        return rc;
    if (!plugin_agent_learns(speaker_agent(*out)))
        rc = error_set(err, STATUS_PRECONDITION, "%.120s has no save_model, so it does not learn",
                       path);
    else if (t->init_path != NULL)
        rc = plugin_agent_load(speaker_agent(*out), t->init_path, err);
    if (rc != STATUS_OK)
        participant_unref(*out);
    return rc;
}

static enum status train_plugin_save(void *participant, const char *path, struct error *err)
{
    return plugin_agent_save(speaker_agent(participant), path, err);
}

static const struct learner_kind learner_kinds[] = {
    {.name = plugin_prefix,
     .is_foreign = true,
     .open = train_plugin_open,
     .save = train_plugin_save},
    {.name = attached_prefix,
     .is_foreign = true,
     .open = train_attached_open,
     .save = train_attached_save},
    {.name = "seq2seq",
     .open = train_seq2seq_open,
     .save = train_seq2seq_save,
     .write = train_seq2seq_write,
     .restore = train_seq2seq_restore,
     .pause = seq2seq_participant_pause},
    {.name = "starspace",
     .open = train_starspace_open,
     .save = train_starspace_save,
     .write = train_starspace_write,
     .restore = train_starspace_restore,
     .pause = starspace_participant_pause,
     .candidate = train_starspace_candidate},
};

static const struct learner_kind *learner_kind_named(const char *name)
{
    for (size_t i = 0; name != NULL && i < sizeof(learner_kinds) / sizeof(learner_kinds[0]); i++) {
        const struct learner_kind *k = &learner_kinds[i];

        if (k->is_foreign ? strncmp(name, k->name, strlen(k->name)) == 0
                          : strcmp(name, k->name) == 0)
            return k;
    }
    return NULL;
}

bool train_model_is_wanted(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        const char *name = NULL;

        if (strncmp(argv[i], "--agent=", 8) == 0)
            name = argv[i] + 8;
        else if (i + 1 < argc && (strcmp(argv[i], "-m") == 0 || strcmp(argv[i], "--agent") == 0))
            name = argv[i + 1];
        if (learner_kind_named(name) != NULL || strcmp(argv[i], "-mf") == 0 ||
            strncmp(argv[i], "--model-file", 12) == 0)
            return true;
    }
    return false;
}

/* --- the agent -------------------------------------------------------------------------------- */

static enum status train_count_words(void *words, const struct act *act, struct error *err)
{
    const struct value *labels = act_list(act, ACT_LABELS);
    enum status rc = word_table_add(words, act_text(act), err);

    for (size_t i = 0; rc == STATUS_OK && labels != NULL && i < labels->list.n; i++)
        rc = word_table_add(words, labels->list.items[i], err);
    return rc;
}

/* The training data in order, once: each call is a pass. */
static enum status train_survey(const struct train_model *t, survey_fn each, void *arg,
                                struct error *err)
{
    struct data_options o = t->data;
    struct data_world w = {0};
    uint64_t n = 0;
    enum status rc;

    o.datatype = "train:ordered";
    o.batch_size = o.n_threads = 1;
    o.dynamic = "none";
    o.batch_sort = o.hide_labels = false;
    o.batch_sort_cache = "none";
    rc = data_tasks_open(&w, &o, err);
    for (size_t i = 0; rc == STATUS_OK && i < w.n_tasks; i++)
        rc = survey_task(w.tasks[i], 0, &n, each, arg, err);
    data_world_close(&w);
    return rc;
}

/* Fresh, from the words of the data; or the one to go on with. */
static enum status train_agent_open(struct participant **out, const struct train_model *t,
                                    const struct learner_kind *kind, struct error *err)
{
    struct word_table *words = NULL;
    enum status rc = STATUS_OK;

    if (t->init_path != NULL || kind->is_foreign)
        return kind->open(out, t, NULL, err);
    rc = word_table_open(&words, err);
    if (rc == STATUS_OK)
        rc = train_survey(t, train_count_words, words, err);
    if (rc == STATUS_OK)
        rc = word_table_settle(words, t->n_words, err);
    if (rc != STATUS_OK) {
        word_table_close(words);
        return rc;
    }
    rc = kind->open(out, t, words, err);
    if (rc == STATUS_OK && kind->candidate != NULL) {
        rc = train_survey(t, kind->candidate, *out, err);
        if (rc != STATUS_OK)
            participant_unref(*out);
    }
    return rc;
}

/* Builds the data file with the vectors of the agent that is to be trained, whose words are those
 * of the data, and lets the training read it. *out is the new task, which the caller frees. */
static enum status train_preprocess(char **out, struct train_model *t,
                                    const struct learner_kind *kind, struct error *err)
{
    struct participant *agent = NULL;
    struct teacher_config config;
    struct arena arena;
    const char *task = NULL;
    char *path = NULL;
    enum status rc;

    if (kind->is_foreign)
        return error_set(err, STATUS_INVALID,
                         "--pytorch-preprocess works with starspace and seq2seq, %.60s makes its "
                         "vectors itself",
                         t->agent);
    arena_init(&arena, 1 << 16);
    rc = data_teacher_config(&config, &t->data, err);
    if (rc == STATUS_OK)
        rc = data_task(&task, &t->data, &arena, err);
    if (rc == STATUS_OK && strchr(task, ',') != NULL)
        rc = error_set(err, STATUS_INVALID, "--pytorch-preprocess takes one task, not several");
    if (rc == STATUS_OK && strncmp(task, "data:", 5) == 0)
        rc = error_set(err, STATUS_INVALID,
                       "--pytorch-preprocess builds a data file, and %.120s is one", task);
    if (rc == STATUS_OK)
        rc = data_path_of(&path, task, &config, err);
    if (rc == STATUS_OK && (rc = train_agent_open(&agent, t, kind, err)) != STATUS_OK)
        agent = NULL;
    if (rc == STATUS_OK)
        rc = data_build(task, path, &config, agent, err);
    if (rc == STATUS_OK) {
        if (asprintf(out, "data:%s", path) < 0)
            abort(); /* no memory for a path */
        t->own_task = xstrdup(task);
        t->data.task = *out;
        t->data.pytorch_task = t->data.pytorch_dataset = NULL;
    }
    participant_unref(agent);
    arena_deinit(&arena);
    free(path);
    return rc;
}

/* --- its checkpoints -------------------------------------------------------------------------- */

struct train_keeper {
    const struct learner_kind *kind;
    struct participant *agent;
    char *path;      /* FILE.checkpoint */
    json_t *options; /* the options that the checkpoint depends on */
    size_t n_epoch;
    struct train_progress from; /* of the existing checkpoint */
    bool has_from;
};

static enum status train_keeper_write(void *arg, const struct train_progress *at, struct error *err)
{
    const struct train_keeper *k = arg;
    char *text = train_checkpoint_text(at, k->n_epoch, k->options);
    enum status rc = k->kind->write(k->agent, text, k->path, err);

    free(text);
    return rc;
}

static void train_keeper_remove(void *arg)
{
    const struct train_keeper *k = arg;

    if (k->kind->write != NULL)
        (void)unlink(k->path); /* usually the file does not exist */
}

static void train_keeper_pause(void *arg, bool is_paused)
{
    const struct train_keeper *k = arg;

    k->kind->pause(k->agent, is_paused);
}

static enum status train_keeper_init(struct train_keeper *k, const struct train_model *t,
                                     const struct learner_kind *kind, size_t n_epoch,
                                     struct error *err)
{
    struct train_model options = *t; /* a copy, because the option tables need writable members */
    const struct option_group groups[] = {{data_option_rows, &options.data, NULL},
                                          {train_model_rows, &options, NULL}};
    struct error why;
    enum status rc;

    *k = (struct train_keeper){.kind = kind, .n_epoch = n_epoch};
    if (asprintf(&k->path, "%s.checkpoint", t->path) < 0)
        abort(); /* no memory for a path */
    k->options = train_checkpoint_options(groups, sizeof(groups) / sizeof(groups[0]));
    rc = !t->loads_checkpoint ? STATUS_NOT_FOUND
                              : train_checkpoint_read(&k->from, k->path, n_epoch, k->options, &why);
    k->has_from = rc == STATUS_OK;
    if (rc != STATUS_OK && rc != STATUS_NOT_FOUND) {
        *err = why;
        return rc;
    }
    if (k->has_from)
        console_line("train: continues from %s, %llu examples", k->path,
                     (unsigned long long)k->from.n_examples);
    else if (t->init_path == NULL && !kind->is_foreign && access(t->path, F_OK) == 0)
        console_line("train: %s is replaced by a new agent: '--init-model %s' continues with it",
                     t->path, t->path);
    return STATUS_OK;
}

static void train_keeper_deinit(struct train_keeper *k)
{
    json_decref(k->options);
    free(k->path);
}

/* From the checkpoint, or as the options say. */
static enum status train_keeper_open(struct train_keeper *k, const struct train_model *t,
                                     struct error *err)
{
    struct train_model from = *t;
    enum status rc;

    if (k->has_from)
        from.init_path = k->path;
    rc = train_agent_open(&k->agent, &from, k->kind, err);
    if (rc != STATUS_OK) {
        k->agent = NULL;
        return k->has_from ? train_checkpoint_advise(err) : rc;
    }
    if (k->has_from && k->kind->restore(k->agent, k->path, err) != STATUS_OK)
        return train_checkpoint_advise(err);
    return STATUS_OK;
}

/* --- the run ---------------------------------------------------------------------------------- */

static enum status train_valid_open(struct data_world *w, const struct train_model *t,
                                    struct participant *agent, struct error *err)
{
    struct data_options o = t->data;

    if (t->own_task != NULL)
        o.task = t->own_task; /* it may have a fold for validations; data.task has one fold */
    if (t->valid_task != NULL) {
        o.task = t->valid_task;
        o.pytorch_task = o.pytorch_dataset = NULL;
    }
    o.datatype = "valid";
    o.n_examples = t->loop.valid_examples;
    o.weights = NULL;
    if (data_tasks_open(w, &o, err) != STATUS_OK)
        return err->status;
    data_world_warn(w);
    if (t->valid_task == NULL)
        console_line("validations use the training data: give other data with --evaltask");
    w->agent = participant_ref(agent);
    w->config.agents = &w->agent;
    w->config.n_agents = 1;
    return data_world_open(w, err);
}

static size_t train_n_epoch(const struct data_world *w)
{
    size_t n = 0;

    for (size_t i = 0; i < w->n_tasks; i++)
        n += teacher_n_examples(teacher_of(w->tasks[i]));
    return n;
}

/* Data that are drawn at random have no end but a number of examples; others have epochs. */
static void train_bound(struct data_world *w, const struct train_model *t, struct train_loop *loop)
{
    const double n = t->loop.n_epochs;

    loop->n_rounds = n >= 0 && !w->config.shuffle ? (uint64_t)ceil(n) : UINT64_MAX;
    if (w->config.shuffle || t->data.n_examples != 0)
        loop->n_rounds = 1;
    if (w->config.shuffle && n >= 0) {
        const uint64_t most = (uint64_t)ceil(n * (double)loop->n_epoch);

        if (w->config.n_examples == 0 || most < w->config.n_examples)
            w->config.n_examples = most > 0 ? most : 1;
    }
}

static double per_second(double n, const struct train_progress *r)
{
    return r->seconds > 0 ? n / r->seconds : 0;
}

static void train_model_print(const struct train_model *t, const struct train_result *result)
{
    const struct train_progress *r = &result->at;
    const double rate = per_second((double)r->n_examples, r);
    const double n_batches = (double)result->counters.n_batches;

    if (t->loop.is_json) {
        (void)out_json(json_pack(
            "{s:s,s:I,s:f,s:f,s:s,s:I,s:s,s:o,s:I,s:I,s:I,s:I,s:f,s:f,s:f}", "model_file", t->path,
            "examples", (json_int_t)r->n_examples, "seconds", r->seconds, "exs_per_s", rate,
            "ended_by", result->why, "validations", (json_int_t)r->n_validations, "metric",
            t->loop.metric, "best", isnan(r->best) ? json_null() : json_real(r->best),
            "best_examples", (json_int_t)r->best_examples, "batches",
            (json_int_t)result->counters.n_batches, "words", (json_int_t)result->counters.n_words,
            "padded", (json_int_t)result->counters.n_padded, "exps", rate, "ups",
            per_second(n_batches, r), "tpb",
            n_batches > 0 ? (double)result->counters.n_words / n_batches
                          : 0)); /* out_end reports a failure */
        return;
    }
    printf("%s: %llu examples in %.1f s, %.1f exs/s, ended by %s",
           t->path[0] != '\0' ? t->path : t->agent, (unsigned long long)r->n_examples, r->seconds,
           rate, result->why);
    if (r->n_validations > 0)
        printf("; best %s %.4g after %llu examples", t->loop.metric, r->best,
               (unsigned long long)r->best_examples);
    printf("\n");
}

static enum status train_model_learn(struct data_world *w, struct data_world *valid,
                                     const struct train_model *t, const struct learner_kind *kind,
                                     struct error *err)
{
    struct train_loop loop = {.options = &t->loop,
                              .tasks = w->tasks,
                              .n_tasks = w->n_tasks,
                              .n_epoch = train_n_epoch(w),
                              .path = t->path,
                              .save = kind->save,
                              .env = &env_real};
    struct train_result result;
    struct train_keeper keeper;
    enum status rc = train_keeper_init(&keeper, t, kind, loop.n_epoch, err);

    if (rc == STATUS_OK)
        rc = train_keeper_open(&keeper, t, err);
    w->agent = keeper.agent;
    if (rc != STATUS_OK)
        goto out;
    loop.save_arg = w->agent;
    loop.checkpoints = (struct train_checkpoints){.write = train_keeper_write,
                                                  .remove = train_keeper_remove,
                                                  .pause = train_keeper_pause,
                                                  .arg = &keeper,
                                                  .from = keeper.has_from ? &keeper.from : NULL};
    w->config.agents = &w->agent;
    w->config.n_agents = 1;
    w->config.counts_words = true;
    train_bound(w, t, &loop);
    rc = data_world_open(w, err);
    loop.train = w->world;
    if (rc == STATUS_OK && train_loop_validates(&t->loop)) {
        rc = train_valid_open(valid, t, w->agent, err);
        loop.valid = valid->world;
    } else if (t->valid_task != NULL) {
        console_line("train: no validations: --evaltask has no effect without "
                     "--validation-every-n-epochs or --validation-every-n-secs");
    }
    if (rc == STATUS_OK)
        rc = train_loop_run(&result, &loop, err);
    if (rc == STATUS_OK)
        train_model_print(t, &result);
out:
    train_keeper_deinit(&keeper);
    return rc;
}

enum exit_code train_model_run(const struct verb *verb, int argc, char **argv)
{
    struct train_model t = {.history_size = -1,
                            .n_dims = 128,
                            .n_negatives = 10,
                            .cache_size = 1000,
                            .max_norm = 10,
                            .margin = 0.1F,
                            .backend = "cpu",
                            .n_hidden = 128,
                            .max_words = 128,
                            .loads_checkpoint = true};
    const struct option_group groups[] = {{data_option_rows, &t.data, NULL},
                                          {train_model_rows, &t, &t.set},
                                          {train_loop_rows, &t.loop, &t.loop.set}};
    struct data_world w = {0}, valid = {0};
    const struct learner_kind *kind;
    struct error err;
    enum exit_code code;
    enum status rc;
    char *preprocessed = NULL;
    int first;

    data_options_init(&t.data, "train");
    train_loop_options_init(&t.loop);
    if (!options_read(verb, groups, sizeof(groups) / sizeof(groups[0]), argc, argv, 0, 0, &first,
                      &code))
        return code;
    kind = learner_kind_named(t.agent);
    if (t.agent == NULL)
        return options_misuse(
            verb, "--agent is missing: starspace, seq2seq, attached:NAME or plugin:FILE");
    if (kind == NULL)
        return options_misuse(verb,
                              "--agent is '%.40s': starspace, seq2seq, attached:NAME and "
                              "plugin:FILE learn a --model-file, unigram and ir_baseline a "
                              "--dict-file",
                              t.agent);
    if (t.path == NULL && kind->name != attached_prefix)
        return options_misuse(verb, "--model-file is missing");
    if (kind->is_foreign) { /* its state is its own, so it has no checkpoints here */
        t.path = t.path != NULL ? t.path : "";
        t.loads_checkpoint = t.loop.checkpoint_after_valid = false;
        t.loop.checkpoint_seconds = -1;
    }
    if (train_loop_check(&t.loop, t.data.n_examples != 0, &err) != STATUS_OK)
        return options_misuse(verb, "%s", err.text);
    rc = t.preprocess ? train_preprocess(&preprocessed, &t, kind, &err) : STATUS_OK;
    if (rc == STATUS_OK)
        rc = data_tasks_open(&w, &t.data, &err);
    if (rc == STATUS_OK) {
        data_world_warn(&w);
        rc = train_model_learn(&w, &valid, &t, kind, &err);
    }
    data_world_close(&valid);
    data_world_close(&w);
    free(preprocessed);
    free(t.own_task);
    return data_end(rc, &err);
}
