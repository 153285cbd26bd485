/* parley rerun: what if? Computes conversations with something changed, and shows what differs. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "cli/output/console.h"
#include "cli/output/out.h"
#include "client/cli/options/sampling.h"
#include "client/cli/proof/computing.h"
#include "client/cli/proof/rerun_report.h"
#include "client/cli/verbs.h"
#include "proto/sampling_fields.h"

struct rerun {
    struct computing computing;
    struct sampling_options sampling;
    const char *system, *tools, *html;
    bool has_no_tools, goes_on;
    uint64_t sample_seed;
    Parley__V1__VerifyChanges changes;
    Parley__V1__Sampling wire;
    json_t *tools_json;
    struct rerun_report report;
};

static const struct option_row rerun_rows[] = {
    {"system", "TEXT", "the system prompt in place of the recorded one", OPTION_TEXT,
     offsetof(struct rerun, system), 0},
    {"tools", "FILE", "tools in place of the recorded ones: a JSON array, as in chat completions",
     OPTION_TEXT, offsetof(struct rerun, tools), 0},
    {"no-tools", NULL, "without tools", OPTION_FLAG, offsetof(struct rerun, has_no_tools), 0},
    {"go-on", NULL, "turns behind one that differs stand behind its new reply", OPTION_FLAG,
     offsetof(struct rerun, goes_on), 0},
    {"html", "FILE", "write a page with the pairs that differ side by side", OPTION_TEXT,
     offsetof(struct rerun, html), 0},
    {"sample-seed", "N", "the seed of --sample (0)", OPTION_U64,
     offsetof(struct rerun, sample_seed), 0},
    {0},
};

/* --- what is changed --- */

static void rerun_sampling(struct rerun *r)
{
    const struct parley_sampling *s = &r->sampling.sampling;

    parley__v1__sampling__init(&r->wire);
#define FILL(name, NAME, ...)                           \
    r->wire.has_##name = (s->set & PARLEY_##NAME) != 0; \
    r->wire.name = s->name;
    SAMPLING_FIELDS(FILL)
#undef FILL
    r->wire.stop = (char **)(uintptr_t)r->sampling.stops.texts; /* only read */
    r->wire.n_stop = r->sampling.stops.n;
    r->changes.sampling = &r->wire;
}

/* One entry of the file; what it points to lies in json. False: it is no tool. */
static bool rerun_tool(Parley__V1__Tool *out, json_t *entry)
{
    json_t *function = json_object_get(entry, "function"), *parameters;
    const char *name, *description;

    if (function == NULL)
        function = entry;
    name = json_string_value(json_object_get(function, "name"));
    description = json_string_value(json_object_get(function, "description"));
    parameters = json_object_get(function, "parameters");
    if (name == NULL || (parameters != NULL && !json_is_object(parameters)))
        return false;
    parley__v1__tool__init(out);
    out->name = (char *)name;
    if (description != NULL)
        out->description = (char *)description;
    if (parameters != NULL) {
        char *text = json_dumps(parameters, JSON_COMPACT);

        /* the text is freed with the file's JSON */
        (void)json_object_set_new(function, "parameters", json_string(text == NULL ? "" : text));
        free(text);
        out->parameters = (char *)json_string_value(json_object_get(function, "parameters"));
    }
    return true;
}

static bool rerun_tools(struct rerun *r)
{
    json_error_t why;
    size_t n;

    r->tools_json = json_load_file(r->tools, JSON_REJECT_DUPLICATES, &why);
    n = json_array_size(r->tools_json);
    if (n == 0) {
        console_error("%s: %s", r->tools,
                      r->tools_json == NULL ? why.text : "it must be an array of tools");
        return false;
    }
    r->changes.tools = xalloc(n * sizeof(r->changes.tools[0]));
    for (size_t i = 0; i < n; i++) {
        Parley__V1__Tool *tool = xalloc(sizeof(*tool));

        r->changes.tools[r->changes.n_tools++] = tool;
        if (!rerun_tool(tool, json_array_get(r->tools_json, i))) {
            console_error("%s: entry %zu is no tool: it needs a name, and parameters, if any, must "
                          "be an object (a JSON schema)",
                          r->tools, i + 1);
            return false;
        }
    }
    return true;
}

static bool rerun_change(struct rerun *r)
{
    parley__v1__verify_changes__init(&r->changes);
    r->computing.changes = &r->changes;
    r->computing.sends_records = true; /* so that the answer says what was recorded */
    r->computing.jobs.is_whole = r->goes_on;
    r->changes.goes_on = r->goes_on;
    r->changes.replaces_tools = r->has_no_tools;
    if (r->system != NULL) {
        r->changes.prompt_case = PARLEY__V1__VERIFY_CHANGES__PROMPT_SYSTEM;
        r->changes.system = (char *)r->system;
    }
    rerun_sampling(r);
    return r->tools == NULL || rerun_tools(r);
}

/* --- the verb --- */

static void rerun_each(void *arg, const struct proof_job *job)
{
    rerun_report_job(arg, job);
}

static bool rerun_is_export(const char *page, const char *arg)
{
    struct stat x, y;
    const int rc = strcmp(arg, "-") == 0 ? fstat(STDIN_FILENO, &y) : stat(arg, &y);

    return rc == 0 && stat(page, &x) == 0 && S_ISREG(x.st_mode) && x.st_dev == y.st_dev &&
           x.st_ino == y.st_ino;
}

static bool rerun_open_page(struct rerun *r, const char *command, int n, char **args)
{
    if (r->html == NULL)
        return true;
    for (int i = 0; i < n; i++)
        if (rerun_is_export(r->html, args[i])) {
            console_error("--html %s: it is the export, which the page would replace", r->html);
            return false;
        }
    r->report.page = fopen(r->html, "we");
    if (r->report.page == NULL) {
        console_error("%s: %s", r->html, strerror(errno));
        return false;
    }
    rerun_page_begin(r->report.page, command);
    return true;
}

static bool rerun_close_page(struct rerun *r)
{
    bool is_good;

    if (r->report.page == NULL)
        return true;
    is_good = ferror(r->report.page) == 0;
    is_good = fclose(r->report.page) == 0 && is_good;
    r->report.page = NULL;
    if (!is_good)
        console_error("%s: it could not be written", r->html);
    return is_good;
}

static enum exit_code rerun_all(struct rerun *r, int n, char **args)
{
    if (!rerun_change(r) || !computing_open(&r->computing, n, args))
        return (enum exit_code)COMPUTING_UNCHECKED;
    proof_jobs_choose(&r->computing.jobs, r->computing.n_sample, r->sample_seed);
    r->report.is_json = r->computing.connection.is_json;
    r->report.begun_s = clock_s();
    computing_run(&r->computing, rerun_each, &r->report);
    rerun_report_end(&r->report);
    if (!rerun_close_page(r))
        return (enum exit_code)COMPUTING_UNCHECKED;
    if (r->report.n_differ > 0)
        return (enum exit_code)COMPUTING_DIFFERS;
    return r->report.n_unchecked > 0 || !out_flush() ? (enum exit_code)COMPUTING_UNCHECKED
                                                     : EXIT_DONE; /* as verify */
}

static void rerun_deinit(struct rerun *r)
{
    (void)rerun_close_page(r); /* after a failure it is incomplete in any case */
    for (size_t i = 0; i < r->changes.n_tools; i++)
        free(r->changes.tools[i]);
    free(r->changes.tools);
    json_decref(r->tools_json);
    computing_deinit(&r->computing);
}

enum exit_code rerun_run(const struct verb *verb, int argc, char **argv)
{
    struct rerun r = {0};
    const struct option_group groups[] = {{computing_rows, &r.computing, NULL},
                                          {rerun_rows, &r, NULL},
                                          {sampling_rows, &r.sampling, &r.sampling.sampling.set},
                                          {connection_rows, &r.computing.connection, NULL}};
    enum exit_code code = EXIT_DONE;
    char command[4096];
    const char *misuse;
    struct error err;
    int first;

    computing_init(&r.computing);
    options_write_command(command, sizeof(command), argc, argv);
    if (options_read(verb, groups, 4, argc, argv, 0, argc, &first, &code)) {
        misuse = computing_misuse(&r.computing, argc - first);
        if (r.tools != NULL && r.has_no_tools)
            misuse = "--tools and --no-tools exclude each other";
        if (misuse == NULL && sampling_options_check(&r.sampling, &err) != STATUS_OK)
            misuse = err.text;
        if (misuse != NULL)
            code = options_misuse(verb, "%s", misuse);
        else
            code = rerun_open_page(&r, command, argc - first, argv + first)
                       ? rerun_all(&r, argc - first, argv + first)
                       : (enum exit_code)COMPUTING_UNCHECKED;
    }
    rerun_deinit(&r);
    return code;
}
