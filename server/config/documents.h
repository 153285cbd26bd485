/* Documents made from the table of options: --help, the example file, and parts of parleyd(8).
 */
#ifndef SERVER_CONFIG_DOCUMENTS_H
#define SERVER_CONFIG_DOCUMENTS_H

#include <stdio.h>

/* A failure to write shows in ferror(out). */
void document_help(FILE *out);
/* YAML with all keys, each a comment: as it stands it changes nothing. */
void document_example(FILE *out);
/* roff: the section OPTIONS, without its heading. */
void document_manual(FILE *out);
/* A line for each option, its fields separated by tabs: flag, value, key, variable, default, unit,
 * "reloadable" or "", help. Without a field: "". */
void document_table(FILE *out);

#endif
