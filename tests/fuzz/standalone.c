/* Replays files, and the files of directories, through a fuzz target, in every build, whatever its
 * compiler. Prints the file's name on stderr first, so that it is known after a crash. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/fuzz/target.h"

enum { MAX_BYTES = 1 << 24 };

static size_t n_replayed;

static int replay_file(const char *path)
{
    /* exactly as large as the content, so that a sanitizer sees every read past it */
    unsigned char *buffer = NULL, *exact = NULL;
    size_t n_bytes = 0;
    FILE *in = fopen(path, "rb");
    int rc = 1;

    buffer = malloc(MAX_BYTES);
    if (in == NULL || buffer == NULL)
        goto out;
    n_bytes = fread(buffer, 1, MAX_BYTES, in);
    if (ferror(in) || n_bytes == MAX_BYTES)
        goto out;
    exact = malloc(n_bytes == 0 ? 1 : n_bytes);
    if (exact == NULL)
        goto out;
    memcpy(exact, buffer, n_bytes);
    (void)fprintf(stderr, "%s\n", path);
    rc = LLVMFuzzerTestOneInput(exact, n_bytes);
    n_replayed++;
out:
    if (rc != 0)
        (void)fprintf(stderr, "%s: not replayed\n", path);
    free(exact);
    free(buffer);
    if (in != NULL)
        (void)fclose(in); /* the file was only read */
    return rc;
}

static int replay(const char *path)
{
    struct dirent **names = NULL;
    struct stat st;
    int rc = 0, n;

    if (stat(path, &st) != 0) {
        perror(path);
        return 1;
    }
    if (!S_ISDIR(st.st_mode))
        return replay_file(path);
    n = scandir(path, &names, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        char inner[4096];

        if (names[i]->d_name[0] != '.') {
            (void)snprintf(inner, sizeof(inner), "%s/%s", path, names[i]->d_name);
            rc |= replay(inner);
        }
        free(names[i]);
    }
    free(names);
    return rc | (n < 0);
}

int main(int argc, char **argv)
{
    int rc = 0;

    for (int i = 1; i < argc; i++)
        rc |= replay(argv[i]);
    (void)printf("%zu inputs replayed\n", n_replayed);
    return rc != 0 || n_replayed == 0; /* a missing corpus is a failure */
}
