#include "client/cli/models/remove.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/fetch/hub_cache_remove.h"
#include "base/fetch/model_name.h"
#include "cli/output/console.h"

static enum exit_code models_remove_one(const char *text)
{
    struct model_name name;
    struct error err = {0};
    uint64_t n_bytes;

    if (model_name_parse(&name, text, &err) == STATUS_OK && name.kind == MODEL_NAME_OLLAMA)
        (void)error_set(&err, STATUS_INVALID, "'ollama rm %.100s' removes it",
                        text + strlen("ollama:"));
    if (err.status != STATUS_OK) {
        console_error("%s", err.text);
        return EXIT_MISUSE;
    }
    if (hub_cache_remove(&n_bytes, &name, &err) != STATUS_OK) {
        console_error("%s", err.text);
        return EXIT_FAILED;
    }
    printf("%s: removed %.1f MB\n", text, (double)n_bytes / 1e6);
    return EXIT_DONE;
}

enum exit_code models_remove(char *const *names, int n)
{
    enum exit_code code = EXIT_DONE;

    for (int i = 0; i < n && code == EXIT_DONE; i++)
        code = models_remove_one(names[i]);
    return code;
}
