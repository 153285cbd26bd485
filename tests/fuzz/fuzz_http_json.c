/* Foreign bytes as the body of a request of OpenAI's, Ollama's or Anthropic's. The first byte picks
 * which; an accepted request is within its bounds, and a refused one has an error. */
#include <assert.h>
#include <string.h>

#include "server/api/anthropic/request.h"
#include "server/api/ollama/request.h"
#include "server/api/openai/request.h"
#include "server/json/fields.h"
#include "tests/fuzz/target.h"

enum { ARENA_BYTES = 1 << 22 };

/* First bytes of those that are not OpenAI's. */
enum { FUZZ_OLLAMA_CHAT = 3, FUZZ_OLLAMA_GENERATE = 4, FUZZ_ANTHROPIC = 5 };

static void check_prompt(const struct prompt *p)
{
    assert(p->n_messages <= REQUEST_MAX_MESSAGES && p->n_messages + p->n_ids > 0);
    for (size_t i = 0; i < p->n_messages; i++)
        assert(strlen(p->messages[i].text) == p->messages[i].len);
    for (size_t i = 0; i < p->n_ids; i++)
        assert(p->ids[i] >= 0);
}

static void check(const struct request *r)
{
    assert(r->n >= 1 && r->n <= REQUEST_MAX_CHOICES && r->n_top <= SAMPLING_MAX_LOGPROBS);
    assert(r->n_prompts >= 1 && r->n_prompts * r->n <= REQUEST_MAX_CHOICES);
    for (size_t i = 0; i < r->n_prompts; i++)
        check_prompt(&r->prompts[i]);
    for (size_t i = 1; i < r->overrides.values.n_biases; i++)
        assert(r->overrides.values.biases[i - 1].id < r->overrides.values.biases[i].id);
}

static enum status take_ollama(struct request *out, uint8_t api, const json_t *body,
                               struct arena *arena, struct error *err)
{
    static struct message nothing = {.role = ROLE_USER, .text = ""};
    struct ollama_request r;
    enum status rc = (api == FUZZ_OLLAMA_CHAT ? ollama_request_chat
                                              : ollama_request_generate)(&r, body, arena, err);

    if (rc != STATUS_OK)
        return rc;
    *out = r.base;
    if (r.is_empty) /* its prompt is not read */
        *out->prompts = (struct prompt){.messages = &nothing, .n_messages = 1};
    return STATUS_OK;
}

static enum status take(struct request *out, uint8_t api, const json_t *body, struct arena *arena,
                        struct error *err)
{
    struct responses_request r;
    enum status rc;

    if (api == FUZZ_OLLAMA_CHAT || api == FUZZ_OLLAMA_GENERATE)
        return take_ollama(out, api, body, arena, err);
    if (api == FUZZ_ANTHROPIC)
        return anthropic_request(out, body, false, arena, err);
    if (api % 3 == 0)
        return request_chat(out, body, arena, err);
    if (api % 3 == 1)
        return request_completion(out, body, arena, err);
    rc = request_responses(&r, body, arena, err);
    if (rc == STATUS_OK)
        *out = r.base;
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    struct arena arena;
    struct request r;
    struct error err = {0};
    json_t *body;

    if (size_bytes == 0 ||
        fields_parse(&body, (const char *)data + 1, size_bytes - 1, &err) != STATUS_OK)
        return 0;
    arena_init(&arena, ARENA_BYTES);
    if (take(&r, data[0], body, &arena, &err) == STATUS_OK)
        check(&r);
    else
        assert(err.status != STATUS_OK && err.text[0] != '\0');
    json_decref(body);
    arena_deinit(&arena);
    return 0;
}
