/* Numbers in options, in files that people write, in queries of URLs and in names of tensors. A
 * whole number is decimal digits alone: a sign, white space, another base or a number above max is
 * refused. Formats that define their own numbers (JSON, Jinja, ParlAI's lines) have own readers.
 * Any thread. */
#ifndef BASE_NUMBER_H
#define BASE_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reads the digits that text begins with, of which at most len bytes are looked at, or all up to
 * the NUL with SIZE_MAX. Returns how many bytes they are. 0, with *out untouched: text begins with
 * no digit, or the number is above max. */
size_t number_take(uint64_t *out, const char *text, size_t len, uint64_t max);
/* Whether text as a whole is a number of at most max; else *out is untouched. */
bool number_read(uint64_t *out, const char *text, uint64_t max);

/* Reads the real number that text begins with, as strtod does, and returns how many bytes it is. 0,
 * with *out untouched: there is none, or it is not finite. */
size_t number_take_real(double *out, const char *text);
/* Whether text as a whole is a finite real number; else *out is untouched. */
bool number_read_real(double *out, const char *text);

#endif
