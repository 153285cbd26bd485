/* Documents made from the table of options: --help, the example file, and parts of parleyd(8).
 */
#ifndef SERVER_CONFIG_DOCUMENTS_H
#define SERVER_CONFIG_DOCUMENTS_H

#include <stdio.h>

/* Each function writes a document to out. A failure to write shows in ferror(out). */

/* The text of --help. */
void document_help(FILE *out);
/* An example file in YAML. Every key is commented out, so the file changes nothing as it stands. */
void document_example(FILE *out);
/* The section OPTIONS of the man page in roff, without the section's heading. */
void document_manual(FILE *out);
/* A line for each option, with its fields separated by tabs: flag, value, key, variable, default,
 * unit, "reloadable" or "", help. A field that an option lacks is "". */
void document_table(FILE *out);

#endif
