/* Normalises text before it is compared, as ParlAI's normalize_answer: to lower case, with ASCII
 * punctuation as spaces, without the articles a, an and the, and with single spaces between words.
 * Case, word boundaries and white space are those of Unicode 14.0, as in Python 3.11. */
#ifndef WORLDS_SCORE_NORMAL_H
#define WORLDS_SCORE_NORMAL_H

#include <stddef.h>

#include "agents/message.h"
#include "base/buf.h"
#include "base/status.h"

/* Appends the normalised text. Invalid UTF-8 counts as U+FFFD. EXHAUSTED. Any thread. */
enum status normalise(struct buf *out, const char *text, size_t len) MUST_CHECK;

#endif
