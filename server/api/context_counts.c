#include "server/api/context_counts.h"

#include <stdlib.h>
#include <string.h>

/* The first number in the text; *text goes behind it. */
static bool counts_take(const char **text, uint64_t *out)
{
    char *end;

    *text += strcspn(*text, "0123456789");
    if (**text == '\0')
        return false;
    *out = strtoull(*text, &end, 10);
    *text = end;
    return true;
}

/* Behind the number of the input that is at fault, where the text names one. */
static const char *behind_input(const char *text)
{
    static const char prefix[] = "input ";
    const char *number = text + sizeof(prefix) - 1;
    const size_t n =
        strncmp(text, prefix, sizeof(prefix) - 1) == 0 ? strspn(number, "0123456789") : 0;

    return n > 0 && number[n] == ':' ? number + n : text;
}

/* Agents say both in the text, the prompt's tokens first: an error has no place for numbers. */
bool context_counts_read(struct context_counts *out, const struct error *err)
{
    const char *text = behind_input(err->text);

    if (err->reason != REASON_CONTEXT_EXCEEDED || strstr(text, " tokens") == NULL ||
        !counts_take(&text, &out->n_tokens) || !counts_take(&text, &out->n_most))
        return false;
    if (out->n_tokens <= out->n_most)
        out->n_tokens = out->n_most + 1;
    return true;
}
