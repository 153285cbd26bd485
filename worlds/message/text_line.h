/* ParlAI's text format, one act a line: `key:value` with tabs between; `|` between the parts of
 * labels, eval_labels, label_candidates and text_candidates; \t, \n and __PIPE__ for tab, newline
 * and bar.
 *
 * The trap: to ParlAI's own reader every text that is not empty is true, so `episode_done:False`
 * ends an episode. Here False, false, 0 and an empty value are false; True, true and 1 are true;
 * anything else is an error. A writer never writes False, so written lines are read the same by
 * both. */
#ifndef WORLDS_MESSAGE_TEXT_LINE_H
#define WORLDS_MESSAGE_TEXT_LINE_H

#include "worlds/message/act.h"

/* Counts, for a warning, of what ParlAI reads without a word. */
struct text_line_oddities {
    size_t n_false;    /* episode_done:False and the like, which ParlAI reads as true */
    size_t n_no_colon; /* fields without a colon, which are left out */
    size_t n_returns;  /* lines that end with \r, which is a part of their last field */
};

/* line: without its newline, valid UTF-8. Everything of the act is in the arena or in line, which
 * must live as long. The act always has episode_done (false where the line has none), except for an
 * empty line, which gives an act without fields. STATUS_INVALID: episode_done or reward in an
 * unknown form. oddities may be NULL. */
enum status text_line_parse(struct act *a, const char *line, size_t len, struct arena *arena,
                            struct text_line_oddities *oddities, struct error *err) MUST_CHECK;

/* Appends the act as a line without its newline, fields in ParlAI's order: id, text, labels,
 * label_candidates, episode_done, reward, then the others in the act's order. episode_done is left
 * out when false, reward when 0. */
enum status text_line_format(const struct act *a, struct buf *out, struct error *err) MUST_CHECK;

#endif
