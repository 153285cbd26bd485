/* An example is one turn of a teacher's data: the act that the teacher says, and the labels by
 * which a reply to the act is scored. */
#ifndef WORLDS_TEACHERS_EXAMPLE_H
#define WORLDS_TEACHERS_EXAMPLE_H

#include "worlds/message/act.h"
#include "worlds/teachers/config.h"

struct example {
    struct act act;      /* cap 0, arena NULL: acts that share it copy the fields to change them */
    struct value labels; /* VALUE_LIST, or VALUE_NULL if there are none */
};

/* Makes an example of a turn that a format has read. The example's act has the teacher's id and
 * episode_done (is_last); its labels are named by the datatype, or left out if the config hides
 * them. The fields are allocated in arena; their values and id are borrowed. EXHAUSTED without
 * memory. */
enum status example_make(struct example *out, const struct act *turn, struct text id,
                         const struct teacher_config *config, bool is_last, struct arena *arena,
                         struct error *err) MUST_CHECK;

/* Replaces the text of each of an episode's n turns by the newest utterances up to that turn, as
 * the config's context_length and include_labels say. The caller then makes each turn an episode.
 * draw is the episode's number; it decides which of several labels is taken. EXHAUSTED. */
enum status squash(struct act *turns, size_t n, const struct teacher_config *config, uint64_t draw,
                   struct arena *arena, struct error *err) MUST_CHECK;

/* Counts words as ParlAI does for batches: one more than there are spaces. */
uint32_t count_words(struct text t);

/* The order of examples in sorted data: by the words of the text, then by those of the labels. */
struct example_length {
    uint32_t text_words;
    double label_words; /* mean over `labels`; 0 without that field, so for evaluation data */
};

/* Measures the example's act. */
struct example_length example_length(const struct example *e);

#endif
