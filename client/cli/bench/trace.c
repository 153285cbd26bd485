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

    item->turns = xrealloc(item->turns, (item->n_turns + 1) * sizeof *item->turns);
    turn = &item->turns[item->n_turns++];
    *turn = (struct trace_turn){.text = text == NULL ? NULL : xstrdup(text)};
    return turn;
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
    t->at_s = xrealloc(t->at_s, t->n * sizeof *t->at_s);
    t->at_s[i] = (ms - *first_ms) / 1e3;
    return i > 0 && t->at_s[i] < t->at_s[i - 1] ? "is earlier than the one before it" : NULL;
}

static const char *trace_take_line(struct trace *t, double *first_ms, const char *text)
{
    json_t *line = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    const char *wrong;

    t->items = xrealloc(t->items, (t->n + 1) * sizeof *t->items);
    t->items[t->n] = (struct trace_item){0};
    wrong = take_item(&t->items[t->n++], line);
    if (wrong == NULL)
        wrong = take_time(t, first_ms, line);
    if (t->items[t->n - 1].n_turns > t->max_turns)
        t->max_turns = t->items[t->n - 1].n_turns;
    json_decref(line);
    return wrong;
}

enum status trace_read(struct trace *out, const char *path, struct error *err)
{
    FILE *file = fopen(path, "re");
    const char *wrong = NULL;
    unsigned long n_lines = 0;
    double first_ms = 0;
    char *text = NULL;
    size_t size = 0;

    *out = (struct trace){0};
    if (file == NULL)
        return error_set(err, STATUS_NOT_FOUND, "%s: %s", path, strerror(errno));
    while (wrong == NULL && getline(&text, &size, file) >= 0) {
        n_lines++;
        if (strspn(text, " \t\r\n") < strlen(text))
            wrong = trace_take_line(out, &first_ms, text);
    }
    free(text);
    (void)fclose(file);
    if (wrong != NULL)
        return error_set(err, STATUS_INVALID, "%s:%lu: the line %s", path, n_lines, wrong);
    if (out->n == 0)
        return error_set(err, STATUS_INVALID, "%s has no lines", path);
    return STATUS_OK;
}

void trace_deinit(struct trace *t)
{
    for (uint32_t i = 0; i < t->n; i++) {
        for (uint32_t j = 0; j < t->items[i].n_turns; j++)
            free(t->items[i].turns[j].text);
        free(t->items[i].turns);
    }
    free(t->items);
    free(t->at_s);
}
