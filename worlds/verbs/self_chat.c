/* The verb "self-chat": clones of a model, or of several, in one conversation; more than two are a
 * round robin, in which each hears all others. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "cli/output/out.h"
#include "compute/verbs/model_file.h"
#include "worlds/participant/model.h"
#include "worlds/participant/participant.h"
#include "worlds/verbs/data.h"
#include "worlds/verbs/verbs.h"
#include "worlds/verbs/world_file.h"
#include "worlds/verbs/world_log.h"

enum { MAX_CONVERSATIONS = 1024, MAX_TURNS = 10000, MAX_SPEAKERS = 26, SELF_CHAT_TURNS = 1 };

struct self_chat {
    struct participant_options agent;
    struct data_options data; /* the seed and the server */
    const char *opening, *topic, *world_logs, *world;
    struct world_file *file; /* of --world; NULL: each hears all others */
    struct option_texts partners;
    uint32_t n_turns, n_conversations, n_speakers;
    bool is_json;
    unsigned set;
};

static const struct option_row self_chat_rows[] = {
    {"opening", "TEXT", "the first speaker's first text", OPTION_TEXT,
     offsetof(struct self_chat, opening), 0},
    {"topic", "TEXT", "the topic that all speakers are given", OPTION_TEXT,
     offsetof(struct self_chat, topic), 0},
    {"partner-model-file|pmf", "PATH",
     "the second speaker's model, attached:NAME or plugin:FILE.so (the first speaker's); given "
     "again: the third speaker's, and so on",
     OPTION_TEXTS, offsetof(struct self_chat, partners), 0},
    {"speakers", "N", "number of speakers; each hears all others (2)", OPTION_U32,
     offsetof(struct self_chat, n_speakers), 0},
    {"turns", "N", "turns of each speaker (6)", OPTION_U32, offsetof(struct self_chat, n_turns),
     SELF_CHAT_TURNS},
    {"conversations|bs", "N",
     "conversations at the same time, each with its own random numbers (1)", OPTION_U32,
     offsetof(struct self_chat, n_conversations), 0},
    {"seed", "N", "seed of the random numbers (0)", OPTION_U64,
     offsetof(struct self_chat, data.seed), 0},
    {"world", "FILE|attached:NAME",
     "a custom world: a JSON file, or an attached worker, that says who speaks and who hears whom",
     OPTION_TEXT, offsetof(struct self_chat, world), 0},
    {"world-logs|wlog", "FILE", "write what was said, one conversation per line", OPTION_TEXT,
     offsetof(struct self_chat, world_logs), 0},
    {"json", NULL, "print one JSON object per utterance", OPTION_FLAG,
     offsetof(struct self_chat, is_json), 0},
    {0},
};

static void print_utterance(const struct self_chat *s, size_t conversation, const char *who,
                            struct text said)
{
    if (s->is_json) {
        (void)out_json(json_pack("{s:I,s:s,s:s%}", "conversation", (json_int_t)conversation, "id",
                                 who, "text", said.text != NULL ? said.text : "",
                                 said.len)); /* out_end reports a failure */
        return;
    }
    if (s->n_conversations > 1)
        printf("%zu ", conversation);
    printf("%s: ", who);
    if (said.len > 0)
        (void)out_foreign(said.text, said.len);
    printf("\n");
}

static void print_turn(const struct self_chat *s, const struct world *w)
{
    for (size_t i = 0; i < world_n_rows(w); i++) {
        struct world_row row;

        world_row(w, i, &row);
        if (row.n_acts > 0 && act_is_padding(&row.acts[0])) /* the conversation has ended */
            continue;
        for (size_t k = 0; k < row.n_acts; k++) {
            const size_t at = row.speakers != NULL ? row.speakers[k] : k;
            const char letter[] = {(char)('A' + at), '\0'};

            print_utterance(s, row.slot, s->file != NULL ? world_file_name(s->file, at) : letter,
                            act_text(&row.acts[k]));
        }
    }
    (void)out_flush();
}

static enum status open_one(struct participant **out, const struct self_chat *s, const char *path,
                            const char *system, struct error *err)
{
    struct model_participant_config c;
    const struct data_speaker speaker = {.connection = &s->data.connection,
                                         .options = &s->agent,
                                         .system = system,
                                         .opening = s->opening,
                                         .seed = s->data.seed};
    const char *kind;
    enum status rc;

    if (data_is_speaker(path))
        return data_speaker_open(out, path, &speaker, err);
    rc = agent_kind_of_file(&kind, path, err);
    if (rc != STATUS_OK)
        return rc;
    model_config_init(&c);
    c.listener.use_reply = USE_REPLY_MODEL;
    c.listener.history.size = s->agent.history_size;
    if (data_is_learner(kind))
        return data_learner_open(out, kind, path, &c.listener, s->opening, &s->agent, err);
    rc = participant_agent_options(&c.agent.options, &s->agent, err);
    if (rc != STATUS_OK)
        return rc;
    c.agent.path = path;
    c.agent.name = "lm";
    c.system = system;
    c.opening = s->opening;
    c.no_score = true;
    c.seed_by_place = true;
    c.sampling.temperature = s->agent.temperature;
    c.sampling.seed = s->data.seed;
    if (s->agent.max_tokens != 0)
        c.sampling.max_tokens = s->agent.max_tokens;
    return model_open(out, &c, err);
}

/* Who begins: a model's file, or the name of an agent of one's own. The caller frees it. */
static char *self_chat_first(const struct self_chat *s)
{
    char *name = NULL;

    if (s->agent.plugin == NULL && s->agent.agent != NULL && data_is_speaker(s->agent.agent))
        return xstrdup(s->agent.agent);
    if (s->agent.plugin == NULL)
        return model_file_path(s->agent.model);
    if (asprintf(&name, "plugin:%s", s->agent.plugin) < 0)
        abort(); /* no memory for a line */
    return name;
}

/* Whether the file is what --agent says. */
static enum status self_chat_check_kind(const struct self_chat *s, const char *path,
                                        struct error *err)
{
    const char *kind;

    if (s->agent.agent == NULL || data_is_speaker(path))
        return STATUS_OK;
    if (data_is_learner(s->agent.agent) && s->agent.model == NULL)
        return data_model_missing(s->agent.agent, err);
    if (agent_kind_of_file(&kind, path, err) != STATUS_OK)
        return err->status;
    return data_check_kind(s->agent.agent, kind, path, err);
}

static enum status self_chat_dialogue(const struct self_chat *s, struct world_config *config,
                                      struct error *err)
{
    struct world_log *log = NULL;
    struct world *w = NULL;
    struct error log_err;
    enum status rc = STATUS_OK;

    if (s->world_logs != NULL)
        rc = world_log_open(&log, s->world_logs, err);
    if (log != NULL) {
        config->watch = world_log_watch;
        config->watch_arg = log;
    }
    if (rc == STATUS_OK)
        rc = world_open(&w, config, err);
    for (uint32_t i = 0; rc == STATUS_OK && i < s->n_turns && !world_epoch_done(w); i++) {
        rc = world_parley(w, err);
        if (rc == STATUS_OK)
            print_turn(s, w);
    }
    world_close(w);
    if (world_log_close(log, &log_err) != STATUS_OK && rc == STATUS_OK) {
        *err = log_err;
        rc = err->status;
    }
    return rc;
}

/* Models, or agents of one's own, of which each hears all others. */
static enum status self_chat_circle(const struct self_chat *s, struct error *err)
{
    struct participant *speakers[MAX_SPEAKERS] = {NULL};
    struct world_config config = {.tasks = speakers,
                                  .n_tasks = 1,
                                  .agents = speakers + 1,
                                  .n_agents = s->n_speakers - 1,
                                  .batch_size = s->n_conversations,
                                  .seed = s->data.seed};
    char *path = self_chat_first(s), *topic = NULL;
    const char *system = s->agent.system;
    enum status rc;

    if (s->topic != NULL &&
        asprintf(&topic, "%s%sThe topic of this conversation is: %s.", system != NULL ? system : "",
                 system != NULL ? "\n" : "", s->topic) < 0)
        abort(); /* no memory for a line */
    if (topic != NULL)
        system = topic;
    rc = self_chat_check_kind(s, path, err);
    if (rc == STATUS_OK)
        rc = open_one(&speakers[0], s, path, system, err);
    for (size_t i = 1; rc == STATUS_OK && i < s->n_speakers; i++) {
        if (i <= s->partners.n)
            rc = open_one(&speakers[i], s, s->partners.texts[i - 1], system, err);
        else
            speakers[i] = participant_ref(speakers[0]);
    }
    if (rc == STATUS_OK)
        rc = self_chat_dialogue(s, &config, err);
    for (size_t i = 0; i < s->n_speakers; i++)
        participant_unref(speakers[i]);
    free(path);
    free(topic);
    return rc;
}

/* A world of one's own. */
static enum status self_chat_world(struct self_chat *s, struct error *err)
{
    struct world_config config = {.batch_size = s->n_conversations, .seed = s->data.seed};
    enum status rc = world_file_open(&s->file, s->world, &s->data, err);

    s->agent.is_varied = true;
    s->agent.opening = s->opening;
    if (rc == STATUS_OK)
        rc = world_file_expect(s->file, WORLD_NEEDS_AGENTS, err);
    if (rc == STATUS_OK)
        rc = world_file_cast(s->file, &config, &s->data, &s->agent, err);
    if (rc == STATUS_OK && (s->set & SELF_CHAT_TURNS) == 0 && world_file_n_rounds(s->file) > 0)
        s->n_turns = (uint32_t)world_file_n_rounds(s->file);
    if (rc == STATUS_OK)
        rc = self_chat_dialogue(s, &config, err);
    world_file_close(s->file);
    return rc;
}

enum exit_code self_chat_run(const struct verb *verb, int argc, char **argv)
{
    struct self_chat s = {.n_turns = 6,
                          .n_conversations = 1,
                          .n_speakers = 2,
                          .opening = "Hello! What would you like to talk about?"};
    const struct option_group groups[] = {{participant_option_rows, &s.agent, NULL},
                                          {data_server_rows, &s.data.connection, NULL},
                                          {self_chat_rows, &s, &s.set}};
    struct error err;
    enum exit_code code;
    enum status rc;
    int first;

    participant_options_init(&s.agent);
    data_options_init(&s.data, "valid");
    s.agent.temperature = 0.7F;
    if (!options_read(verb, groups, sizeof(groups) / sizeof(groups[0]), argc, argv, 0, 0, &first,
                      &code))
        return code;
    if ((s.agent.plugin != NULL) + (s.agent.model != NULL) +
            (s.agent.agent != NULL && data_is_speaker(s.agent.agent)) >
        1)
        return options_misuse(verb, "--plugin, --agent and --model exclude each other: give one");
    if (s.world == NULL && s.agent.agent != NULL && !data_is_speaker(s.agent.agent) &&
        !data_is_learner(s.agent.agent) && strcmp(s.agent.agent, "lm") != 0)
        return options_misuse(verb,
                              "--agent %.40s talks only in a world of your own (--world); here lm, "
                              "starspace, seq2seq, attached:NAME and plugin:FILE.so talk",
                              s.agent.agent);
    if (s.world != NULL && (s.topic != NULL || s.partners.n > 0))
        return options_misuse(verb, "--world excludes --topic and --partner-model-file");
    if (s.n_speakers < 2 || s.n_speakers > MAX_SPEAKERS)
        return options_misuse(verb, "--speakers is %u, it must be from 2 to %d", s.n_speakers,
                              MAX_SPEAKERS);
    if (s.partners.n >= s.n_speakers)
        return options_misuse(
            verb, "--partner-model-file is given %zu times, which is too often for %u speakers",
            s.partners.n, s.n_speakers);
    if (s.n_turns == 0 || s.n_turns > MAX_TURNS)
        return options_misuse(verb, "--turns is %u, it must be from 1 to %d", s.n_turns, MAX_TURNS);
    if (s.n_conversations == 0 || s.n_conversations > MAX_CONVERSATIONS)
        return options_misuse(verb, "--conversations is %u, it must be from 1 to %d",
                              s.n_conversations, MAX_CONVERSATIONS);
    rc = s.world != NULL ? self_chat_world(&s, &err) : self_chat_circle(&s, &err);
    return data_end(rc, &err);
}
