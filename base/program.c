#include "base/program.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool program_beside(char out[PATH_MAX], const char *place)
{
    char program[PATH_MAX];
    ssize_t len = readlink("/proc/self/exe", program, sizeof(program) - 1);
    char *slash;
    int n;

    if (len <= 0)
        return false;
    program[len] = '\0';
    slash = strrchr(program, '/');
    if (slash == NULL)
        return false;
    *slash = '\0';
    n = snprintf(out, PATH_MAX, "%s/%s", program, place);
    return n > 0 && n < PATH_MAX && access(out, R_OK) == 0;
}

void program_take_standard_files(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0) /* the lowest free one is opened, which is fd */
            (void)open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}
