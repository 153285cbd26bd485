/* Any bytes as the answer of a process that compiles, cut at a place that the first byte says; and
 * what it says was compiled as a constraint, which is followed as far as it goes. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agents/lm/grammar/engine.h"
#include "agents/lm/grammar/module.h"
#include "server/compile/answer.h"
#include "tests/fuzz/target.h"
#include "tests/unit/agents/lm/grammar/byte_vocab.h"

enum { MAX_TOKENS = 64, N_WORDS = 9, FORCED_CAP = 256 };

static const struct grammar_module *module; /* NULL: it is not built */
static void *vocab;

static void open_module(void)
{
    static int is_tried;
    const char *file = getenv("PARLEY_GRAMMAR_MODULE");
    struct error err;

    if (is_tried++ > 0 || file == NULL || access(file, R_OK) != 0)
        return;
    if (engine_load(&module, &err) != STATUS_OK)
        abort();
    vocab = byte_vocab_open(module);
}

static void follow(void *matcher)
{
    uint32_t mask[N_WORDS];
    char forced[FORCED_CAP];

    for (int n = 0; n < MAX_TOKENS; n++) {
        int32_t id = 0;

        module->matcher_renew(matcher);
        assert(module->matcher_forced(matcher, forced, sizeof(forced)) <= sizeof(forced));
        if (!module->matcher_mask(matcher, mask))
            return;
        while (id < 257 && (mask[id / 32] >> id % 32 & 1) == 0)
            id++;
        if (id == 257 || !module->matcher_accept(matcher, id))
            return;
    }
}

static void load(const char *bytes, size_t len)
{
    char why[COMPILE_MAX_WHY] = "";
    bool is_spent;
    void *compiled, *matcher;

    if (module == NULL)
        return;
    compiled = module->compiled_load(vocab, bytes, len, why, sizeof(why));
    assert(compiled != NULL || why[0] != '\0');
    if (compiled == NULL)
        return;
    matcher = module->matcher_open(compiled, &is_spent);
    if (matcher != NULL)
        follow(matcher);
    module->matcher_close(matcher);
    module->compiled_close(compiled);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    struct answer a;
    struct error err;
    size_t cut;

    if (size_bytes == 0)
        return 0;
    open_module();
    cut = data[0] % size_bytes;
    data++;
    size_bytes--;
    answer_init(&a);
    if (answer_take(&a, (const char *)data, cut, &err) == STATUS_OK &&
        answer_take(&a, (const char *)data + cut, size_bytes - cut, &err) == STATUS_OK) {
        if (answer_is_complete(&a)) {
            assert(size_bytes == sizeof(a.head) + a.n_bytes);
            if (a.head.verdict == COMPILE_DONE)
                load(a.bytes, a.n_bytes);
        }
    } else {
        assert(err.status == STATUS_DATA_LOSS);
    }
    answer_deinit(&a);
    return 0;
}
