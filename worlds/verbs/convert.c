/* The verb "convert": data of any format written in another one, and "data-stats": how much text
 * there is in them. Both walk through the acts of the tasks, in order. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agents/words/tokens.h"
#include "base/buf.h"
#include "base/list.h"
#include "cli/output/out.h"
#include "worlds/message/text_line.h"
#include "worlds/participant/participant.h"
#include "worlds/verbs/data.h"
#include "worlds/verbs/verbs.h"
#include "worlds/verbs/world_log.h"

enum { MAX_LINE_BYTES = 1 << 30 };

/* Called for each act of a task. */
typedef enum status (*walk_fn)(void *to, const struct act *a, struct error *err);

struct walk {
    walk_fn each;
    void *to;
    struct error err; /* the first failure */
};

static void walk_watch(void *arg, const struct world *w, uint32_t thread)
{
    struct walk *walk = arg;

    for (size_t i = 0; i < world_n_rows(w) && walk->err.status == STATUS_OK; i++) {
        struct world_row row;

        world_row(w, i, &row);
        if (!act_is_padding(&row.acts[0]))
            walk->err.status = walk->each(walk->to, &row.acts[0], &walk->err);
    }
}

/* Opens the tasks and walks through an epoch of them. */
static enum status walk_run(const struct data_options *o, world_watch_fn watch, void *arg,
                            const struct error *failed, struct error *err)
{
    struct participant_options agent;
    struct data_world w = {0};
    enum status rc = data_tasks_open(&w, o, err);

    participant_options_init(&agent);
    if (rc == STATUS_OK) {
        data_world_warn(&w);
        rc = data_agent_open(&w, o, &agent, err);
    }
    if (rc == STATUS_OK && w.config.shuffle && o->n_examples == 0)
        rc = error_set(err, STATUS_INVALID,
                       "--datatype %s is drawn at random and has no end: use train:ordered",
                       o->datatype);
    w.config.watch = watch;
    w.config.watch_arg = arg;
    if (rc == STATUS_OK)
        rc = data_world_open(&w, err);
    while (rc == STATUS_OK && !world_epoch_done(w.world)) {
        rc = world_parley(w.world, err);
        if (rc == STATUS_OK && failed != NULL && failed->status != STATUS_OK) {
            *err = *failed;
            rc = err->status;
        }
    }
    data_world_close(&w);
    return rc;
}

/* --- convert --------------------------------------------------------------------------------- */

struct convert {
    struct data_options data;
    const char *to, *path, *ignored;
    FILE *out;
    struct buf line;
};

static const struct option_row convert_rows[] = {
    {"to", "FORMAT", "the format: parlai, jsonl or conversations", OPTION_TEXT,
     offsetof(struct convert, to), 0},
    {"outfile|of", "FILE", "the file to write; - is stdout (-)", OPTION_TEXT,
     offsetof(struct convert, path), 0},
    {"ignore-fields|if", "NAME[,NAME]", "fields to leave out of parlai and jsonl (id)", OPTION_TEXT,
     offsetof(struct convert, ignored), 0},
    {0},
};

static enum status convert_put(struct convert *c, const char *end, struct error *err)
{
    if (fwrite(c->line.data, 1, c->line.len, c->out) == c->line.len && fputs(end, c->out) != EOF)
        return STATUS_OK;
    return error_set(err, STATUS_DATA_LOSS, "%s: %s", c->path, strerror(errno));
}

static enum status convert_leave_out(const struct convert *c, struct act *a, struct error *err)
{
    const char *at = c->ignored;
    bool was_there;

    while (*at != '\0') {
        const size_t len = strcspn(at, ",");

        if (act_remove(a, at, len, &was_there, err) != STATUS_OK)
            return err->status;
        at += len + (at[len] == ',');
    }
    return STATUS_OK;
}

/* The act without the fields that are left out, its labels under the name of training data. */
static enum status convert_clean(const struct convert *c, struct act *out, const struct act *a,
                                 struct arena *arena, struct error *err)
{
    act_init(out, arena);
    for (uint32_t i = 0; i < a->n; i++) {
        const struct field *f = &a->fields[i];
        const enum status rc = f->key == ACT_EVAL_LABELS
                                   ? act_force(out, ACT_LABELS, f->value, err)
                                   : act_force_named(out, f->name, f->value, err);

        if (rc != STATUS_OK)
            return rc;
    }
    return convert_leave_out(c, out, err);
}

static enum status convert_act(void *to, const struct act *a, struct error *err)
{
    struct convert *c = to;
    const bool is_parlai = strcmp(c->to, "parlai") == 0;
    struct arena arena;
    struct act clean;
    enum status rc;

    arena_init(&arena, MAX_LINE_BYTES);
    buf_clear(&c->line);
    rc = convert_clean(c, &clean, a, &arena, err);
    if (rc == STATUS_OK)
        rc = is_parlai ? text_line_format(&clean, &c->line, err)
                       : act_to_json(&clean, &c->line, err);
    if (rc == STATUS_OK)
        rc = convert_put(c, is_parlai && act_is(a, ACT_EPISODE_DONE) ? "\n\n" : "\n", err);
    arena_deinit(&arena);
    return rc;
}

/* Each act and its label, as two that talk. */
static enum status convert_conversations(struct convert *c, struct error *err)
{
    struct world_log *log;
    struct error log_err;
    enum status rc = world_log_open(&log, c->path, err);

    if (rc != STATUS_OK)
        return rc;
    rc = walk_run(&c->data, world_log_watch, log, NULL, err);
    if (world_log_close(log, &log_err) != STATUS_OK && rc == STATUS_OK) {
        *err = log_err;
        rc = err->status;
    }
    return rc;
}

static enum status convert_lines(struct convert *c, struct error *err)
{
    struct walk walk = {.each = convert_act, .to = c};
    enum status rc;

    c->out = out_file_open(c->path);
    if (c->out == NULL)
        return error_set(err, STATUS_NOT_FOUND, "%s: %s", c->path, strerror(errno));
    buf_init(&c->line, MAX_LINE_BYTES);
    rc = walk_run(&c->data, walk_watch, &walk, &walk.err, err);
    buf_deinit(&c->line);
    if (fclose(c->out) != 0 && rc == STATUS_OK)
        rc = error_set(err, STATUS_DATA_LOSS, "%s: %s", c->path, strerror(errno));
    return rc;
}

enum exit_code convert_run(const struct verb *verb, int argc, char **argv)
{
    struct convert c = {.path = "-", .ignored = "id"};
    const struct option_group groups[] = {{data_option_rows, &c.data, NULL},
                                          {convert_rows, &c, NULL}};
    struct error err;
    enum exit_code code;
    bool is_dialog;
    int first;

    data_options_init(&c.data, "train:ordered");
    if (!options_read(verb, groups, sizeof(groups) / sizeof(groups[0]), argc, argv, 0, 0, &first,
                      &code))
        return code;
    if (!data_has_task(&c.data))
        return options_misuse(verb, "--task is missing");
    is_dialog = c.to != NULL && strcmp(c.to, "conversations") == 0;
    if (c.to == NULL || (!is_dialog && strcmp(c.to, "parlai") != 0 && strcmp(c.to, "jsonl") != 0))
        return options_misuse(verb, "--to is %s, it must be parlai, jsonl or conversations",
                              c.to != NULL ? c.to : "missing");
    return data_end(is_dialog ? convert_conversations(&c, &err) : convert_lines(&c, &err), &err);
}

/* --- data-stats ------------------------------------------------------------------------------ */

enum side { SIDE_BOTH, SIDE_INPUT, SIDE_LABELS, N_SIDES };

struct stats_of_side {
    uint64_t n_utterances, n_tokens;
    json_t *tokens, *utterances; /* sets: the elements are the keys of these objects */
};

struct data_stats {
    struct data_options data;
    bool is_json, by_line;
    struct stats_of_side sides[N_SIDES];
    struct buf words; /* of an utterance, with spaces between */
};

static const struct option_row data_stats_rows[] = {
    {"new-line-new-utt|nlnu", NULL, "count each line of a text as an utterance", OPTION_FLAG,
     offsetof(struct data_stats, by_line), 0},
    {"json", NULL, "print one JSON object", OPTION_FLAG, offsetof(struct data_stats, is_json), 0},
    {0},
};

static enum status stats_add_to_set(json_t *set, struct text text, struct error *err)
{
    /* Texts may have bytes of 0; the copy of the key keeps all len bytes. */
    if (json_object_setn_new_nocheck(set, text.text != NULL ? text.text : "", text.len,
                                     json_true()) == 0)
        return STATUS_OK;
    return error_no_memory(err, text.len, "a set of texts");
}

static enum status stats_count_words(struct data_stats *s, enum side side, struct text utterance,
                                     struct error *err)
{
    struct text word;

    buf_clear(&s->words);
    for (size_t at = 0; (word = token_next(utterance, &at)).text != NULL;) {
        if (buf_append(&s->words, " ", s->words.len > 0) != STATUS_OK ||
            buf_append(&s->words, word.text, word.len) != STATUS_OK)
            return error_no_memory(err, word.len, "an utterance");
        s->sides[side].n_tokens++;
        s->sides[SIDE_BOTH].n_tokens++;
        if (stats_add_to_set(s->sides[side].tokens, word, err) != STATUS_OK ||
            stats_add_to_set(s->sides[SIDE_BOTH].tokens, word, err) != STATUS_OK)
            return err->status;
    }
    return STATUS_OK;
}

static enum status stats_count(struct data_stats *s, enum side side, struct text utterance,
                               struct error *err)
{
    struct text words;

    if (stats_count_words(s, side, utterance, err) != STATUS_OK)
        return err->status;
    words = (struct text){s->words.data, s->words.len};
    s->sides[side].n_utterances++;
    s->sides[SIDE_BOTH].n_utterances++;
    if (stats_add_to_set(s->sides[side].utterances, words, err) != STATUS_OK)
        return err->status;
    return stats_add_to_set(s->sides[SIDE_BOTH].utterances, words, err);
}

static enum status stats_act(void *to, const struct act *a, struct error *err)
{
    struct data_stats *s = to;
    struct text text = act_text(a);
    const struct value *labels = act_labels(a);

    for (;;) {
        const char *newline = s->by_line && text.len > 0 ? memchr(text.text, '\n', text.len) : NULL;
        const size_t len = newline == NULL ? text.len : (size_t)(newline - text.text);

        if (stats_count(s, SIDE_INPUT, (struct text){text.text, len}, err) != STATUS_OK)
            return err->status;
        if (newline == NULL)
            break;
        text = (struct text){newline + 1, text.len - len - 1};
    }
    if (labels == NULL) /* as in ParlAI: an act without labels has an empty one */
        return stats_count(s, SIDE_LABELS, (struct text){"", 0}, err);
    for (size_t i = 0; i < labels->list.n; i++)
        if (stats_count(s, SIDE_LABELS, labels->list.items[i], err) != STATUS_OK)
            return err->status;
    return STATUS_OK;
}

static void stats_print(const struct data_stats *s)
{
    static const char *const names[N_SIDES] = {"both", "input", "labels"};
    json_t *all = json_object();

    for (int i = 0; i < N_SIDES; i++) {
        const struct stats_of_side *side = &s->sides[i];
        const double mean =
            side->n_utterances == 0 ? 0 : (double)side->n_tokens / (double)side->n_utterances;
        const struct {
            const char *name;
            json_t *value;
        } rows[] = {
            {"avg_utterance_length", json_real(mean)},
            {"tokens", json_integer((json_int_t)side->n_tokens)},
            {"unique_tokens", json_integer((json_int_t)json_object_size(side->tokens))},
            {"unique_utterances", json_integer((json_int_t)json_object_size(side->utterances))},
            {"utterances", json_integer((json_int_t)side->n_utterances)}};

        for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
            char name[64];

            (void)snprintf(name, sizeof(name), "%s/%s", names[i], rows[k].name);
            if (!s->is_json)
                printf("%-30s %.6g\n", name, json_number_value(rows[k].value));
            (void)json_object_set_new(all, name, rows[k].value);
        }
    }
    if (s->is_json)
        (void)out_json(all); /* out_end reports a failure */
    else
        json_decref(all);
}

enum exit_code data_stats_run(const struct verb *verb, int argc, char **argv)
{
    struct data_stats s = {0};
    struct walk walk = {.each = stats_act, .to = &s};
    const struct option_group groups[] = {{data_option_rows, &s.data, NULL},
                                          {data_stats_rows, &s, NULL}};
    struct error err;
    enum exit_code code;
    enum status rc;
    int first;

    data_options_init(&s.data, "train:ordered");
    if (!options_read(verb, groups, sizeof(groups) / sizeof(groups[0]), argc, argv, 0, 0, &first,
                      &code))
        return code;
    if (!data_has_task(&s.data))
        return options_misuse(verb, "--task is missing");
    buf_init(&s.words, MAX_LINE_BYTES);
    for (int i = 0; i < N_SIDES; i++) {
        s.sides[i].tokens = json_object();
        s.sides[i].utterances = json_object();
    }
    rc = walk_run(&s.data, walk_watch, &walk, &walk.err, &err);
    if (rc == STATUS_OK)
        stats_print(&s);
    for (int i = 0; i < N_SIDES; i++) {
        json_decref(s.sides[i].tokens);
        json_decref(s.sides[i].utterances);
    }
    buf_deinit(&s.words);
    return data_end(rc, &err);
}
