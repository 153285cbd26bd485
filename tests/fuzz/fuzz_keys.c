/* Any bytes as the file of keys: what is taken has a name and a time that can be, and an error
 * quotes nothing of the file. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "server/access/keys_file.h"
#include "tests/fuzz/target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    char *text = malloc(size_bytes == 0 ? 1 : size_bytes); /* exactly size_bytes */
    struct keys_line *keys = NULL;
    struct error err;
    size_t n = 0;

    if (text == NULL)
        abort();
    if (size_bytes > 0)
        memcpy(text, data, size_bytes);
    if (keys_file_parse(&keys, &n, text, size_bytes, &err) == STATUS_OK) {
        assert(n <= KEYS_FILE_MAX_KEYS);
        for (size_t i = 0; i < n; i++)
            assert(keys[i].principal[0] != '\0' && strlen(keys[i].principal) <= PRINCIPAL_NAME_MAX);
        free(keys);
    } else {
        assert(err.status == STATUS_INVALID && strncmp(err.text, "line ", 5) == 0);
    }
    free(text);
    return 0;
}
