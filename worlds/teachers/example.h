/* An example: one turn as a teacher hands it out, and what a reply to it is scored by. */
#ifndef WORLDS_TEACHERS_EXAMPLE_H
#define WORLDS_TEACHERS_EXAMPLE_H

#include "worlds/act.h"
#include "worlds/teacher.h"

struct example {
    struct act act;      /* cap 0: its fields are borrowed by whoever it is handed to */
    struct value labels; /* VALUE_LIST, or VALUE_NULL when there are none */
};

/* A turn as it was read becomes an example: episode_done says whether it is the last one, id is the
 * teacher's, labels are called what the datatype calls them or hidden. The turn's own arena holds
 * what is new. */
enum status example_make(struct example *out, const struct act *turn, struct text id,
                         const struct teacher_config *config, bool is_last, struct arena *arena,
                         struct error *err) MUST_CHECK;

/* Each of n turns gets as its text the newest utterances up to its own, as config says; every one
 * is then an episode of its own. draw: a number for this episode, by which one of several labels
 * is chosen. */
enum status squash(struct act *turns, size_t n, const struct teacher_config *config, uint64_t draw,
                   struct arena *arena, struct error *err) MUST_CHECK;

/* Words as ParlAI counts them for batches: one more than there are spaces. */
uint32_t count_words(struct text t);

/* For sorting: words of the text, then the mean of the labels'. */
struct example_length {
    uint32_t text_words;
    double label_words; /* of `labels` alone: 0 where they are called eval_labels */
};

struct example_length example_length(const struct example *e);

#endif
