/* A teacher that breaks a rule: by a macro, or in its second turn by its argument. */
#include <stdio.h>
#include <string.h>

#include "agents/plugin/parley_teacher.h"

#ifndef ABI
#define ABI PARLEY_TEACHER_ABI
#endif
#ifndef SIZE
#define SIZE sizeof(struct parley_teacher)
#endif
#ifndef NEXT
#define NEXT faulty_next
#endif

static struct {
    const char *argument;
    unsigned n_turns;
} faulty;

static void *faulty_open(const char *fold, const char *argument, struct parley_teacher_error *err)
{
    faulty.argument = argument; /* all is read while the task's text is there */
    faulty.n_turns = 0;
    if (strcmp(argument, "shut") == 0)
        return NULL; /* without a reason */
    if (strcmp(argument, "fold") == 0) {
        (void)snprintf(err->text, sizeof(err->text), "it is %s", fold);
        return NULL;
    }
    return &faulty;
}

static __attribute__((unused)) bool faulty_next(void *teacher, struct parley_teacher_turn *out,
                                                struct parley_teacher_error *err)
{
    static const char *const labels[] = {"yes", NULL};

    if (++faulty.n_turns == 4)
        return false;
    *out = (struct parley_teacher_turn){
        .text = "well", .labels = labels, .n_labels = 1, .has_reward = true, .reward = 0.5};
    if (faulty.n_turns != 2)
        return true;
    if (strcmp(faulty.argument, "fail") == 0) {
        (void)snprintf(err->text, sizeof(err->text), "it has no more");
        return false;
    }
    if (strcmp(faulty.argument, "utf8") == 0)
        out->text = "\xff";
    if (strcmp(faulty.argument, "no_text") == 0)
        out->text = NULL;
    if (strcmp(faulty.argument, "no_labels") == 0)
        out->n_labels = 0;
    if (strcmp(faulty.argument, "short_labels") == 0)
        out->n_labels = 2;
    return true;
}

static void faulty_close(void *teacher)
{
}

const struct parley_teacher parley_teacher = {
    .abi = ABI, .size_bytes = SIZE, .open = faulty_open, .next = NEXT, .close = faulty_close};
