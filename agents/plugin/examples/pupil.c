/* An agent that learns: it answers a text with the label that it last saw for that text.
 *
 *   cc -shared -fPIC -O2 pupil.c $(pkg-config --cflags parley) -o pupil.so
 *   parley train -t TASK -m plugin:./pupil.so -mf pupil.txt
 *   parley train -t TASK -m plugin:./pupil.so -im pupil.txt -mf more.txt */
#include <parley_agent.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct taught {
    char *text, *label; /* each with a NUL */
    size_t text_len, label_len;
};

/* What all conversations share; only batch_act changes it. */
struct pupil {
    const struct parley_agent_host *host;
    struct taught *lessons; /* [n] */
    size_t n, cap;
};

static char *copy_of(const char *text, size_t len)
{
    char *copy = malloc(len + 1);

    if (copy != NULL) {
        memcpy(copy, text, len);
        copy[len] = '\0';
    }
    return copy;
}

static struct taught *pupil_find(const struct pupil *p, const char *text, size_t len)
{
    for (size_t i = 0; i < p->n; i++)
        if (p->lessons[i].text_len == len && memcmp(p->lessons[i].text, text, len) == 0)
            return &p->lessons[i];
    return NULL;
}

/* Returns the lesson of that text, a new one without a label if there is none; NULL: no memory. */
static struct taught *pupil_lesson(struct pupil *p, const char *text, size_t len)
{
    struct taught *lesson = pupil_find(p, text, len);

    if (lesson != NULL)
        return lesson;
    if (p->n == p->cap) {
        const size_t cap = p->cap == 0 ? 16 : 2 * p->cap;
        struct taught *more = realloc(p->lessons, cap * sizeof(*more));

        if (more == NULL)
            return NULL;
        p->lessons = more;
        p->cap = cap;
    }
    lesson = &p->lessons[p->n];
    *lesson = (struct taught){.text = copy_of(text, len), .text_len = len};
    if (lesson->text == NULL)
        return NULL;
    p->n++;
    return lesson;
}

static int pupil_learn(struct pupil *p, const char *text, size_t len, const char *label,
                       size_t label_len)
{
    struct taught *lesson = pupil_lesson(p, text, len);
    char *copy = lesson != NULL ? copy_of(label, label_len) : NULL;

    if (copy == NULL)
        return 0;
    free(lesson->label);
    lesson->label = copy;
    lesson->label_len = label_len;
    return 1;
}

static void *pupil_open(const struct parley_agent_host *host, struct parley_agent_error *err)
{
    struct pupil *p = calloc(1, sizeof(*p));

    (void)err; /* if err is not set, the host makes up a text */
    if (p != NULL)
        p->host = host;
    return p;
}

static void pupil_close(void *agent)
{
    struct pupil *p = agent;

    for (size_t i = 0; i < p->n; i++) {
        free(p->lessons[i].text);
        free(p->lessons[i].label);
    }
    free(p->lessons);
    free(p);
}

/* A conversation has no state of its own. */
static void *pupil_create(void *agent, const char *system, size_t system_len,
                          struct parley_agent_error *err)
{
    (void)agent;
    (void)system;
    (void)system_len;
    (void)err;
    return calloc(1, 1);
}

static void *pupil_fork(void *agent, const void *clone, struct parley_agent_error *err)
{
    (void)clone;
    return pupil_create(agent, NULL, 0, err);
}

static void pupil_free(void *agent, void *clone)
{
    (void)agent;
    free(clone);
}

static bool pupil_observe(void *agent, void *clone, const struct parley_agent_row *row,
                          struct parley_agent_error *err)
{
    (void)agent;
    (void)clone;
    (void)row;
    (void)err;
    return true;
}

/* All rows are answered before any of them is learned from. */
static void pupil_batch_act(void *agent, struct parley_agent_row *const *rows, size_t n)
{
    struct pupil *p = agent;
    const bool has_labels =
        p->host->size_bytes >= offsetof(struct parley_agent_host, label) + sizeof(p->host->label);
    struct parley_agent_message asked, label;

    for (size_t i = 0; i < n; i++) {
        const struct taught *known =
            p->host->message(rows[i], 0, &asked) ? pupil_find(p, asked.text, asked.len) : NULL;

        if (known != NULL && known->label != NULL)
            (void)p->host->say(rows[i], known->label, known->label_len);
        p->host->done(rows[i], false);
    }
    for (size_t i = 0; has_labels && i < n; i++)
        if (p->host->message(rows[i], 0, &asked) && p->host->label(rows[i], 0, &label))
            (void)pupil_learn(p, asked.text, asked.len, label.text, label.len);
}

static bool pupil_fail(struct parley_agent_error *err, const char *what, const char *path)
{
    (void)snprintf(err->text, sizeof(err->text), "%s: %s", path, what);
    return false;
}

/* A lesson is two lengths on a line, and the two texts, a line each. */
static bool pupil_save(void *agent, const char *path, struct parley_agent_error *err)
{
    const struct pupil *p = agent;
    FILE *out = fopen(path, "wb");
    bool is_written = out != NULL;

    for (size_t i = 0; is_written && i < p->n; i++) {
        const struct taught *l = &p->lessons[i];

        if (l->label != NULL)
            is_written =
                fprintf(out, "%zu %zu\n", l->text_len, l->label_len) > 0 &&
                fwrite(l->text, 1, l->text_len, out) == l->text_len && fputc('\n', out) != EOF &&
                fwrite(l->label, 1, l->label_len, out) == l->label_len && fputc('\n', out) != EOF;
    }
    if (out != NULL)
        is_written = fclose(out) == 0 && is_written;
    return is_written || pupil_fail(err, "cannot be written", path);
}

static bool pupil_read_lesson(struct pupil *p, FILE *in, size_t text_len, size_t label_len)
{
    char *text = malloc(text_len + label_len + 2);
    bool is_read = text != NULL &&
                   fread(text, 1, text_len + label_len + 2, in) == text_len + label_len + 2 &&
                   text[text_len] == '\n' && text[text_len + 1 + label_len] == '\n' &&
                   pupil_learn(p, text, text_len, text + text_len + 1, label_len);

    free(text);
    return is_read;
}

static bool pupil_load(void *agent, const char *path, struct parley_agent_error *err)
{
    enum { MOST = 1 << 24 };
    struct pupil *p = agent;
    FILE *in = fopen(path, "rb");
    size_t text_len, label_len;
    bool is_read = in != NULL;
    int n = 2;

    while (is_read && (n = fscanf(in, "%zu %zu", &text_len, &label_len)) == 2)
        is_read = fgetc(in) == '\n' && text_len < MOST && label_len < MOST &&
                  pupil_read_lesson(p, in, text_len, label_len);
    is_read = is_read && n == EOF;
    if (in != NULL)
        (void)fclose(in);
    return is_read || pupil_fail(err, "is not what a pupil saved", path);
}

const struct parley_agent parley_agent = {
    .abi = PARLEY_AGENT_ABI,
    .size_bytes = sizeof(struct parley_agent),
    .name = "pupil",
    .version = "1",
    .open = pupil_open,
    .close = pupil_close,
    .create = pupil_create,
    .fork = pupil_fork,
    .free = pupil_free,
    .observe = pupil_observe,
    .batch_act = pupil_batch_act,
    .save_model = pupil_save,
    .load_model = pupil_load,
};
