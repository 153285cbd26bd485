/* A verb of the command line: `parley VERB …`. cli/main.c has the table of all verbs. */
#ifndef CLI_OPTIONS_VERB_H
#define CLI_OPTIONS_VERB_H

/* The program's exit code; scripts rely on the numbers. */
enum exit_code {
    EXIT_DONE = 0,
    EXIT_FAILED = 1,
    EXIT_MISUSE = 2, /* the command line is wrong */
    EXIT_BOUND = 3,  /* a requested bound does not hold */
};

struct verb {
    const char *name;  /* the words after "parley": "chat", "bench cartpole" */
    const char *args;  /* "TEXT [OPTION]…" */
    const char *about; /* one line, for the list of verbs */
    /* argv[0] is the verb. NULL: this is no verb, but the heading of those below it. */
    enum exit_code (*run)(const struct verb *verb, int argc, char **argv);
};

/* Returns the index of the argument that names a verb; the name may stand after --server, --wait
 * and --json. 0: no argument names a verb. */
int verb_index(int argc, char **argv);
/* Makes argv[at], which names the verb, the new argv[0]; the arguments before it are moved behind
 * it. */
void verb_name_first(const struct verb *verb, int *argc, char ***argv, int at);

#endif
