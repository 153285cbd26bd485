/* A verb of the command line: `parley VERB …`. One file each; main.c has the table of them. */
#ifndef CLI_OPTIONS_VERB_H
#define CLI_OPTIONS_VERB_H

/* The program's exit code; scripts rely on the numbers. */
enum exit_code {
    EXIT_DONE = 0,
    EXIT_FAILED = 1,
    EXIT_MISUSE = 2, /* of the command line */
    EXIT_BOUND = 3,  /* a requested bound does not hold */
};

struct verb {
    const char *name;
    const char *args;  /* "TEXT [OPTION]…" */
    const char *about; /* one line, for the list of verbs */
    /* argv[0] is the verb. */
    enum exit_code (*run)(const struct verb *verb, int argc, char **argv);
};

/* Index of the argument that names a verb, which may stand after --server, --wait and --json; 0:
 * there is none. */
int verb_index(int argc, char **argv);
/* Runs the verb whose name is argv[at]; arguments before the name are moved behind it. at 0: the
 * verb is not named. */
enum exit_code verb_run(const struct verb *verb, int argc, char **argv, int at);

enum exit_code ask_run(const struct verb *verb, int argc, char **argv);
enum exit_code bench_run(const struct verb *verb, int argc, char **argv);
enum exit_code bench_cartpole_run(const struct verb *verb, int argc, char **argv);
enum exit_code bench_params_run(const struct verb *verb, int argc, char **argv);
enum exit_code bench_load_run(const struct verb *verb, int argc, char **argv);
enum exit_code build_data_run(const struct verb *verb, int argc, char **argv);
enum exit_code chat_run(const struct verb *verb, int argc, char **argv);
enum exit_code conversations_run(const struct verb *verb, int argc, char **argv);
enum exit_code convert_run(const struct verb *verb, int argc, char **argv);
enum exit_code data_stats_run(const struct verb *verb, int argc, char **argv);
enum exit_code display_run(const struct verb *verb, int argc, char **argv);
enum exit_code self_chat_run(const struct verb *verb, int argc, char **argv);
enum exit_code detokenize_run(const struct verb *verb, int argc, char **argv);
enum exit_code eval_run(const struct verb *verb, int argc, char **argv);
enum exit_code interactive_run(const struct verb *verb, int argc, char **argv);
enum exit_code inspect_run(const struct verb *verb, int argc, char **argv);
enum exit_code keys_run(const struct verb *verb, int argc, char **argv);
enum exit_code models_run(const struct verb *verb, int argc, char **argv);
enum exit_code observe_run(const struct verb *verb, int argc, char **argv);
enum exit_code place_run(const struct verb *verb, int argc, char **argv);
enum exit_code policy_run(const struct verb *verb, int argc, char **argv);
enum exit_code selftest_run(const struct verb *verb, int argc, char **argv);
enum exit_code status_run(const struct verb *verb, int argc, char **argv);
enum exit_code tokenize_run(const struct verb *verb, int argc, char **argv);
enum exit_code train_run(const struct verb *verb, int argc, char **argv);

#endif
