/* A teacher of one's own, as a shared object: data for the verbs of parley that run agents over
 * data sets, as the task plugin:FILE.so, or plugin:FILE.so:ARGUMENT.
 *
 *   cc -shared -fPIC -O2 my_teacher.c $(pkg-config --cflags parley) -o my_teacher.so
 *   parley display -t plugin:./my_teacher.so
 *
 * The object defines one variable, parley_teacher, beside or without a parley_agent or a
 * parley_environment. It gives all turns once, in their order; who is asked which of them, in what
 * batches and on how many threads, is parley's affair. With :stream they are written to a data file
 * first, and read from there in bounded memory. */
#ifndef PARLEY_TEACHER_H
#define PARLEY_TEACHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Another number: functions have other meanings. Members are only added, at the end of structs;
 * size_bytes says which of them are there. */
#define PARLEY_TEACHER_ABI 1

/* Zeroed when a function gets it. */
struct parley_teacher_error {
    char text[200]; /* one line for the user; "": none */
};

/* Texts are UTF-8, and valid until the next call. Zeroed when next gets it. */
struct parley_teacher_turn {
    const char *text;
    const char *const *labels; /* [n_labels] right answers, at least one */
    size_t n_labels;
    const char *const *candidates; /* [n_candidates] answers to choose from; 0: none */
    size_t n_candidates;
    bool has_reward;
    double reward;
    bool is_last; /* of its episode */
};

struct parley_teacher {
    uint32_t abi;        /* PARLEY_TEACHER_ABI */
    uint32_t size_bytes; /* sizeof(struct parley_teacher) */

    /* fold: "train", "valid" or "test", as --datatype says; argument: of the task, "" without one.
     * NULL: it failed, *err says why. */
    void *(*open)(const char *fold, const char *argument, struct parley_teacher_error *err);
    /* The next turn. False: there is none, or it failed and *err says why. */
    bool (*next)(void *teacher, struct parley_teacher_turn *out, struct parley_teacher_error *err);
    void (*close)(void *teacher);
};

#ifdef __GNUC__
__attribute__((visibility("default")))
#endif
extern const struct parley_teacher parley_teacher;

#ifdef __cplusplus
}
#endif

#endif
