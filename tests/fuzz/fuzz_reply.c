/* Any bytes as a reply, in each family's format: the first byte says which and how it is cut. The
 * parts are the same however it is cut, the arguments of each call are a JSON object, and without
 * tools and thoughts the parts are the reply. */
#include <assert.h>
#include <string.h>

#include "agents/reply/json_scan.h"
#include "agents/reply/whole_reply.h"
#include "base/buf.h"
#include "tests/fuzz/target.h"

static const char tools[] =
    "[{\"function\":{\"name\":\"weather\",\"parameters\":{\"properties\":{\"city\":{\"type\":"
    "\"string\"}}}}},{\"function\":{\"name\":\"now\"}}]";

static void take(struct buf *out, struct reply_parser *p, uint32_t *ret_last)
{
    struct reply_part part;

    while (reply_parser_next(p, &part)) {
        const uint32_t is = 4 * part.call + (uint32_t)part.kind + 1;

        if (is != *ret_last || part.kind == REPLY_CALL)
            assert(buf_printf(out, "\x01%u:", is) == STATUS_OK);
        assert(buf_append(out, part.text, part.len) == STATUS_OK);
        *ret_last = is;
    }
}

static void parse(struct buf *out, const struct reply_parser_config *config, const char *text,
                  size_t len, size_t cut)
{
    struct reply_parser *p;
    struct error err;
    uint32_t last = 0;

    buf_init(out, 64 << 20);
    assert(reply_parser_open(&p, config, &err) == STATUS_OK);
    for (size_t at = 0; at < len; at += cut) {
        assert(reply_parser_add(p, text + at, cut < len - at ? cut : len - at, &err) == STATUS_OK);
        take(out, p, &last);
    }
    assert(reply_parser_end(p, &err) == STATUS_OK);
    take(out, p, &last);
    reply_parser_close(p);
}

static void check_calls(const struct reply_parser_config *config, const char *text, size_t len)
{
    struct whole_reply reply;
    struct error err;

    assert(whole_reply_read(&reply, config, text, len, &err) == STATUS_OK);
    for (uint32_t i = 0; i < reply.n_calls; i++) {
        struct tool_call call;

        whole_reply_call(&reply, i, &call);
        assert(json_scan_is_object(call.arguments.text, call.arguments.len));
    }
    whole_reply_deinit(&reply);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    static const struct thought_format thoughts = {.open = "<think>", .close = "</think>"};
    struct reply_format format = {.thoughts = &thoughts};
    struct reply_parser_config config = {.format = &format, .tools = {tools, sizeof(tools) - 1}};
    const char *text = (const char *)data + 1;
    size_t n_families = 0;
    struct buf whole, cut;

    if (size_bytes < 2 || size_bytes > 64 << 10)
        return 0;
    while (call_format_at(n_families) != NULL)
        n_families++;
    format.calls = call_format_at(data[0] % n_families);
    config.is_forced = (data[0] & 0x40) != 0;
    format.begins_in_thought[THINKING_DEFAULT] = (data[0] & 0x80) != 0;
    parse(&whole, &config, text, size_bytes - 1, size_bytes);
    parse(&cut, &config, text, size_bytes - 1, 1 + data[0] / n_families % 7);
    assert(whole.len == cut.len &&
           (whole.len == 0 || memcmp(whole.data, cut.data, whole.len) == 0));
    buf_deinit(&whole);
    buf_deinit(&cut);
    check_calls(&config, text, size_bytes - 1);
    config = (struct reply_parser_config){.format = &format, .keeps_thoughts = true};
    parse(&whole, &config, text, size_bytes - 1, 3);
    assert(whole.len >= size_bytes - 1 &&
           memcmp(whole.data + whole.len - (size_bytes - 1), text, size_bytes - 1) == 0);
    buf_deinit(&whole);
    return 0;
}
