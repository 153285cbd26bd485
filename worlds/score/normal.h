/* Text as it is compared: lower case, ASCII punctuation as spaces, the articles a, an and the left
 * out, single spaces between words. Case, word boundary and white space are Unicode's (14.0, as
 * Python 3.11 has them); punctuation is ASCII alone. */
#ifndef WORLDS_SCORE_NORMAL_H
#define WORLDS_SCORE_NORMAL_H

#include <stddef.h>

#include "agents/message.h"
#include "base/buf.h"
#include "base/status.h"

/* Appends the normalised text. Invalid UTF-8 counts as U+FFFD. */
enum status normalise(struct buf *out, const char *text, size_t len) MUST_CHECK;

#endif
