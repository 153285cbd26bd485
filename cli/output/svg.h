/* Text inside SVG and HTML. */
#ifndef CLI_OUTPUT_SVG_H
#define CLI_OUTPUT_SVG_H

#include <stdio.h>

/* Writes the text with <, > and & escaped. Not for attributes. */
void svg_text(FILE *out, const char *text);

#endif
