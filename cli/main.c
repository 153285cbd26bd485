/* parley: the command line of Parley. This file has the table of all verbs; a verb stands beside
 * what it runs, one file each. */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "agents/verbs/verbs.h"
#include "base/denormals.h"
#include "base/program.h"
#include "base/suggest.h"
#include "cli/options/verb.h"
#include "cli/output/console.h"
#include "cli/output/out.h"
#include "client/cli/verbs.h"
#include "compute/verbs/verbs.h"
#include "worlds/verbs/verbs.h"

PROGRAM_TAKES_STANDARD_FILES;

/* The client does not read model files; the agents' verbs do. */
static enum exit_code models_or_files_run(const struct verb *verb, int argc, char **argv)
{
    return models_run(verb, argc, argv, models_list_run);
}

/* In the order of the help. A row without a function is the heading of the rows below it. A name of
 * two words is not listed; of it, the first word's row tells in its own help. */
static const struct verb verbs[] = {
    {"talk to a server", "", "", NULL},
    {"chat", "[OPTION]…", "Chat with a model; on a pipe, each line of stdin is a turn.", chat_run},
    {"ask", "TEXT… [OPTION]…",
     "Ask a question and print the reply; a file or pipe on stdin follows the question.", ask_run},
    {"conversations",
     "[list | show ID | fork ID | rewind ID TURN | cancel ID [TURN] | close ID… | watch [ID] | "
     "export [ID…] | import] [OPTION]…",
     "List, show, fork, rewind, close, watch, export or import conversations.", conversations_run},
    {"verify", "[FILE | ID]… [OPTION]…",
     "Compute conversations again, and say whether the replies are the same.", verify_run},
    {"rerun", "[FILE | ID]… [OPTION]…",
     "Compute conversations with another model or prompt, and show what differs.", rerun_run},
    {"observe", "[OPTION]…",
     "Run an environment that gets every action from a server, to train its policy.", observe_run},

    {"run a server", "", "", NULL},
    {"status", "[OPTION]…", "Show the server's state: conversations, memory, batches, KV pages.",
     status_run},
    {"models", "[list DIR | rm NAME…] [OPTION]…",
     "List the server's models, or a folder's; rm removes models from the hub's cache.",
     models_or_files_run},
    {"pull", "hf:OWNER/REPO[:QUANT]… [OPTION]…",
     "Fetch a model of the Hugging Face hub into its cache; needs no server.", pull_verb_run},
    {"keys", "new --principal NAME [OPTION]…",
     "Make a new key and its line for the file of parleyd --keys; needs no server.", keys_run},
    {"cluster", "[OPTION]…",
     "Show the daemons that share the server's data: leases, conversations.", cluster_run},
    {"drain", "[OPTION]…",
     "Stop the server: its turns end, or go on at another daemon that shares its data.", drain_run},
    {"bench", "parley://HOST:PORT|kserve://…|http[s]://… [OPTION]…",
     "Put a load on a server and measure latency and throughput.", bench_load_run},
    {"bench cartpole", "[OPTION]…",
     "Measure the table of PyTorch's batch RPC tutorial: CartPole with and without batching.",
     bench_cartpole_run},
    {"bench params", "[OPTION]…",
     "Measure rounds of a parameter server, and compare them with gRPC alone.", bench_params_run},

    {"look into a model's file, without a server", "", "", NULL},
    {"inspect", "PATH [OPTION]…", "Show what is in a model's file.", inspect_run},
    {"tokenize", "[OPTION]…", "Convert JSON lines {\"text\":…} to {\"ids\":[…]}.", tokenize_run},
    {"detokenize", "[OPTION]…", "Convert JSON lines {\"ids\":[…]} to {\"text\":…}.",
     detokenize_run},
    {"selftest", "[OPTION]…", "Compare a backend's operators with those of ref.", selftest_run},
    {"place", "[FILE]", "Place models on devices, JSON in and JSON out.", place_run},

    {"train and evaluate, without a server", "", "", NULL},
    {"train",
     "ENVIRONMENT | a2c|a3c|ppo|dqn|apex|impala [--env NAME] | --task TASK --dict-file FILE | "
     "--task TASK --agent NAME --model-file FILE [OPTION]…",
     "Train a policy or an agent, or build a dictionary from data.", train_run},
    {"eval", "--task TASK | --golden DIR | --world ENVIRONMENT [OPTION]…",
     "Score an agent on data, a model against known answers, or a policy in its world.", eval_run},
    {"interactive", "[OPTION]…", "Talk with an agent in a world.", interactive_run},
    {"self-chat", "[OPTION]…", "Let clones of a model, or several models, talk with each other.",
     self_chat_run},
    {"policy", "new FILE --observations N --actions N [OPTION]…",
     "Write a policy file with fresh parameters.", policy_run},

    {"prepare data, without a server", "", "", NULL},
    {"display", "--task TASK [OPTION]…", "Show data as it will be batched.", display_run},
    {"data-stats", "--task TASK [OPTION]…", "Count the utterances and tokens of data.",
     data_stats_run},
    {"convert", "--task TASK --to FORMAT [OPTION]…", "Convert data to another format.",
     convert_run},
    {"build-data", "--task TASK [OPTION]…",
     "Build the data file and index that a :stream datatype reads.", build_data_run},
};

enum { N_VERBS = sizeof(verbs) / sizeof(verbs[0]) };

static bool is_listed(const struct verb *verb)
{
    return verb->run != NULL && strchr(verb->name, ' ') == NULL;
}

static const struct verb *find_verb(const char *name)
{
    for (size_t i = 0; i < N_VERBS; i++)
        if (verbs[i].run != NULL && strcmp(verbs[i].name, name) == 0)
            return &verbs[i];
    return NULL;
}

static enum exit_code no_such_verb(const char *name)
{
    /* Verbs of other programs. */
    static const struct {
        const char *name, *instead;
    } others[] = {
        {"serve", "'parleyd FILE.gguf' serves a model"},
        {"run", "'parley chat --model NAME' talks with a model that parleyd serves"},
        {"list", "'parley models' lists what parleyd serves"},
        {"ls", "'parley models' lists what parleyd serves"},
        {"ps", "'parley status' shows what parleyd does"},
        {"stop", "'parley drain' stops parleyd"},
        {"rm", "'parley models rm' removes a model's files"},
        {"show", "'parley inspect FILE' shows a model's file"},
        {"create", "'parleyd NAME=FILE.gguf' serves a file as it is"},
    };
    struct suggest near;

    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (strcmp(others[i].name, name) == 0) {
            console_error("there is no verb '%s'; %s", name, others[i].instead);
            return EXIT_MISUSE;
        }
    suggest_init(&near, name);
    for (size_t i = 0; i < N_VERBS; i++)
        if (is_listed(&verbs[i]))
            suggest_try(&near, verbs[i].name);
    if (near.word != NULL)
        console_error("there is no verb '%s', did you mean '%s'?", name, near.word);
    else
        console_error("there is no verb '%s'; 'parley --help' lists them", name);
    return EXIT_MISUSE;
}

static void main_print_help(void)
{
    printf("usage: parley [VERB] [--server HOST:PORT] [--json] …\n");
    for (size_t i = 0; i < N_VERBS; i++)
        if (verbs[i].run == NULL)
            printf("\n%s:\n", verbs[i].name);
        else if (is_listed(&verbs[i]))
            printf("  %-14s  %s%s\n", verbs[i].name, verbs[i].about,
                   verbs[i].run == chat_run ? " The default." : "");
    printf("\n'parley help VERB' lists a verb's options. 'man parley' is the manual.\n");
}

/* What a verb's name would be, but is answered here: help, help help, --help, version and
 * --version. second: the word behind it, NULL with argc 2. */
static bool main_answers(const char *word, const char *second, int argc)
{
    if ((argc == 2 &&
         (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0)) ||
        (argc == 3 && strcmp(word, "help") == 0 && strcmp(second, "help") == 0)) {
        main_print_help();
        return true;
    }
    if (strcmp(word, "--version") == 0 || strcmp(word, "version") == 0) {
        printf("parley %s\n", PARLEY_VERSION);
        return true;
    }
    return false;
}

/* Makes "help VERB" of "VERB --help". */
static char **help_of_verb(int argc, char **argv)
{
    static char help[] = "--help";

    for (int i = 1; i + 1 < argc; i++)
        argv[i] = argv[i + 1];
    argv[argc - 1] = help;
    return argv;
}

static enum exit_code main_run(int argc, char **argv)
{
    int at = verb_index(argc, argv);
    const struct verb *verb, *second;
    char name[64];

    if (argc > 1 && main_answers(argv[1], argv[2], argc))
        return EXIT_DONE;
    if (argc > 2 && strcmp(argv[1], "help") == 0) {
        argv = help_of_verb(argc, argv);
        at = verb_index(argc, argv);
    }
    if (at == 0) {
        verb = find_verb("chat");
        return verb->run(verb, argc, argv);
    }
    verb = find_verb(argv[at]);
    if (verb == NULL || !is_listed(verb))
        return no_such_verb(argv[at]);
    verb_name_first(verb, &argc, &argv, at);
    at = verb_index(argc, argv);
    (void)snprintf(name, sizeof(name), "%s %s", verb->name,
                   argv[at]); /* a longer one is no verb's */
    second = at == 0 ? NULL : find_verb(name);
    if (second != NULL) {
        verb_name_first(second, &argc, &argv, at);
        verb = second;
    }
    return verb->run(verb, argc, argv);
}

int main(int argc, char **argv)
{
    enum exit_code code;

    denormals_are_zero();
    console_use_utf8();
    (void)signal(SIGPIPE, SIG_IGN); /* a write to a closed pipe then fails with an error */
    code = main_run(argc, argv);
    if (!out_end() && code == EXIT_DONE)
        code = EXIT_FAILED;
    return (int)code;
}
