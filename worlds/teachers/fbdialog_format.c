/* Facebook's dialog format (ParlAI's FbDeprecatedDialogTeacher). A line is
 * `N text<tab>labels|…<tab>reward<tab>candidates|…`. A number N that is not above the one before
 * begins an episode. Lines without labels are context of the next line with labels; their rewards
 * are summed. Lines left at the episode's end become an act without labels. */
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "worlds/teachers/format.h"

enum { N_PARTS = 4, TEXT = 0, LABELS = 1, REWARD = 2, CANDIDATES = 3 };

static bool fbdialog_is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static struct text fbdialog_stripped(struct text t)
{
    while (t.len > 0 && fbdialog_is_space(t.text[t.len - 1]))
        t.len--;
    while (t.len > 0 && fbdialog_is_space(t.text[0])) {
        t.text++;
        t.len--;
    }
    return t;
}

/* \n becomes a newline; in place of the line, which is the arena's. */
static struct text unescaped(struct text t)
{
    char *to = (char *)(uintptr_t)t.text;
    size_t n = 0;

    for (size_t i = 0; i < t.len; i++) {
        bool is_newline = t.text[i] == '\\' && i + 1 < t.len && t.text[i + 1] == 'n';

        to[n++] = is_newline ? '\n' : t.text[i];
        i += is_newline;
    }
    return (struct text){t.text, n};
}

static enum status bars(struct source *s, struct text t, struct value *out, struct error *err)
{
    size_t n = 1;
    struct text *items;

    for (size_t i = 0; i < t.len; i++)
        n += t.text[i] == '|';
    items = arena_alloc(s->arena, n, sizeof(*items));
    if (items == NULL)
        return error_no_memory(err, n * sizeof(*items), "a list");
    for (size_t i = 0; i < n; i++) {
        const char *bar = memchr(t.text, '|', t.len);
        size_t len = bar == NULL ? t.len : (size_t)(bar - t.text);

        items[i] = (struct text){t.text, len};
        t.text += len + (bar != NULL);
        t.len -= len + (bar != NULL);
    }
    *out = value_list(items, n);
    return STATUS_OK;
}

/* Gives the collected lines as an act: with labels, or as the rest of an episode. */
static enum status fbdialog_give_example(struct source *s, const struct text *parts,
                                         struct error *err)
{
    struct text text = {
        arena_strndup(s->arena, s->context.len == 0 ? "" : s->context.data, s->context.len),
        s->context.len};
    bool begins = s->begins;
    struct value v;
    struct act a;

    if (text.text == NULL)
        return error_no_memory(err, text.len, "a text");
    act_init(&a, s->arena);
    if (act_set(&a, ACT_TEXT, value_text(parts == NULL ? fbdialog_stripped(text) : text), err) !=
        STATUS_OK)
        return err->status;
    if (parts != NULL && (bars(s, parts[LABELS], &v, err) != STATUS_OK ||
                          act_set(&a, ACT_LABELS, v, err) != STATUS_OK))
        return err->status;
    if (act_set(&a, ACT_REWARD, value_real(s->reward), err) != STATUS_OK)
        return err->status;
    if (parts != NULL && parts[CANDIDATES].len > 0 &&
        (bars(s, parts[CANDIDATES], &v, err) != STATUS_OK ||
         act_set(&a, ACT_LABEL_CANDIDATES, v, err) != STATUS_OK))
        return err->status;
    buf_clear(&s->context);
    s->reward = 0;
    s->begins = false;
    return source_give(s, &a, begins, err);
}

static enum status fbdialog_end_episode(struct source *s, struct error *err)
{
    struct text left = {s->context.data, s->context.len};

    return fbdialog_stripped(left).len > 0 ? fbdialog_give_example(s, NULL, err) : STATUS_OK;
}

static enum status fbdialog_read_number(struct text *t, int64_t *out, struct error *err)
{
    uint64_t number;
    size_t n = number_take(&number, t->text, t->len < 18 ? t->len : 18, INT64_MAX);

    if (n == 0 || (n < t->len && t->text[n] != ' '))
        return error_set(err, STATUS_INVALID, "the line does not begin with its number");
    n += n < t->len;
    *t = (struct text){t->text + n, t->len - n};
    *out = (int64_t)number;
    return STATUS_OK;
}

static enum status fbdialog_read_line(struct source *s, const char *at, size_t len,
                                      struct error *err)
{
    struct text rest = unescaped(fbdialog_stripped((struct text){at, len})), parts[N_PARTS] = {0};
    double reward = 0;
    int64_t number = 0;

    if (rest.len == 0)
        return STATUS_OK;
    if (fbdialog_read_number(&rest, &number, err) != STATUS_OK)
        return err->status;
    for (size_t i = 0; i < N_PARTS; i++) {
        const char *tab = rest.len == 0 ? NULL : memchr(rest.text, '\t', rest.len);
        size_t n = tab == NULL ? rest.len : (size_t)(tab - rest.text);

        parts[i] = fbdialog_stripped((struct text){rest.text, n});
        rest.text += n + (tab != NULL);
        rest.len -= n + (tab != NULL);
    }
    if (parts[REWARD].len > 0) {
        char digits[40] = "", *stop = digits;

        if (parts[REWARD].len < sizeof(digits)) {
            memcpy(digits, parts[REWARD].text, parts[REWARD].len);
            reward = strtod(digits, &stop);
        }
        if (stop != digits + parts[REWARD].len)
            return error_set(err, STATUS_INVALID, "the reward is not a number");
    }
    if (number <= s->last_number) {
        if (fbdialog_end_episode(s, err) != STATUS_OK)
            return err->status;
        buf_clear(&s->context);
        s->reward = 0;
        s->begins = true;
    }
    s->last_number = number;
    s->reward += reward;
    if ((s->context.len > 0 && buf_append(&s->context, "\n", 1) != STATUS_OK) ||
        buf_append(&s->context, parts[TEXT].text, parts[TEXT].len) != STATUS_OK)
        return error_no_memory(err, parts[TEXT].len, "a text");
    return parts[LABELS].len > 0 ? fbdialog_give_example(s, parts, err) : STATUS_OK;
}

const struct data_format fbdialog_format = {
    .name = "fbdialog", .line = fbdialog_read_line, .end = fbdialog_end_episode};
