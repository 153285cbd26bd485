/* An example: one turn of a teacher's data, and the labels by which a reply to it is scored. */
#ifndef WORLDS_TEACHERS_EXAMPLE_H
#define WORLDS_TEACHERS_EXAMPLE_H

#include "worlds/message/act.h"
#include "worlds/teachers/config.h"

struct example {
    struct act act;      /* cap 0: its fields are borrowed by copies of the act */
    struct value labels; /* VALUE_LIST, or VALUE_NULL when there are none */
};

/* Makes an example of a turn that was read: sets episode_done for the last turn and the teacher's
 * id, and renames the labels by the datatype or hides them. New memory is from the turn's own
 * arena. */
enum status example_make(struct example *out, const struct act *turn, struct text id,
                         const struct teacher_config *config, bool is_last, struct arena *arena,
                         struct error *err) MUST_CHECK;

/* Each of n turns gets as its text the newest utterances up to its own, by config, and becomes an
 * episode of its own. draw: a number for this episode, by which one of several labels is chosen. */
enum status squash(struct act *turns, size_t n, const struct teacher_config *config, uint64_t draw,
                   struct arena *arena, struct error *err) MUST_CHECK;

/* Words as ParlAI counts them for batches: one more than there are spaces. */
uint32_t count_words(struct text t);

/* For sorting: words of the text, then the mean of the labels'. */
struct example_length {
    uint32_t text_words;
    double label_words; /* of `labels` alone: 0 for eval_labels */
};

struct example_length example_length(const struct example *e);

#endif
