/* A teacher of one's own, as a shared object: a data set for the verbs of parley that run agents
 * over data, by the task plugin:FILE.so, or plugin:FILE.so:ARGUMENT.
 *
 *   cc -shared -fPIC -O2 my_teacher.c $(pkg-config --cflags parley) -o my_teacher.so
 *   parley display -t plugin:./my_teacher.so
 *
 * The object defines one variable, parley_teacher, with or without a parley_agent or a
 * parley_environment. The teacher gives all turns of the data once, in their order and on one
 * thread; parley then deals them to agents in episodes and batches. With the datatype :stream the
 * turns are written to a data file first, and read from there in bounded memory. */
#ifndef PARLEY_TEACHER_H
#define PARLEY_TEACHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The number rises if functions get other meanings. Otherwise members are only added, at the end of
 * structs; a struct's size_bytes says which of them it has. */
#define PARLEY_TEACHER_ABI 1

/* What went wrong. It is zeroed when a function gets it. */
struct parley_teacher_error {
    char text[200]; /* one line for the user; "": nothing went wrong */
};

/* A turn of the data. It is zeroed when next gets it. Its texts are UTF-8, end with a NUL, and must
 * stay valid until the next call. */
struct parley_teacher_turn {
    const char *text;          /* what the teacher says */
    const char *const *labels; /* [n_labels] right answers, at least one */
    size_t n_labels;
    const char *const *candidates; /* [n_candidates] answers to choose from */
    size_t n_candidates;           /* 0: no candidates */
    bool has_reward;               /* reward is set */
    double reward;
    bool is_last; /* the turn is the last one of its episode */
};

struct parley_teacher {
    uint32_t abi;        /* PARLEY_TEACHER_ABI */
    uint32_t size_bytes; /* sizeof(struct parley_teacher) */

    /* Begins a pass over the data of a fold, "train", "valid" or "test", as --datatype says.
     * argument is the task's, "" if it has none. Returns the teacher that next and close get. NULL:
     * it failed, and *err says why. */
    void *(*open)(const char *fold, const char *argument, struct parley_teacher_error *err);
    /* Writes the next turn to *out. False: there is none, or it failed and *err says why. */
    bool (*next)(void *teacher, struct parley_teacher_turn *out, struct parley_teacher_error *err);
    void (*close)(void *teacher); /* ends the pass */
};

#ifdef __GNUC__
__attribute__((visibility("default")))
#endif
extern const struct parley_teacher parley_teacher;

#ifdef __cplusplus
}
#endif

#endif
