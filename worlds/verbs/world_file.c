/* Reads a world's JSON, and checks who speaks and who hears whom. Casting opens each participant,
 * by the options where the JSON says nothing, and the script of a world whose code says who speaks.
 */
#include "worlds/verbs/world_file.h"

#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "worlds/participant/participant.h"
#include "worlds/verbs/attached_script.h"
#include "worlds/verbs/data.h"
#include "worlds/world/world.h"

enum { WORLD_FILE_BYTES = 1 << 20, WORLD_FILE_MAX_ROUNDS = 10000 };

/* One participant; texts are borrowed from the JSON. */
struct world_file_part {
    const char *name, *teacher, *agent, *model, *system, *opening, *fixed_response, *dict_file;
    bool is_human;
    double temperature; /* negative: not given */
    int max_tokens;     /* 0: not given */
    json_t *hears;      /* NULL: all others */
    struct participant_options options;
    struct data_world world; /* never opened: only holds the agent and its options */
};

struct world_file {
    json_t *json;
    struct world_file_part parts[WORLD_GRAPH_POSITIONS];
    size_t n_parts, n_rounds, n_humans;
    bool is_scripted; /* a worker's code says who speaks */
    char *name;       /* behind attached: of the world's own; NULL: it is in a file */
    struct world_graph graph;
    struct attached_script *script; /* NULL: the graph says who speaks */
    /* The participants' agents; NULL: owned by the verb. */
    struct participant *members[WORLD_GRAPH_POSITIONS];
};

bool world_file_is_wanted(int argc, char **argv)
{
    static const char option[] = "--world", prefix[] = "attached:", suffix[] = ".json";

    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        const char *value = NULL;
        size_t len;

        if (strncmp(argv[i], option, sizeof(option) - 1) == 0 && argv[i][sizeof(option) - 1] == '=')
            value = argv[i] + sizeof(option);
        else if (strcmp(argv[i], option) == 0 && i + 1 < argc)
            value = argv[i + 1];
        len = value != NULL ? strlen(value) : 0;
        if (value != NULL &&
            (strncmp(value, prefix, sizeof(prefix) - 1) == 0 ||
             (len >= sizeof(suffix) && strcmp(value + len - (sizeof(suffix) - 1), suffix) == 0)))
            return true;
    }
    return false;
}

/* --- what the JSON says --- */

/* The bits of the participants of those names; all others when there is no list. */
static enum status world_file_mask(uint32_t *out, const struct world_file *f, const json_t *names,
                                   const char *what, uint32_t otherwise, struct error *err)
{
    uint32_t mask = 0;

    if (names == NULL) {
        *out = otherwise;
        return STATUS_OK;
    }
    if (!json_is_array(names))
        return error_set(err, STATUS_INVALID, "%s is not a list of names", what);
    for (size_t i = 0; i < json_array_size(names); i++) {
        const char *name = json_string_value(json_array_get(names, i));
        size_t at = 0;

        while (name != NULL && at < f->n_parts && strcmp(f->parts[at].name, name) != 0)
            at++;
        if (name == NULL || at == f->n_parts)
            return error_set(err, STATUS_INVALID, "%s: there is no participant '%.40s'", what,
                             name != NULL ? name : "");
        mask |= UINT32_C(1) << at;
    }
    *out = mask;
    return STATUS_OK;
}

static enum status world_file_check_part(const struct world_file *f, size_t at, struct error *err)
{
    const struct world_file_part *p = &f->parts[at];

    if (p->name[0] == '\0')
        return error_set(err, STATUS_INVALID, "participant %zu has no name", at);
    for (size_t i = 0; i < at; i++)
        if (strcmp(f->parts[i].name, p->name) == 0)
            return error_set(err, STATUS_INVALID, "two participants have the name '%.40s'",
                             p->name);
    if ((p->teacher != NULL) + p->is_human + (p->agent != NULL || p->model != NULL) != 1)
        return error_set(err, STATUS_INVALID,
                         "'%.40s' must have exactly one of: teacher, human, agent, model", p->name);
    if (at > 0 && p->teacher != NULL)
        return error_set(err, STATUS_INVALID, "'%.40s': a teacher must be the first participant",
                         p->name);
    if (p->max_tokens < 0)
        return error_set(err, STATUS_INVALID, "'%.40s': max_tokens is less than 0", p->name);
    return STATUS_OK;
}

static enum status world_file_read_parts(struct world_file *f, json_t *list, struct error *err)
{
    const size_t n = json_array_size(list);

    if (!json_is_array(list) || n < 2 || n > WORLD_GRAPH_POSITIONS)
        return error_set(err, STATUS_INVALID, "participants must be a list of 2 to %d",
                         WORLD_GRAPH_POSITIONS);
    for (; f->n_parts < n; f->n_parts++) {
        struct world_file_part *p = &f->parts[f->n_parts];
        int is_human = 0;
        json_error_t why;

        p->temperature = -1;
        if (json_unpack_ex(json_array_get(list, f->n_parts), &why, 0,
                           "{s:s, s?s, s?b, s?s, s?s, s?s, s?s, s?s, s?s, s?F, s?i, s?o !}", "name",
                           &p->name, "teacher", &p->teacher, "human", &is_human, "agent", &p->agent,
                           "model", &p->model, "system", &p->system, "opening", &p->opening,
                           "fixed_response", &p->fixed_response, "dict_file", &p->dict_file,
                           "temperature", &p->temperature, "max_tokens", &p->max_tokens, "hears",
                           &p->hears) != 0)
            return error_set(err, STATUS_INVALID, "participant %zu: %.120s", f->n_parts, why.text);
        p->is_human = is_human != 0;
        if (p->agent != NULL && strcmp(p->agent, "local_human") == 0) { /* ParlAI's name */
            p->agent = NULL;
            p->is_human = true;
        }
        f->n_humans += p->is_human;
        if (world_file_check_part(f, f->n_parts, err) != STATUS_OK)
            return err->status;
    }
    return STATUS_OK;
}

/* A script says what a graph would say. */
static enum status world_file_read_script(struct world_file *f, bool has_ends, struct error *err)
{
    if (f->name == NULL)
        return error_set(err, STATUS_INVALID,
                         "scripted works only in a world that an attached worker gives");
    if (has_ends)
        return error_set(err, STATUS_INVALID,
                         "a world with parley() has no ends and no end_text: its episode_done() "
                         "says when an episode ends");
    for (size_t i = 0; i < f->n_parts; i++)
        if (f->parts[i].hears != NULL)
            return error_set(err, STATUS_INVALID,
                             "'%.40s' has hears, but parley() says who hears whom",
                             f->parts[i].name);
    f->graph.ends = 1; /* a teacher's episode: then the next task is chosen */
    return STATUS_OK;
}

static enum status world_file_read(struct world_file *f, struct error *err)
{
    json_t *parts, *ends = NULL;
    const char *end_text = NULL;
    int n_rounds = 0, is_scripted = 0, has_names = 0;
    json_error_t why;
    uint32_t all;

    if (json_unpack_ex(f->json, &why, 0, "{s:o, s?o, s?s, s?i, s?b, s?b !}", "participants", &parts,
                       "ends", &ends, "end_text", &end_text, "rounds", &n_rounds, "scripted",
                       &is_scripted, "names", &has_names) != 0)
        return error_set(err, STATUS_INVALID, "%.160s", why.text);
    if (world_file_read_parts(f, parts, err) != STATUS_OK)
        return err->status;
    if (n_rounds < 0 || n_rounds > WORLD_FILE_MAX_ROUNDS)
        return error_set(err, STATUS_INVALID, "rounds is %d, it must be from 1 to %d", n_rounds,
                         WORLD_FILE_MAX_ROUNDS);
    if (n_rounds > 0 && (f->parts[0].teacher != NULL || f->n_humans > 0))
        return error_set(err, STATUS_INVALID,
                         "rounds works only with agents: the episodes of a teacher or a human end "
                         "by themselves");
    f->n_rounds = (size_t)n_rounds;
    all = (UINT32_C(1) << f->n_parts) - 1;
    for (size_t i = 0; i < f->n_parts; i++)
        if (world_file_mask(&f->graph.hears[i], f, f->parts[i].hears, "hears", all, err) !=
            STATUS_OK)
            return error_prefix(err, "'%.40s'", f->parts[i].name);
    if (world_file_mask(&f->graph.ends, f, ends, "ends", all, err) != STATUS_OK)
        return err->status;
    if (end_text != NULL && end_text[0] == '\0')
        return error_set(err, STATUS_INVALID, "end_text is empty");
    if (end_text != NULL)
        f->graph.end_text = (struct text){end_text, strlen(end_text)};
    f->graph.ends_world = f->parts[0].teacher == NULL && f->n_humans == 0;
    for (size_t i = 0; i < f->n_parts; i++)
        f->graph.names[i] = (struct text){f->parts[i].name, strlen(f->parts[i].name)};
    f->graph.gives_names = has_names != 0;
    f->is_scripted = is_scripted != 0;
    return f->is_scripted ? world_file_read_script(f, ends != NULL || end_text != NULL, err)
                          : STATUS_OK;
}

/* --- where it stands --- */

static enum status world_file_fetch(struct world_file *f, const char *name,
                                    const struct attached_data *attached, struct error *err)
{
    const size_t len = strcspn(name, ":");
    char *agent = xstrdup(name);
    const char *text = NULL;
    void *opened = NULL;
    json_error_t why;
    size_t n;
    enum status rc;

    agent[len] = '\0';
    rc = attached->open(&opened, attached->arg, agent, "world",
                        name[len] == ':' ? name + len + 1 : "", err);
    if (rc == STATUS_OK)
        rc = attached->next(opened, 0, true, &text, &n, err);
    if (rc == STATUS_OK && n > WORLD_FILE_BYTES)
        rc = error_set(err, STATUS_INVALID, "its world is longer than %d bytes", WORLD_FILE_BYTES);
    if (rc == STATUS_OK && (f->json = json_loadb(text, n, 0, &why)) == NULL)
        rc = error_set(err, STATUS_INVALID, "its world is not JSON: %.120s", why.text);
    if (opened != NULL)
        attached->close(opened);
    free(agent);
    return rc;
}

enum status world_file_open(struct world_file **out, const char *name,
                            const struct data_options *data, struct error *err)
{
    static const char prefix[] = "attached:";
    struct world_file *f = xalloc(sizeof(*f));
    json_error_t why;
    enum status rc = STATUS_OK;

    if (strncmp(name, prefix, sizeof(prefix) - 1) == 0) {
        f->name = xstrdup(name + sizeof(prefix) - 1);
        rc = world_file_fetch(f, f->name, &data->attached, err);
    } else if ((f->json = json_load_file(name, JSON_REJECT_DUPLICATES, &why)) == NULL) {
        rc = error_set(err, STATUS_INVALID, "line %d: %.120s", why.line, why.text);
    }
    if (rc == STATUS_OK)
        rc = world_file_read(f, err);
    if (rc == STATUS_OK) {
        *out = f;
        return STATUS_OK;
    }
    world_file_close(f);
    return error_prefix(err, "world %.120s", name);
}

void world_file_close(struct world_file *f)
{
    if (f == NULL)
        return;
    for (size_t i = 0; i < f->n_parts; i++)
        data_world_close(&f->parts[i].world);
    attached_script_close(f->script);
    free(f->name);
    json_decref(f->json);
    free(f);
}

/* --- the participants --- */

enum status world_file_expect(const struct world_file *f, enum world_file_needs needs,
                              struct error *err)
{
    static const char *const names[] = {[WORLD_NEEDS_TEACHER] = "a teacher",
                                        [WORLD_NEEDS_HUMAN] = "a human and no teacher",
                                        [WORLD_NEEDS_AGENTS] = "agents alone"};
    const struct world_file_part *p = &f->parts[0];
    const enum world_file_needs is =
        p->teacher != NULL ? WORLD_NEEDS_TEACHER
                           : (f->n_humans > 0 ? WORLD_NEEDS_HUMAN : WORLD_NEEDS_AGENTS);

    if (is == needs)
        return STATUS_OK;
    return error_set(err, STATUS_INVALID, "this world has %s, but this verb needs %s", names[is],
                     names[needs]);
}

bool world_file_has_human(const struct world_file *f)
{
    return f->n_humans > 0;
}

const char *world_file_task(const struct world_file *f)
{
    const char *task = f->parts[0].teacher;

    return task != NULL && task[0] != '\0' ? task : NULL;
}

size_t world_file_n_rounds(const struct world_file *f)
{
    return f->n_rounds;
}

const char *world_file_name(const struct world_file *f, size_t position)
{
    return f->parts[position].name;
}

static enum status world_file_part_open(struct world_file_part *p, const struct data_options *data,
                                        const struct participant_options *options,
                                        bool is_one_of_many, bool has_names, struct error *err)
{
    struct participant_options *o = &p->options;

    *o = *options;
    o->hears_names = has_names;
    o->agent = p->agent;
    o->model = p->model;
    o->opening = p->opening != NULL ? p->opening : o->opening;
    o->system = p->system != NULL ? p->system : o->system;
    o->fixed_response = p->fixed_response != NULL ? p->fixed_response : o->fixed_response;
    o->dict_file = p->dict_file != NULL ? p->dict_file : o->dict_file;
    o->temperature = p->temperature >= 0 ? (float)p->temperature : o->temperature;
    o->max_tokens = p->max_tokens > 0 ? (uint32_t)p->max_tokens : o->max_tokens;
    arena_init(&p->world.arena, WORLD_FILE_BYTES);
    if (p->is_human)
        return data_human_open(&p->world.agent, data, p->name, is_one_of_many, err);
    return data_agent_open(&p->world, data, o, err);
}

enum status world_file_cast(struct world_file *f, struct world_config *config,
                            const struct data_options *data,
                            const struct participant_options *options, struct error *err)
{
    const bool has_task = f->parts[0].teacher != NULL; /* it is given to the verb */

    if (options->agent != NULL || options->model != NULL || options->plugin != NULL)
        return error_set(err, STATUS_INVALID,
                         "--world names its agents: it excludes --agent, --model and --plugin");
    for (size_t i = has_task; i < f->n_parts; i++) {
        if (world_file_part_open(&f->parts[i], data, options, f->n_humans > 1, f->graph.gives_names,
                                 err) != STATUS_OK)
            return error_prefix(err, "'%.40s'", f->parts[i].name);
        f->members[i] = f->parts[i].world.agent;
    }
    if (f->is_scripted && attached_script_open(&f->script, f->name, &data->connection, &f->graph,
                                               f->n_parts, err) != STATUS_OK)
        return err->status;
    config->script = f->script != NULL ? attached_script_of(f->script) : NULL;
    config->graph = &f->graph;
    config->agents = f->members + 1;
    config->n_agents = f->n_parts - 1;
    if (!has_task) {
        config->tasks = f->members;
        config->n_tasks = 1;
    }
    return STATUS_OK;
}
