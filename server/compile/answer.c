#include "server/compile/answer.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

void answer_init(struct answer *a)
{
    *a = (struct answer){.bytes = NULL};
}

void answer_deinit(struct answer *a)
{
    free(a->bytes);
    answer_init(a);
}

static size_t answer_min(size_t a, size_t b)
{
    return a < b ? a : b;
}

static enum status answer_check_head(struct answer *a, struct error *err)
{
    const struct compile_answer_head *head = &a->head;
    const size_t most = head->verdict == COMPILE_DONE ? COMPILE_MAX_BYTES : COMPILE_MAX_WHY;

    if (head->magic != COMPILE_MAGIC || head->verdict >= N_COMPILE_VERDICTS || head->n_bytes > most)
        return error_set(err, STATUS_DATA_LOSS,
                         "the program that compiles constraints gave a wrong answer");
    a->bytes = try_realloc(NULL, (size_t)head->n_bytes + 1, 1);
    return a->bytes != NULL ? STATUS_OK : error_no_memory(err, head->n_bytes, "a constraint");
}

enum status answer_take(struct answer *a, const char *bytes, size_t n, struct error *err)
{
    size_t take = answer_min(n, sizeof(a->head) - a->n_head);

    memcpy((char *)&a->head + a->n_head, bytes, take);
    a->n_head += take;
    bytes += take;
    n -= take;
    if (a->n_head < sizeof(a->head))
        return STATUS_OK;
    if (a->bytes == NULL && answer_check_head(a, err) != STATUS_OK)
        return err->status;
    take = answer_min(n, a->head.n_bytes - a->n_bytes);
    memcpy(a->bytes + a->n_bytes, bytes, take);
    a->n_bytes += take;
    a->bytes[a->n_bytes] = '\0';
    if (take < n)
        return error_set(err, STATUS_DATA_LOSS,
                         "the program that compiles constraints gave more than an answer");
    return STATUS_OK;
}

bool answer_is_complete(const struct answer *a)
{
    return a->bytes != NULL && a->n_bytes == a->head.n_bytes;
}
