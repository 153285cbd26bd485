/* A teacher of sums, as many as the argument says: each episode asks for one, and then what it is
 * with one more.
 *
 *   cc -shared -fPIC -O2 sums.c $(pkg-config --cflags parley) -o sums.so
 *   parley display -t plugin:./sums.so:1000 */
#include <parley_teacher.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sums {
    unsigned long n, next; /* episodes */
    unsigned offset;       /* each fold has sums of its own */
    bool is_second;        /* the next turn is the second of its episode */
    char text[80], label[16], other[16];
    const char *labels[1], *candidates[2];
};

static void *sums_open(const char *fold, const char *argument, struct parley_teacher_error *err)
{
    struct sums *s = calloc(1, sizeof(*s));
    char *end;

    if (s == NULL)
        return NULL;
    s->n = argument[0] == '\0' ? 100 : strtoul(argument, &end, 10);
    s->offset = strcmp(fold, "train") == 0 ? 0 : strcmp(fold, "valid") == 0 ? 7 : 13;
    if (argument[0] != '\0' && *end != '\0') {
        (void)snprintf(err->text, sizeof(err->text), "'%.40s' is no number of sums", argument);
        free(s);
        return NULL;
    }
    s->labels[0] = s->label;
    s->candidates[0] = s->label;
    s->candidates[1] = s->other;
    return s;
}

static bool sums_next(void *teacher, struct parley_teacher_turn *out,
                      struct parley_teacher_error *err)
{
    struct sums *s = teacher;
    unsigned a = (unsigned)(s->next % 97) + s->offset, b = (unsigned)(s->next % 89) + 1;

    (void)err;
    if (s->next == s->n)
        return false;
    if (s->is_second)
        (void)snprintf(s->text, sizeof(s->text), "And one more?");
    else
        (void)snprintf(s->text, sizeof(s->text), "What is %u and %u?", a, b);
    (void)snprintf(s->label, sizeof(s->label), "%u", a + b + s->is_second);
    (void)snprintf(s->other, sizeof(s->other), "%u", a * b);
    *out = (struct parley_teacher_turn){.text = s->text,
                                        .labels = s->labels,
                                        .n_labels = 1,
                                        .candidates = s->candidates,
                                        .n_candidates = 2,
                                        .is_last = s->is_second};
    s->next += s->is_second;
    s->is_second = !s->is_second;
    return true;
}

const struct parley_teacher parley_teacher = {
    .abi = PARLEY_TEACHER_ABI,
    .size_bytes = sizeof(struct parley_teacher),
    .open = sums_open,
    .next = sums_next,
    .close = free,
};
