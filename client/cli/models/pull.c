/* `parley pull`: fetches models of the Hugging Face hub into its cache, without a server. Ctrl-C
 * ends it at any place: what was received is kept, and the next one goes on from there. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/fetch/download.h"
#include "base/fetch/pull.h"
#include "cli/options/options.h"
#include "cli/output/console.h"
#include "cli/output/out.h"
#include "client/cli/verbs.h"

struct pull_options {
    bool is_json;
    uint32_t connections;
};

static const struct option_row pull_rows[] = {
    {"connections", "N", "connections for each file, 1 to 16 (4)", OPTION_U32,
     offsetof(struct pull_options, connections), 0},
    {"json", NULL, "print an object {name, path, bytes} for each model", OPTION_FLAG,
     offsetof(struct pull_options, is_json), 0},
    {0}};

/* What is shown of a pull while it runs. */
struct pull_display {
    const char *name;
    enum pull_stage stage;
    size_t n_files_done;
    unsigned tenths;            /* of all bytes that were told, where nobody sees a line move */
    uint64_t first_done, bytes; /* when it began, and of the model */
    struct timespec begin, shown_at; /* monotonic */
};

static double seconds_between(const struct timespec *from, const struct timespec *to)
{
    return (double)(to->tv_sec - from->tv_sec) + (double)(to->tv_nsec - from->tv_nsec) / 1e9;
}

static void pull_show_fetching(struct pull_display *d, const struct pull_progress *now)
{
    double all = (double)now->all_bytes, done = (double)now->all_done, seconds;
    unsigned tenths = all > 0 ? (unsigned)(10 * done / all) : 0;
    struct timespec at;

    (void)clock_gettime(CLOCK_MONOTONIC, &at); /* cannot fail */
    if (d->begin.tv_sec == 0) {
        d->begin = at;
        d->first_done = now->all_done;
        d->tenths = tenths;
        if (now->all_done > 0)
            console_line("%s: going on at %.1f of %.1f MB", d->name, done / 1e6, all / 1e6);
    }
    if (!console_is_fancy() && tenths > d->tenths && tenths < 10 && all >= 1e7)
        console_line("%s: %u %% of %.1f MB", d->name, 10 * tenths, all / 1e6);
    d->tenths = tenths > d->tenths ? tenths : d->tenths;
    if (seconds_between(&d->shown_at, &at) < 0.1)
        return;
    seconds = seconds_between(&d->begin, &at);
    d->shown_at = at;
    console_progress("%s: %.0f of %.0f MB, %.1f MB/s, file %zu of %zu", d->name, done / 1e6,
                     all / 1e6, seconds > 0 ? (done - (double)d->first_done) / 1e6 / seconds : 0.0,
                     now->n_files_done + 1, now->n_files);
}

static void on_pull_progress(void *arg, const struct pull_progress *now)
{
    struct pull_display *d = arg;
    bool is_new = now->stage != d->stage;

    d->stage = now->stage;
    d->bytes = now->all_bytes;
    switch (now->stage) {
    case PULL_LISTING:
        console_progress("%s: asking the hub", d->name);
        break;
    case PULL_WAITING:
        if (is_new)
            console_line("%s: another program fetches %s; waiting", d->name, now->file);
        break;
    case PULL_FETCHING:
        pull_show_fetching(d, now);
        break;
    case PULL_CHECKING:
        console_progress("%s: checking %s", d->name, now->file);
        break;
    case PULL_LINKING:
        console_clear();
        break;
    }
}

/* Reads a name of the hub. */
static enum status hub_name_parse(struct model_name *out, const char *text, struct error *err)
{
    if (model_name_parse(out, text, err) == STATUS_OK && out->kind == MODEL_NAME_OLLAMA)
        return error_set(err, STATUS_INVALID,
                         "'ollama pull %.100s' fetches it, and parleyd reads it where it lies",
                         text + strlen("ollama:"));
    return err->status;
}

static enum exit_code pull_one(const struct pull_options *o, const char *text)
{
    struct pull_display display = {.name = text};
    struct model_name name;
    struct error err = {0};
    char *path;

    if (hub_name_parse(&name, text, &err) != STATUS_OK) {
        console_error("%s", err.text);
        return EXIT_MISUSE;
    }
    if (pull_run(&path, &name, o->connections, on_pull_progress, &display, &err) != STATUS_OK) {
        console_error("%s", err.text);
        return EXIT_FAILED;
    }
    console_clear();
    if (o->is_json)
        (void)out_json(json_pack("{s:s, s:s, s:I}", "name", text, "path", path, "bytes",
                                 (json_int_t)display.bytes)); /* out_end reports a failure */
    else
        printf("%s\n", path);
    free(path);
    return EXIT_DONE;
}

enum exit_code pull_verb_run(const struct verb *verb, int argc, char **argv)
{
    struct pull_options o = {.connections = PULL_CONNECTIONS};
    const struct option_group groups[] = {{pull_rows, &o, NULL}};
    enum exit_code code;
    int first;

    if (!options_read(verb, groups, 1, argc, argv, 1, 100, &first, &code))
        return code;
    if (o.connections == 0 || o.connections > DOWNLOAD_MAX_CONNECTIONS)
        return options_misuse(verb, "--connections is 1 to %d", DOWNLOAD_MAX_CONNECTIONS);
    for (code = EXIT_DONE; first < argc && code == EXIT_DONE; first++)
        code = pull_one(&o, argv[first]);
    return code;
}
