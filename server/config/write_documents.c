/* Writes what the documents take from the table of options: `write_documents manual|example|table`.
 * A tool of the build; tools/option_documents.py puts it where it belongs. */
#include <stdio.h>
#include <string.h>

#include "server/config/documents.h"

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*write)(FILE *out);
    } all[] = {
        {"help", document_help},
        {"manual", document_manual},
        {"example", document_example},
        {"table", document_table},
    };

    for (size_t i = 0; argc == 2 && i < sizeof(all) / sizeof(all[0]); i++) {
        if (strcmp(argv[1], all[i].name) != 0)
            continue;
        all[i].write(stdout);
        return fflush(stdout) == 0 ? 0 : 1;
    }
    (void)fputs("usage: write_documents help|manual|example|table\n", stderr);
    return 2;
}
