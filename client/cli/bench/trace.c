/* Reads a trace, whose items have a time and a conversation or token counts. A wrong item is
 * refused by its line. */
#include "client/cli/bench/trace.h"

#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "client/cli/bench/lengths.h"

/* A whole number of tokens; 0 where there is none. False: it is no such number. */
static bool trace_tokens(uint32_t *out, const json_t *line, const char *name)
{
    const json_t *value = json_object_get(line, name);

    *out = (uint32_t)json_integer_value(value);
    return value == NULL || (json_is_integer(value) && json_integer_value(value) >= 1 &&
                             json_integer_value(value) <= LENGTHS_MAX);
}

static struct trace_turn *trace_add_turn(struct trace_item *item, const char *text)
{
    struct trace_turn *turn;

    item->turns = xrealloc(item->turns, (item->n_turns + 1) * sizeof(*item->turns));
    turn = &item->turns[item->n_turns++];
    *turn = (struct trace_turn){.text = text == NULL ? NULL : xstrdup(text)};
    return turn;
}

static void trace_item_deinit(struct trace_item *item)
{
    for (uint32_t i = 0; i < item->n_turns; i++)
        free(item->turns[i].text);
    free(item->turns);
}

static void take_conversation(struct trace_item *item, const json_t *messages)
{
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *message = json_array_get(messages, i);
        const char *from = json_string_value(json_object_get(message, "from"));
        const char *text = json_string_value(json_object_get(message, "value"));

        if (from != NULL && text != NULL && *text != '\0' &&
            (strcmp(from, "human") == 0 || strcmp(from, "user") == 0))
            (void)trace_add_turn(item, text);
    }
}

/* NULL: it is one; else what is wrong with it. */
static const char *take_item(struct trace_item *item, const json_t *line)
{
    const char *prompt = json_string_value(json_object_get(line, "prompt"));
    uint32_t input, output;

    if (!json_is_object(line))
        return "is not a JSON object";
    if (!trace_tokens(&input, line, "input_length") ||
        !trace_tokens(&output, line, "output_length"))
        return "has a length that is not a whole number of at least 1";
    if (json_is_array(json_object_get(line, "conversations")))
        take_conversation(item, json_object_get(line, "conversations"));
    else if (prompt != NULL || input > 0)
        trace_add_turn(item, prompt)->input_tokens = input;
    for (uint32_t i = 0; i < item->n_turns; i++)
        item->turns[i].output_tokens = output;
    return item->n_turns > 0 ? NULL : "has no input_length, no prompt and no text of a human";
}

/* The time of the last item. NULL: it is well; else what is wrong with it. */
static const char *take_time(struct trace *t, double *first_ms, const json_t *line)
{
    const json_t *value = json_object_get(line, "timestamp");
    double ms = json_number_value(value);
    uint32_t i = t->n - 1;

    if (i == 0 && value != NULL)
        *first_ms = ms;
    if ((value != NULL) != (i == 0 ? value != NULL : t->at_s != NULL))
        return "differs from the lines before it: either all lines must have a timestamp or none";
    if (value == NULL)
        return NULL;
    if (!json_is_number(value))
        return "has a timestamp that is not a number";
    t->at_s = xrealloc(t->at_s, t->n * sizeof(*t->at_s));
    t->at_s[i] = (ms - *first_ms) / 1e3;
    return i > 0 && t->at_s[i] < t->at_s[i - 1] ? "is earlier than the one before it" : NULL;
}

static const char *trace_take(struct trace *t, double *first_ms, const json_t *item)
{
    const char *wrong;

    t->items = xrealloc(t->items, (t->n + 1) * sizeof(*t->items));
    t->items[t->n] = (struct trace_item){0};
    wrong = take_item(&t->items[t->n++], item);
    if (wrong == NULL)
        wrong = take_time(t, first_ms, item);
    if (t->items[t->n - 1].n_turns > t->max_turns)
        t->max_turns = t->items[t->n - 1].n_turns;
    return wrong;
}

static enum status trace_read_lines(struct trace *t, FILE *file, unsigned long n_lines,
                                    const char *path, struct error *err)
{
    const char *wrong = NULL;
    double first_ms = 0;
    char *text = NULL;
    size_t size = 0;

    while (wrong == NULL && getline(&text, &size, file) >= 0) {
        n_lines++;
        if (strspn(text, " \t\r\n") < strlen(text)) {
            json_t *line = json_loads(text, JSON_REJECT_DUPLICATES, NULL);

            wrong = trace_take(t, &first_ms, line);
            json_decref(line);
        }
    }
    free(text);
    return wrong == NULL
               ? STATUS_OK
               : error_set(err, STATUS_INVALID, "%s:%lu: the line %s", path, n_lines, wrong);
}

/* Whether it is a conversation of others only, of which ShareGPT's file has some. */
static bool is_empty(const json_t *item)
{
    struct trace_item none = {0};
    bool is_none;

    if (!json_is_array(json_object_get(item, "conversations")))
        return false;
    take_conversation(&none, json_object_get(item, "conversations"));
    is_none = none.n_turns == 0;
    trace_item_deinit(&none);
    return is_none;
}

static enum status trace_read_array(struct trace *t, FILE *file, unsigned long n_lines,
                                    const char *path, struct error *err)
{
    json_error_t why;
    json_t *array = json_loadf(file, JSON_REJECT_DUPLICATES, &why);
    const char *wrong = NULL;
    double first_ms = 0;
    size_t i;

    if (array == NULL)
        return error_set(err, STATUS_INVALID, "%s:%lu: not valid JSON: %s", path,
                         n_lines + (unsigned long)why.line, why.text);
    for (i = 0; wrong == NULL && i < json_array_size(array); i++)
        if (!is_empty(json_array_get(array, i)))
            wrong = trace_take(t, &first_ms, json_array_get(array, i));
    json_decref(array);
    return wrong == NULL ? STATUS_OK
                         : error_set(err, STATUS_INVALID, "%s: item %zu %s", path, i, wrong);
}

/* Skips a byte order mark and white space. Returns the first character behind them, which is not
 * taken; EOF: there is none. */
static int trace_skip_space(FILE *file, unsigned long *ret_n_lines)
{
    int c = getc(file);

    if (c == 0xef && getc(file) == 0xbb && getc(file) == 0xbf)
        c = getc(file);
    for (; c == ' ' || c == '\t' || c == '\r' || c == '\n'; c = getc(file))
        *ret_n_lines += c == '\n';
    return ungetc(c, file); /* EOF stays */
}

enum status trace_read(struct trace *out, const char *path, struct error *err)
{
    FILE *file = fopen(path, "re");
    unsigned long n_lines = 0;
    enum status rc;

    *out = (struct trace){0};
    if (file == NULL)
        return error_set(err, STATUS_NOT_FOUND, "%s: %s", path, strerror(errno));
    rc = trace_skip_space(file, &n_lines) == '[' ? trace_read_array(out, file, n_lines, path, err)
                                                 : trace_read_lines(out, file, n_lines, path, err);
    if (rc == STATUS_OK && ferror(file) != 0)
        rc = error_set(err, STATUS_UNKNOWN, "cannot read %s: %s", path, strerror(errno));
    (void)fclose(file); /* nothing was written */
    if (rc == STATUS_OK && out->n == 0)
        rc = error_set(err, STATUS_INVALID, "%s has no conversations", path);
    return rc;
}

void trace_deinit(struct trace *t)
{
    for (uint32_t i = 0; i < t->n; i++)
        trace_item_deinit(&t->items[i]);
    free(t->items);
    free(t->at_s);
}
