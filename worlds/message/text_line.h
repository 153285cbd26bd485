/* ParlAI's text format (ParlAIDialogTeacher's) has one act on each line. Fields are `key:value`
 * with tabs between them; `|` separates the parts of labels, eval_labels, label_candidates and
 * text_candidates; \t, \n and __PIPE__ stand for tab, newline and bar.
 *
 * ParlAI's own reader takes every text that is not empty for true, so `episode_done:False` ends an
 * episode there. Here False, false, 0 and an empty value are false; True, true and 1 are true;
 * any other value is an error. text_line_format never writes False, so both readers read its lines
 * alike. */
#ifndef WORLDS_MESSAGE_TEXT_LINE_H
#define WORLDS_MESSAGE_TEXT_LINE_H

#include "worlds/message/act.h"

/* Counts of likely mistakes in data that ParlAI reads without a warning. */
struct text_line_oddities {
    size_t n_false;    /* fields like episode_done:False, which ParlAI reads as true */
    size_t n_no_colon; /* fields without a colon, which are left out */
    size_t n_returns;  /* lines that end with \r, which stays a part of their last field */
};

/* Reads the act of a line, which is valid UTF-8 without its newline. The act's values lie in arena
 * or in line; both must live as long as the act. Of a key that occurs twice the last value counts.
 * The act always has episode_done (false if the line has no such field); only an empty line gives
 * an act without fields. STATUS_INVALID if episode_done or reward has an unknown form; EXHAUSTED
 * without memory. oddities may be NULL; else the line's mistakes are added to it. */
enum status text_line_parse(struct act *a, const char *line, size_t len, struct arena *arena,
                            struct text_line_oddities *oddities, struct error *err) MUST_CHECK;

/* Appends the act as a line without a newline. Fields come in ParlAI's order: id, text, labels,
 * eval_labels, label_candidates, text_candidates, episode_done, reward, then all others in the
 * act's order. A false episode_done, a reward of 0 and metrics are left out. EXHAUSTED without
 * memory; a part may then have been appended. */
enum status text_line_format(const struct act *a, struct buf *out, struct error *err) MUST_CHECK;

#endif
