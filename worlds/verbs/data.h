/* The options of verbs that run agents over data, under ParlAI's names, and the world that the
 * options describe. parley-parlai(7) has the table of options. */
#ifndef WORLDS_VERBS_DATA_H
#define WORLDS_VERBS_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agents/options.h"
#include "base/arena.h"
#include "base/status.h"
#include "cli/options/options.h"
#include "client/cli/connection.h"
#include "worlds/participant/listener.h"
#include "worlds/participant/participant.h"
#include "worlds/teachers/teacher.h"
#include "worlds/world/world.h"

struct dictionary;
struct human_terminal;

/* Which data there are, in what order and batches. The struct is zeroed, then filled by
 * data_options_init, and must not be moved. */
struct data_options {
    const char *task, *datatype, *dynamic, *metrics, *weights, *data_file, *batch_sort_cache;
    const char *pytorch_task, *pytorch_dataset;
    const char *data_path, *file_path; /* of ParlAI's own tasks (task_names.h) */
    bool has_datatype_extension;
    uint32_t batch_size, n_threads;
    bool batch_sort, include_labels, hide_labels, skip_bad, squash, aggregate_micro, stochastic;
    bool start_by_chance;
    int64_t context_length;
    int64_t truncate, text_truncate, label_truncate; /* tokens; below 0: no bound */
    uint32_t rank, n_ranks, max_line_bytes, n_loaders, length_range;
    uint64_t seed, n_examples;
    struct human_terminal *terminal; /* no option: of local_human; NULL: the verb has none */
    bool takes_first; /* no option: n_examples are the first of the data, whatever is done when */
    struct connection_options connection; /* to the server of attached data and agents */
    struct attached_data attached;
};

/* The agent that answers. */
struct participant_options {
    const char *agent, *model, *plugin, *backend, *kv, *system, *use_reply, *delimiter;
    const char *dict_file, *fixed_response;
    /* These three are no options. */
    const char *opening; /* reply of a clone that observed nothing; NULL: an error */
    bool is_varied;      /* each clone of an lm draws by a seed of its own */
    bool hears_names;    /* the agent is told who says what it hears */
    int64_t history_size;
    uint32_t compute_threads, kv_mib, max_tokens;
    float temperature;
    bool split_lines, person_tokens, history_reversed, is_plain;
    bool skip_generation, skip_scoring;
    bool return_one_random_answer;
    float cant_answer_percent;
};

extern const struct option_row data_option_rows[], participant_option_rows[];
/* The rows of the server, into struct connection_options, for verbs without data_option_rows, which
 * contain these rows. */
extern const struct option_row data_server_rows[];

/* Return the most tokens of a text and of a label; 0: no bound. */
size_t data_text_bound(const struct data_options *o);
size_t data_label_bound(const struct data_options *o);

void data_options_init(struct data_options *o, const char *datatype);
void participant_options_init(struct participant_options *o);
/* Writes how an lm computes. STATUS_INVALID: an option has an invalid value. */
enum status participant_agent_options(struct agent_options *out,
                                      const struct participant_options *o,
                                      struct error *err) MUST_CHECK;

/* A world and all that the world is made of. The caller zeroes the struct before a function below
 * opens a part, and calls data_world_close even after a failure. */
struct data_world {
    struct arena arena;
    struct participant **tasks; /* [n_tasks] */
    struct text *names;         /* [n_tasks] */
    size_t n_tasks;
    struct participant *agent;
    struct dictionary *dictionary;
    struct participant_type repeating; /* the agent's type, if its own cannot be batched */
    struct world_config config;        /* of the world that data_world_open opens */
    struct world *world;
};

/* Writes the config of a teacher. STATUS_INVALID: an option has an invalid value. */
enum status data_teacher_config(struct teacher_config *out, const struct data_options *o,
                                struct error *err) MUST_CHECK;
/* Returns whether an option that names the data is given. */
bool data_has_task(const struct data_options *o);
/* Writes what these options name, in the form of --task. The text is in the arena or is the
 * option's own. STATUS_INVALID: an option has an invalid value. */
enum status data_task(const char **out, const struct data_options *o, struct arena *arena,
                      struct error *err) MUST_CHECK;
/* Opens the teachers, and fills in the part of w->config that depends on the data. STATUS_INVALID:
 * an option has an invalid value. */
enum status data_tasks_open(struct data_world *w, const struct data_options *o,
                            struct error *err) MUST_CHECK;
/* Opens the agent that answers. */
enum status data_agent_open(struct data_world *w, const struct data_options *data,
                            const struct participant_options *o, struct error *err) MUST_CHECK;
/* Opens a person at data's terminal (human_open). INVALID: the verb has no terminal, or there are
 * several conversations side by side. */
enum status data_human_open(struct participant **out, const struct data_options *data,
                            const char *name, bool is_one_of_many, struct error *err) MUST_CHECK;
/* Returns whether the name is attached:NAME or plugin:FILE.so, a user's own agent. */
bool data_is_speaker(const char *name);
/* How such an agent is opened. The participant borrows all of this as long as it lives. */
struct data_speaker {
    const struct connection_options *connection;
    const struct participant_options *options; /* temperature and max_tokens */
    const char *system;                        /* NULL: none */
    const char *opening; /* reply of a clone that observed nothing; NULL: an error */
    uint64_t seed;
};
enum status data_speaker_open(struct participant **out, const char *name,
                              const struct data_speaker *s, struct error *err) MUST_CHECK;
/* Returns whether 'parley train --agent KIND' makes agents of that kind. */
bool data_is_learner(const char *kind);
/* Opens such an agent's file, for replies. opening: the reply of a clone that observed nothing;
 * NULL: an error. */
enum status data_learner_open(struct participant **out, const char *kind, const char *path,
                              const struct dialogue_listener_config *listener, const char *opening,
                              const struct participant_options *o, struct error *err) MUST_CHECK;
/* Sets err and returns STATUS_INVALID: --model-file is missing for that agent. */
enum status data_model_missing(const char *agent, struct error *err) MUST_CHECK;
/* STATUS_INVALID: the file at path has an agent of that kind, and --agent names another kind. */
enum status data_check_kind(const char *agent, const char *kind, const char *path,
                            struct error *err) MUST_CHECK;
/* Opens the world as the last part. The caller may change w->config before. */
enum status data_world_open(struct data_world *w, struct error *err) MUST_CHECK;
void data_world_close(struct data_world *w);

/* The end of a verb: prints the error, unless rc is STATUS_OK. Returns the exit code, EXIT_MISUSE
 * where the error's field is an option. */
enum exit_code data_end(enum status rc, const struct error *err);

/* Prints warnings on stderr: lines that were skipped, and data that other readers read
 * differently. */
void data_world_warn(const struct data_world *w);

#endif
