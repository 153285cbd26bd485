/* Has the tables of the options that say which data and which agent there are, and checks the
 * values. Then it opens what the options name: teachers, an agent of any kind, and the world of
 * both. */
#include "worlds/verbs/data.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agents/plugin/plugin.h"
#include "base/env.h"
#include "base/number.h"
#include "cli/output/console.h"
#include "compute/verbs/model_file.h"
#include "worlds/baselines/dictionary.h"
#include "worlds/baselines/simple.h"
#include "worlds/learners/seq2seq.h"
#include "worlds/learners/starspace.h"
#include "worlds/participant/model.h"
#include "worlds/participant/participant.h"
#include "worlds/participant/speaker.h"
#include "worlds/verbs/attached_agent.h"
#include "worlds/verbs/attached_data.h"
#include "worlds/verbs/human.h"
#include "worlds/verbs/task_names.h"

enum { MAX_NAMES_BYTES = 1 << 20, MAX_WEIGHTS = 256, MAX_THREADS = 256, MAX_BATCH = 1 << 20 };

#define DATA(name, kind, member, value, help)                             \
    {                                                                     \
        name, value, help, kind, offsetof(struct data_options, member), 0 \
    }

#define DATA_SERVER_ROW(name, kind, at, member, value, help)                           \
    {                                                                                  \
        name, value, help, kind, (at) + offsetof(struct connection_options, member), 0 \
    }

/* Of a struct connection_options at the offset `at`. */
#define DATA_SERVER(at)                                                                            \
    DATA_SERVER_ROW(                                                                               \
        "server", OPTION_TEXT, at, server, "HOST:PORT",                                            \
        "for attached:NAME: the server's address (PARLEY_SERVER, else 127.0.0.1:8001)"),           \
        DATA_SERVER_ROW("key-file", OPTION_TEXT, at, key_file, "FILE",                             \
                        "for attached:NAME: a file whose first line is the key (PARLEY_API_KEY)"), \
        DATA_SERVER_ROW("tls", OPTION_FLAG, at, is_tls, NULL,                                      \
                        "for attached:NAME: use TLS; implied by --ca"),                            \
        DATA_SERVER_ROW(                                                                           \
            "ca", OPTION_TEXT, at, ca, "FILE",                                                     \
            "for attached:NAME: PEM file with the authorities of its certificate (the system's)")

const struct option_row data_option_rows[] = {
    DATA("task|t", OPTION_TEXT, task, "TASK[,TASK]",
         "parlai:FILE, jsonl:FILE, fbdialog:FILE, conversations:FILE, plugin:FILE.so[:ARGUMENT], "
         "attached:NAME[:ARGUMENT], data:FILE once built, babi:task10k:N or fromfile:parlaiformat"),
    DATA("datapath", OPTION_TEXT, data_path, "FOLDER", "for babi: ParlAI's folder of data (data)"),
    DATA("fromfile-datapath|ffdp", OPTION_TEXT, file_path, "FILE", "the file of a fromfile task"),
    DATA("fromfile-datatype-extension|ffdt", OPTION_BOOL, has_datatype_extension, "BOOL",
         "add _train.txt, _valid.txt or _test.txt to it (false)"),
    DATA("datatype|dt", OPTION_TEXT, datatype, "TYPE",
         "train, valid or test; then :stream, :ordered, :evalmode"),
    DATA("batchsize|bs", OPTION_U32, batch_size, "N", "conversations at the same time (1)"),
    DATA("dynamic-batching|dynb", OPTION_TEXT, dynamic, "KIND",
         "batchsort or full: batches of similar length out of many conversations"),
    DATA("numthreads|nt", OPTION_U32, n_threads, "N", "threads, each with its own batches (1)"),
    DATA("truncate|tr", OPTION_I64, truncate, "N", "the most tokens of a text or label"),
    DATA("text-truncate|ttr", OPTION_I64, text_truncate, "N",
         "the most tokens of a text with its history"),
    DATA("label-truncate|ltr", OPTION_I64, label_truncate, "N", "the most tokens of a label"),
    DATA("batch-sort|bsrt", OPTION_BOOL, batch_sort, "BOOL",
         "each turn becomes an example; batches have similar length (false)"),
    DATA("squash", OPTION_BOOL, squash, "BOOL",
         "each turn becomes an example with its context (false)"),
    DATA("batch-sort-cache|bsc", OPTION_TEXT, batch_sort_cache, "KIND",
         "for a :stream of single turns: pop (random lengths) or index (lengths in turn)"),
    DATA("batch-length-range|blr", OPTION_U32, length_range, "N",
         "for --batch-sort-cache: texts of a batch differ by at most 2 (N - 1) words (5)"),
    DATA("include-labels|incl", OPTION_BOOL, include_labels, "BOOL",
         "include labels in the context (true)"),
    DATA("context-length|clen", OPTION_I64, context_length, "N",
         "utterances of context, including the turn's own; -1: all (-1)"),
    DATA("hide-labels|hlbl", OPTION_BOOL, hide_labels, "BOOL",
         "hide labels from the agent, but still score them"),
    DATA("multitask-weights|mtw", OPTION_TEXT, weights, "X,X|stochastic",
         "weight of each task when data is shuffled"),
    DATA("aggregate-micro|micro", OPTION_BOOL, aggregate_micro, "BOOL",
         "average over examples, not over tasks (false)"),
    DATA("metrics|mcs", OPTION_TEXT, metrics, "NAME[,NAME]",
         "the metrics: default, f1, bleu, rouge, distinct, all or none"),
    DATA("num-examples|ne", OPTION_U64, n_examples, "N", "the most examples (all)"),
    DATA("datafile", OPTION_TEXT, data_file, "FILE",
         "the built file of a :stream (beside its source)"),
    DATA("num-workers|nw", OPTION_U32, n_loaders, "N", "threads that read a :stream ahead (2)"),
    DATA("pytorch-teacher-task|pyt", OPTION_TEXT, pytorch_task, "TASK",
         "the same as --task, but read ahead from a built file (datatype :stream)"),
    DATA("pytorch-teacher-dataset|pytd", OPTION_TEXT, pytorch_dataset, "FILE.so[:ARGUMENT]",
         "the same for a custom data set: [plugin:]FILE.so or attached:NAME"),
    DATA("skip-bad", OPTION_FLAG, skip_bad, NULL, "skip lines that are wrong, and count them"),
    DATA("max-line-bytes", OPTION_U32, max_line_bytes, "N",
         "the longest line of a data file, in bytes (16777216)"),
    DATA("rank", OPTION_U32, rank, "N", "which share of the episodes this process takes (0)"),
    DATA("num-ranks", OPTION_U32, n_ranks, "N", "number of processes that share the episodes (1)"),
    DATA("seed", OPTION_U64, seed, "N", "seed of the random numbers (0)"),
    DATA_SERVER(offsetof(struct data_options, connection)),
    {0},
};

const struct option_row data_server_rows[] = {
    DATA_SERVER(0),
    {0},
};

#define AGENT(name, kind, member, value, help)                                   \
    {                                                                            \
        name, value, help, kind, offsetof(struct participant_options, member), 0 \
    }

const struct option_row participant_option_rows[] = {
    AGENT("agent|m", OPTION_TEXT, agent, "NAME",
          "repeat_label, repeat_query, random_candidate, unigram, ir_baseline, fixed_response, "
          "starspace, seq2seq, lm, attached:NAME or plugin:FILE.so"),
    AGENT("model|mf", OPTION_TEXT, model, "PATH",
          "a GGUF file for lm, starspace or seq2seq; it implies --agent"),
    AGENT("plugin", OPTION_TEXT, plugin, "FILE.so",
          "a custom agent instead: a shared object, as for parleyd --plugin"),
    AGENT("dict-file|df", OPTION_TEXT, dict_file, "FILE",
          "the dictionary of unigram and ir_baseline"),
    AGENT("fixed-response", OPTION_TEXT, fixed_response, "TEXT", "the reply of fixed_response"),
    AGENT("return-one-random-answer", OPTION_BOOL, return_one_random_answer, "BOOL",
          "repeat_label: reply with one of several labels (true)"),
    AGENT("cant-answer-percent", OPTION_FLOAT, cant_answer_percent, "X",
          "repeat_label: how often it replies that it does not know, 0 to 1 (0)"),
    AGENT("history-size|histsz", OPTION_I64, history_size, "N",
          "how many past utterances the agent sees; 0 or -1: all (-1)"),
    AGENT("use-reply", OPTION_TEXT, use_reply, "WHICH",
          "what the agent keeps as its own turn: label, model or none (label)"),
    AGENT("delimiter", OPTION_TEXT, delimiter, "TEXT", "text between utterances (a newline)"),
    AGENT("split-lines", OPTION_BOOL, split_lines, "BOOL",
          "treat each line as an utterance (false)"),
    AGENT("person-tokens|pt", OPTION_BOOL, person_tokens, "BOOL",
          "put __p1__ and __p2__ before utterances; with --plain (false)"),
    AGENT("history-reversed", OPTION_BOOL, history_reversed, "BOOL",
          "newest token first; with --plain (false)"),
    AGENT("plain", OPTION_FLAG, is_plain, NULL,
          "lm: one text to continue, not a chat with the model's template"),
    AGENT("skip-generation", OPTION_BOOL, skip_generation, "BOOL",
          "lm: score labels, generate no reply (false)"),
    AGENT("skip-scoring", OPTION_BOOL, skip_scoring, "BOOL",
          "lm: do not compute the perplexity (false)"),
    AGENT("max-tokens", OPTION_U32, max_tokens, "N", "lm: the most tokens of a reply (128)"),
    AGENT("temperature", OPTION_FLOAT_FROM_0, temperature, "X",
          "lm: sampling temperature; 0: greedy (0)"),
    AGENT("system", OPTION_TEXT, system, "TEXT", "lm: the system prompt (the model's own)"),
    AGENT("backend", OPTION_TEXT, backend, "NAME", "lm: the backend, cpu or ref (cpu)"),
    AGENT("kv", OPTION_TEXT, kv, "TYPE", "lm: the format of keys and values: f16, q8 or f32 (f16)"),
    AGENT("kv-mib", OPTION_U32, kv_mib, "N",
          "lm: the size of the KV cache in MiB (an eighth of the memory)"),
    AGENT("threads", OPTION_U32, compute_threads, "N",
          "lm: threads that compute each model (the cores, shared among --numthreads)"),
    {0},
};

void data_options_init(struct data_options *o, const char *datatype)
{
    *o = (struct data_options){.datatype = datatype,
                               .dynamic = "none",
                               .metrics = "default",
                               .batch_size = 1,
                               .n_threads = 1,
                               .include_labels = true,
                               .context_length = -1,
                               .truncate = -1,
                               .text_truncate = -1,
                               .label_truncate = -1,
                               .n_ranks = 1,
                               .n_loaders = 2,
                               .length_range = 5,
                               .batch_sort_cache = "none",
                               .max_line_bytes = TEACHER_MAX_LINE_BYTES,
                               .connection = connection_defaults()};
    o->attached = attached_data_of(&o->connection);
}

void participant_options_init(struct participant_options *o)
{
    *o = (struct participant_options){.use_reply = "label",
                                      .history_size = -1,
                                      .backend = "cpu",
                                      .return_one_random_answer = true};
}

enum status participant_agent_options(struct agent_options *out,
                                      const struct participant_options *o, struct error *err)
{
    *out = (struct agent_options){.backend = o->backend,
                                  .n_threads = o->compute_threads,
                                  .kv_bytes = (size_t)o->kv_mib << 20};
    return o->kv != NULL ? kv_type_of(&out->kv_type, o->kv, err) : STATUS_OK;
}

/* --- the tasks ------------------------------------------------------------------------------- */

static size_t bound_of(int64_t own, int64_t both)
{
    int64_t bound = own >= 0 ? own : both;

    return bound > 0 ? (size_t)bound : 0;
}

size_t data_text_bound(const struct data_options *o)
{
    return bound_of(o->text_truncate, o->truncate);
}

size_t data_label_bound(const struct data_options *o)
{
    return bound_of(o->label_truncate, o->truncate);
}

static enum status check_counts(const struct data_options *o, struct error *err)
{
    if ((o->task != NULL) + (o->pytorch_task != NULL) + (o->pytorch_dataset != NULL) > 1)
        return error_set(err, STATUS_INVALID,
                         "--task, --pytorch-teacher-task and --pytorch-teacher-dataset exclude "
                         "each other: give one");
    if (!data_has_task(o))
        return error_set(err, STATUS_INVALID, "--task is missing");
    if (o->batch_size == 0 || o->batch_size > MAX_BATCH)
        return error_set(err, STATUS_INVALID, "--batchsize is %u, it must be from 1 to %d",
                         o->batch_size, MAX_BATCH);
    if (o->n_threads == 0 || o->n_threads > MAX_THREADS)
        return error_set(err, STATUS_INVALID, "--numthreads is %u, it must be from 1 to %d",
                         o->n_threads, MAX_THREADS);
    if (o->n_ranks == 0 || o->rank >= o->n_ranks)
        return error_set(err, STATUS_INVALID, "--rank is %u, it must be less than --num-ranks (%u)",
                         o->rank, o->n_ranks);
    return STATUS_OK;
}

static enum status parse_dynamic(enum dynamic_batching *out, const char *text, struct error *err)
{
    static const char *const names[] = {
        [DYNAMIC_NONE] = "none", [DYNAMIC_BATCHSORT] = "batchsort", [DYNAMIC_FULL] = "full"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(names[i], text) == 0) {
            *out = (enum dynamic_batching)i;
            return STATUS_OK;
        }
    return error_set(err, STATUS_INVALID,
                     "--dynamic-batching is '%.40s', it must be batchsort, full or none", text);
}

static enum status parse_weights(struct world_config *c, const char *text, struct arena *arena,
                                 struct error *err)
{
    double *weights;
    size_t n = 0;

    if (text == NULL)
        return STATUS_OK;
    c->stochastic = strcmp(text, "stochastic") == 0;
    if (c->stochastic)
        return STATUS_OK;
    weights = arena_alloc(arena, MAX_WEIGHTS, sizeof(*weights));
    if (weights == NULL)
        return error_no_memory(err, MAX_WEIGHTS * sizeof(*weights), "weights");
    for (const char *at = text; n < MAX_WEIGHTS; at++) {
        const size_t len = number_take_real(&weights[n], at);

        if (len == 0 || (at[len] != ',' && at[len] != '\0') || weights[n] < 0)
            return error_set(err, STATUS_INVALID,
                             "--multitask-weights is '%.60s', it must be 'stochastic' or numbers "
                             "of at least 0, separated by commas",
                             text);
        n++;
        at += len;
        if (*at == '\0')
            break;
    }
    c->weights = weights;
    c->n_weights = n;
    return STATUS_OK;
}

static enum status parse_cache(enum length_caching *out, const char *text, struct error *err)
{
    static const char *const names[] = {
        [LENGTH_CACHE_NONE] = "none", [LENGTH_CACHE_POP] = "pop", [LENGTH_CACHE_INDEX] = "index"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(names[i], text) == 0) {
            *out = (enum length_caching)i;
            return STATUS_OK;
        }
    return error_set(err, STATUS_INVALID,
                     "--batch-sort-cache is '%.40s', it must be pop, index or none", text);
}

enum status data_teacher_config(struct teacher_config *c, const struct data_options *o,
                                struct error *err)
{
    enum status rc;

    teacher_config_init(c);
    c->batch_size = o->batch_size;
    c->n_shards = o->n_threads;
    c->hide_labels = o->hide_labels;
    c->skip_bad = o->skip_bad;
    c->seed = o->seed;
    c->rank = o->rank;
    c->n_ranks = o->n_ranks;
    c->squash = o->squash;
    c->include_labels = o->include_labels;
    c->context_length = o->context_length;
    c->batch_sort = o->batch_sort;
    c->data_file = o->data_file;
    c->max_line_bytes = o->max_line_bytes;
    c->n_loaders = o->n_loaders;
    c->length_range = o->length_range;
    c->attached = &o->attached;
    rc = parse_cache(&c->length_cache, o->batch_sort_cache, err);
    if (rc == STATUS_OK)
        rc = metrics_families(&c->metrics, o->metrics, err);
    if (rc == STATUS_OK)
        rc = datatype_parse(&c->datatype, o->datatype, err);
    if (rc == STATUS_OK && (o->pytorch_task != NULL || o->pytorch_dataset != NULL))
        c->datatype.stream = true;
    return rc;
}

bool data_has_task(const struct data_options *o)
{
    return o->task != NULL || o->pytorch_task != NULL || o->pytorch_dataset != NULL;
}

enum status data_task(const char **out, const struct data_options *o, struct arena *arena,
                      struct error *err)
{
    static const char prefix[] = "plugin:";
    const char *file = o->pytorch_dataset;
    char *task;

    if (file == NULL) {
        *out = o->task != NULL ? o->task : o->pytorch_task;
        return STATUS_OK;
    }
    if (strncmp(file, "attached:", 9) == 0 || strncmp(file, prefix, sizeof(prefix) - 1) == 0) {
        *out = file;
        return STATUS_OK;
    }
    if (strstr(file, ".so") == NULL)
        return error_set(err, STATUS_INVALID,
                         "--pytorch-teacher-dataset is '%.60s', it must be FILE.so[:ARGUMENT], a "
                         "teacher built with parley_teacher.h, or attached:NAME: Python classes "
                         "cannot be loaded, but @parley.teacher attaches one",
                         file);
    task = arena_alloc(arena, 1, sizeof(prefix) + strlen(file));
    if (task == NULL)
        return error_no_memory(err, strlen(file), "a task");
    memcpy(task, prefix, sizeof(prefix) - 1);
    memcpy(task + sizeof(prefix) - 1, file, strlen(file) + 1);
    *out = task;
    return STATUS_OK;
}

/* A task's name in a report: its file's name, or the whole task where two files have the same name.
 */
static void name_tasks(struct data_world *w, const struct text *tasks)
{
    for (size_t i = 0; i < w->n_tasks; i++) {
        const char *id = teacher_id(teacher_of(w->tasks[i]));

        w->names[i] = (struct text){id, strlen(id)};
        for (size_t k = 0; k < w->n_tasks; k++)
            if (k != i && strcmp(id, teacher_id(teacher_of(w->tasks[k]))) == 0)
                w->names[i] = tasks[i];
    }
}

enum status data_tasks_open(struct data_world *w, const struct data_options *o, struct error *err)
{
    const struct task_places places = {.data_path = o->data_path != NULL ? o->data_path : "data",
                                       .file_path = o->file_path,
                                       .has_datatype_extension = o->has_datatype_extension};
    struct teacher_config config;
    const char *task_list;
    struct text *tasks;
    size_t n;
    enum status rc;

    arena_init(&w->arena, MAX_NAMES_BYTES);
    if ((rc = check_counts(o, err)) != STATUS_OK ||
        (rc = data_teacher_config(&config, o, err)) != STATUS_OK ||
        (rc = parse_dynamic(&w->config.dynamic, o->dynamic, err)) != STATUS_OK ||
        (rc = parse_weights(&w->config, o->weights, &w->arena, err)) != STATUS_OK ||
        (rc = data_task(&task_list, o, &w->arena, err)) != STATUS_OK ||
        (rc = task_names_resolve(&task_list, task_list, &places, config.datatype.fold, &w->arena,
                                 err)) != STATUS_OK ||
        (rc = tasks_split(&tasks, &n, task_list, &w->arena, err)) != STATUS_OK)
        return rc;
    if (o->takes_first && n == 1)
        config.n_first = o->n_examples;
    w->tasks = arena_alloc(&w->arena, n, sizeof(struct participant *));
    w->names = arena_alloc(&w->arena, n, sizeof(*w->names));
    if (w->tasks == NULL || w->names == NULL)
        return error_no_memory(err, n * sizeof(*w->names), "tasks");
    for (; w->n_tasks < n; w->n_tasks++) {
        struct teacher *t;
        const char *task = arena_strndup(&w->arena, tasks[w->n_tasks].text, tasks[w->n_tasks].len);

        if (task == NULL)
            return error_no_memory(err, tasks[w->n_tasks].len, "tasks");
        rc = teacher_open(&t, task, &config, err);
        if (rc != STATUS_OK)
            return rc;
        w->tasks[w->n_tasks] = teacher_participant(t);
        w->config.shuffle |= teacher_shuffles(t);
    }
    name_tasks(w, tasks);
    if (w->config.n_weights > n)
        return error_set(
            err, STATUS_INVALID,
            "--multitask-weights has %zu numbers for %zu tasks, it must have one for each",
            w->config.n_weights, n);
    w->config.tasks = w->tasks;
    w->config.n_tasks = n;
    w->config.task_names = w->names;
    w->config.aggregate_micro = o->aggregate_micro;
    w->config.seed = o->seed;
    w->config.batch_size = o->batch_size;
    w->config.text_truncate = data_text_bound(o);
    w->config.label_truncate = data_label_bound(o);
    w->config.n_threads = o->n_threads;
    w->config.n_examples = o->n_examples;
    return STATUS_OK;
}

/* --- the agent ------------------------------------------------------------------------------- */

static enum status configure_listener(struct dialogue_listener_config *c,
                                      const struct data_options *data,
                                      const struct participant_options *o, struct error *err)
{
    *c = (struct dialogue_listener_config){.history = {.size = o->history_size,
                                                       .split_lines = o->split_lines,
                                                       .person_tokens = o->person_tokens,
                                                       .reversed = o->history_reversed},
                                           .hears_names = o->hears_names,
                                           .text_truncate = data_text_bound(data),
                                           .label_truncate = data_label_bound(data)};
    if (o->delimiter != NULL)
        c->history.delimiter = (struct text){o->delimiter, strlen(o->delimiter)};
    return use_reply_parse(&c->use_reply, o->use_reply, err);
}

static enum status open_model(struct participant **out, const struct data_options *data,
                              const struct participant_options *o, struct arena *arena,
                              struct error *err)
{
    struct model_participant_config c;
    const long n_cores = sysconf(_SC_NPROCESSORS_ONLN);
    const char *kind;
    char *path;
    enum status rc;

    model_config_init(&c);
    rc = configure_listener(&c.listener, data, o, err);
    if (rc == STATUS_OK)
        rc = participant_agent_options(&c.agent.options, o, err);
    if (rc != STATUS_OK)
        return rc;
    path = model_file_path(o->model);
    rc = agent_kind_of_file(&kind, path, err);
    if (rc == STATUS_OK)
        rc = data_check_kind("lm", kind, path, err);
    if (rc != STATUS_OK) {
        free(path);
        return rc;
    }
    c.agent.path = arena_strndup(arena, path, strlen(path));
    free(path);
    if (c.agent.path == NULL)
        return error_no_memory(err, 1, "a path");
    c.agent.name = "lm";
    if (c.agent.options.n_threads == 0 && data->n_threads > 1 && n_cores > 0)
        c.agent.options.n_threads =
            (size_t)n_cores > data->n_threads ? (size_t)n_cores / data->n_threads : 1;
    c.system = o->system;
    c.is_plain = o->is_plain;
    c.no_reply = o->skip_generation;
    c.no_score = o->skip_scoring;
    c.opening = o->opening;
    c.seed_by_place = o->is_varied;
    c.sampling.temperature = o->temperature;
    c.sampling.seed = data->seed;
    if (o->max_tokens != 0)
        c.sampling.max_tokens = o->max_tokens;
    return model_open(out, &c, err);
}

bool data_is_learner(const char *kind)
{
    return strcmp(kind, "starspace") == 0 || strcmp(kind, "seq2seq") == 0;
}

static enum status open_starspace(struct participant **out, const char *path,
                                  const struct dialogue_listener_config *listener,
                                  const char *opening, struct error *err)
{
    struct starspace_participant_config c;
    struct starspace *space;

    starspace_participant_config_init(&c);
    c.listener = *listener;
    if (listener->history.delimiter.text == NULL)
        c.listener.history.delimiter = (struct text){"", 0};
    c.opening = opening;
    if (starspace_read(&space, path, err) != STATUS_OK)
        return err->status;
    return starspace_participant_open(out, space, &c, err);
}

static enum status open_seq2seq(struct participant **out, const char *path,
                                const struct dialogue_listener_config *listener,
                                const char *opening, const struct participant_options *o,
                                struct error *err)
{
    const struct seq2seq_config config = {.backend = o->backend, .n_threads = o->compute_threads};
    struct seq2seq_participant_config c;
    struct seq2seq *model;

    seq2seq_participant_config_init(&c);
    c.listener = *listener;
    c.opening = opening;
    c.no_score = o->skip_scoring;
    c.no_reply = o->skip_generation;
    if (o->max_tokens != 0)
        c.max_words = o->max_tokens;
    if (seq2seq_read(&model, path, &config, err) != STATUS_OK)
        return err->status;
    return seq2seq_participant_open(out, model, &c, err);
}

enum status data_model_missing(const char *agent, struct error *err)
{
    return error_set(err, STATUS_INVALID,
                     "%s needs --model FILE; 'parley train --task TASK --agent %s "
                     "--model-file FILE' writes such a file",
                     agent, agent);
}

enum status data_check_kind(const char *agent, const char *kind, const char *path,
                            struct error *err)
{
    if (strcmp(agent, kind) == 0)
        return STATUS_OK;
    return error_set(err, STATUS_INVALID, "%.160s is a file of --agent %s, not of %s", path, kind,
                     agent);
}

enum status data_learner_open(struct participant **out, const char *kind, const char *path,
                              const struct dialogue_listener_config *listener, const char *opening,
                              const struct participant_options *o, struct error *err)
{
    const char *found;

    if (path == NULL)
        return data_model_missing(kind, err);
    if (agent_kind_of_file(&found, path, err) != STATUS_OK ||
        data_check_kind(kind, found, path, err) != STATUS_OK)
        return err->status;
    if (strcmp(kind, "seq2seq") == 0)
        return open_seq2seq(out, path, listener, opening, o, err);
    return open_starspace(out, path, listener, opening, err);
}

static enum status open_learner(struct participant **out, const char *kind,
                                const struct data_options *data,
                                const struct participant_options *o, struct error *err)
{
    struct dialogue_listener_config listener;

    if (configure_listener(&listener, data, o, err) != STATUS_OK)
        return err->status;
    return data_learner_open(out, kind, o->model, &listener, o->opening, o, err);
}

static const char attached_prefix[] = "attached:", plugin_prefix[] = "plugin:";

static const char *after_prefix(const char *text, const char *prefix)
{
    const size_t len = strlen(prefix);

    return strncmp(text, prefix, len) == 0 ? text + len : NULL;
}

bool data_is_speaker(const char *name)
{
    return after_prefix(name, attached_prefix) != NULL || after_prefix(name, plugin_prefix) != NULL;
}

static enum status open_plugin(struct participant **out, const char *path,
                               const struct data_speaker *s, struct error *err)
{
    struct speaker_config c = {
        .type = &plugin_agent,
        .agent = {.name = "plugin", .path = path, .env = &env_real},
        .system = s->system,
        .opening = s->opening,
        .hears_names = s->options->hears_names,
    };

    sampling_init(&c.sampling);
    c.sampling.temperature = s->options->temperature;
    c.sampling.max_tokens = s->options->max_tokens;
    c.sampling.seed = s->seed;
    c.sampling.has_seed = true;
    return speaker_open(out, &c, err);
}

enum status data_speaker_open(struct participant **out, const char *name,
                              const struct data_speaker *s, struct error *err)
{
    const char *path = after_prefix(name, plugin_prefix);
    struct attached_agent_config c = {.name = after_prefix(name, attached_prefix),
                                      .system = s->system,
                                      .opening = s->opening,
                                      .hears_names = s->options->hears_names,
                                      .temperature = s->options->temperature,
                                      .max_tokens = s->options->max_tokens,
                                      .seed = s->seed};

    return path != NULL ? open_plugin(out, path, s, err)
                        : attached_agent_open(out, s->connection, &c, err);
}

/* An agent that --plugin or --agent names so. */
static enum status open_speaker(struct data_world *w, const char *name,
                                const struct data_options *data,
                                const struct participant_options *o, struct error *err)
{
    const struct data_speaker s = {.connection = &data->connection,
                                   .options = o,
                                   .system = o->system,
                                   .opening = o->opening,
                                   .seed = data->seed};

    if (o->plugin != NULL && (o->agent != NULL || o->model != NULL))
        return error_set(err, STATUS_INVALID, "--plugin excludes --agent and --model");
    if (o->model != NULL)
        return error_set(err, STATUS_INVALID, "--agent %.80s does not take --model", name);
    return o->plugin != NULL ? open_plugin(&w->agent, o->plugin, &s, err)
                             : data_speaker_open(&w->agent, name, &s, err);
}

static enum status open_simple(struct data_world *w, const char *name,
                               const struct data_options *data, const struct participant_options *o,
                               struct error *err)
{
    struct simple_config c;

    simple_config_init(&c);
    if (simple_needs_dictionary(name)) {
        if (o->dict_file == NULL)
            return error_set(err, STATUS_INVALID,
                             "'%s' needs --dict-file FILE; 'parley train --task TASK --dict-file "
                             "FILE' writes such a file",
                             name);
        if (dictionary_read(&w->dictionary, o->dict_file, err) != STATUS_OK)
            return err->status;
        c.dictionary = w->dictionary;
    }
    c.history_size = o->history_size > 0 ? (size_t)o->history_size : 0;
    c.seed = data->seed;
    c.return_all = !o->return_one_random_answer;
    c.cant_answer_percent = (double)o->cant_answer_percent;
    c.fixed_response = o->fixed_response;
    return simple_open(&w->agent, name, &c, err);
}

static void act_one_by_one(struct participant *p, struct participant_row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++)
        rows[i].failed = p->type->act(rows[i].clone, rows[i].out, &rows[i].err) != STATUS_OK;
}

/* An agent that repeats computes nothing, so it may run in length buckets without a batch_act and
 * without a bound of length. */
static void let_repeat(struct data_world *w)
{
    enum { UNBOUNDED = 1 << 24 };

    if (w->agent->type->batch_act == NULL) {
        w->repeating = *w->agent->type;
        w->repeating.batch_act = act_one_by_one;
        w->agent->type = &w->repeating;
    }
    if (w->config.text_truncate == 0)
        w->config.text_truncate = UNBOUNDED;
}

enum status data_human_open(struct participant **out, const struct data_options *data,
                            const char *name, bool is_one_of_many, struct error *err)
{
    if (data->terminal == NULL)
        return error_set(err, STATUS_INVALID, "local_human takes part in eval and interactive");
    if (data->batch_size > 1 || data->n_threads > 1)
        return error_set(err, STATUS_INVALID,
                         "a human has one conversation at a time: leave out --batchsize and "
                         "--numthreads");
    return human_open(out, data->terminal, name, is_one_of_many, err);
}

enum status data_agent_open(struct data_world *w, const struct data_options *data,
                            const struct participant_options *o, struct error *err)
{
    const char *name = o->agent != NULL ? o->agent : "repeat_label";
    enum status rc = STATUS_OK;

    if (o->agent == NULL && o->model != NULL && o->plugin == NULL)
        rc = agent_kind_of_file(&name, o->model, err);
    if (rc != STATUS_OK)
        return rc;
    if (o->plugin != NULL || data_is_speaker(name))
        rc = open_speaker(w, name, data, o, err);
    else if (strcmp(name, "local_human") == 0)
        rc = data_human_open(&w->agent, data, NULL, false, err);
    else if (strcmp(name, "lm") == 0)
        rc = open_model(&w->agent, data, o, &w->arena, err);
    else if (data_is_learner(name))
        rc = open_learner(&w->agent, name, data, o, err);
    else
        rc = open_simple(w, name, data, o, err);
    if (rc != STATUS_OK)
        return rc;
    if (o->plugin == NULL && w->config.dynamic != DYNAMIC_NONE &&
        strncmp(name, "repeat_", strlen("repeat_")) == 0)
        let_repeat(w);
    w->config.agents = &w->agent;
    w->config.n_agents = 1;
    return STATUS_OK;
}

/* --- the world ------------------------------------------------------------------------------- */

enum status data_world_open(struct data_world *w, struct error *err)
{
    return world_open(&w->world, &w->config, err);
}

void data_world_close(struct data_world *w)
{
    world_close(w->world);
    participant_unref(w->agent);
    dictionary_close(w->dictionary);
    for (size_t i = 0; i < w->n_tasks; i++)
        participant_unref(w->tasks[i]);
    arena_deinit(&w->arena);
    *w = (struct data_world){0};
}

enum exit_code data_end(enum status rc, const struct error *err)
{
    if (rc == STATUS_OK)
        return EXIT_DONE;
    console_error("%s", err->text);
    return strncmp(err->field, "--", 2) == 0 ? EXIT_MISUSE : EXIT_FAILED;
}

void data_world_warn(const struct data_world *w)
{
    if ((w->config.n_weights > 0 || w->config.stochastic) && !w->config.shuffle)
        console_line("--multitask-weights has no effect: data in order take turns");
    for (size_t i = 0; i < w->n_tasks; i++) {
        struct teacher *t = teacher_of(w->tasks[i]);
        size_t n_skipped = teacher_n_skipped(t);

        if (teacher_warning(t) != NULL)
            console_line("%s", teacher_warning(t));
        if (n_skipped > 0)
            console_line("%s: %zu bad lines were left out", teacher_id(t), n_skipped);
    }
}
