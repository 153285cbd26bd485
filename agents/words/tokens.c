#include "agents/words/tokens.h"

#include <unictype.h>

#include "base/utf8.h"

bool is_white_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
           c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_alphanumeric(uint32_t c)
{
    return uc_is_general_category(c, UC_CATEGORY_L) || uc_is_general_category(c, UC_CATEGORY_N);
}

static bool is_token_char(uint32_t c)
{
    return c == '_' || is_alphanumeric(c);
}

struct text token_next(struct text text, size_t *at)
{
    while (*at < text.len) {
        const char *from = text.text + *at;
        uint32_t c;
        size_t n = utf8_next(from, text.len - *at, &c);

        if (!is_token_char(c)) {
            *at += n;
            if (c == '\n' || !is_white_space(c))
                return (struct text){from, n};
            continue;
        }
        do {
            *at += n;
            n = utf8_next(text.text + *at, text.len - *at, &c);
        } while (n > 0 && is_token_char(c));
        return (struct text){from, (size_t)(text.text + *at - from)};
    }
    return (struct text){NULL, 0};
}
