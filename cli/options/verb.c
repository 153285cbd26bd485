#include "cli/options/verb.h"

#include <string.h>

int verb_index(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--server") == 0 || strcmp(argv[i], "--wait") == 0)
            i++;
        else if (argv[i][0] != '-')
            return i;
        else if (strncmp(argv[i], "--server=", 9) != 0 && strncmp(argv[i], "--wait=", 7) != 0 &&
                 strcmp(argv[i], "--json") != 0)
            return 0;
    }
    return 0;
}

void verb_name_first(const struct verb *verb, int *argc, char ***argv, int at)
{
    char **args = *argv;

    memmove(args + 1 + 1, args + 1, (size_t)(at - 1) * sizeof(*args));
    args[1] = (char *)verb->name;
    *argv = args + 1;
    *argc -= 1;
}
