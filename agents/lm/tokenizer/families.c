#include "agents/lm/tokenizer/families.h"

#include <string.h>

/* White space is Unicode's White_Space property, spelled out because PCRE2's \s also takes U+180E.
 */
#define SPACE                                                                       \
    "\\t-\\r \\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}" \
    "\\x{205f}\\x{3000}"
/* A pattern that matches at every place of any text need not be searched for. */
#define HERE(pattern) "\\G(?:" pattern ")"
#define SPACES \
    "[" SPACE "]+(?![^" SPACE "])|[" SPACE "]+" /* a run leaves its last space to a word */
#define LINES "[" SPACE "]*[\\r\\n]+"
#define OTHERS " ?[^" SPACE "\\p{L}\\p{N}]+"
#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+|" OTHERS "|" SPACES
#define SHORT_FORM "'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]"
#define GPT4(digits) \
    SHORT_FORM "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "|" OTHERS "[\\r\\n]*|" LINES "|" SPACES
/* Words that also end where upper case follows lower case. Letters without case and marks are of
 * both kinds. */
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(ending, digits)                                                                     \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" ending "|"                                       \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" ending "|" digits "|" OTHERS "[\\r\\n/]*|" LINES \
    "|" SPACES
#define DEEPSEEK3                                           \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+" \
    "|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|" LINES "|" SPACES
#define QWEN35                                                 \
    SHORT_FORM "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}" \
               "| ?[^" SPACE "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" LINES "|" SPACES
#define HAN_AND_KANA "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+"

static const struct split_family families[] = {
    {{"default"}, {"[\\p{P}$+<=>^~|]+", HERE(GPT2), "\\p{N}+", "[0-9][0-9][0-9]"}, false, false},
    {{"gpt-2", "gpt2", "phi-2", "mpt", "olmo", "exaone4", "gigachat", "mellum", "modern-bert"},
     {HERE(GPT2)},
     false,
     false},
    {{"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone"},
     {HERE("\\p{N}|\\P{N}+"), HERE(GPT2)},
     false,
     false},
    {{"falcon"}, {"[\\p{P}$+<=>^~|`]+", HERE(GPT2), "[0-9][0-9][0-9]"}, false, false},
    {{"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "lfm2"},
     {HERE(GPT4("\\p{N}{1,3}"))},
     true,
     true},
    {{"glm4", "glm5", "chatglm-bpe"}, {HERE(GPT4("\\p{N}{1,3}"))}, true, false},
    {{"smaug-bpe", "dbrx"}, {HERE(GPT4("\\p{N}{1,3}"))}, false, false},
    {{"qwen2", "stablelm2", "deepseek-r1-qwen", "megrez", "hunyuan"},
     {HERE(GPT4("\\p{N}"))},
     false,
     false},
    {{"qwen35"}, {HERE(QWEN35)}, false, false},
    {{"tekken"}, {HERE(CASED("", "\\p{N}"))}, true, true},
    {{"gpt-4o", "llama4", "kanana2"},
     {HERE(CASED("(?:" SHORT_FORM ")?", "\\p{N}{1,3}"))},
     false,
     false},
    {{"deepseek-v3", "hunyuan-dense"}, {"\\p{N}{1,3}", HAN_AND_KANA, DEEPSEEK3}, false, false},
    {{"deepseek-coder"},
     {"[\\r\\n]", "[" SPACE "]?\\p{L}+", "[" SPACE "]?\\p{P}+",
      "[\\x{4e00}-\\x{9fa5}\\x{0800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+", "\\p{N}"},
     false,
     false},
    {{"gemma4"}, {HERE("[^\\n]+|\\n+")}, false, true},
    {{"spaces"}, {HERE(" [^ ]*|[^ ]+")}, false, false},
    {{"whole"}, {NULL}, false, false},
};

enum { N_FAMILIES = sizeof(families) / sizeof(families[0]) };

static bool family_is_named(const struct split_family *f, const char *name, size_t len)
{
    for (size_t i = 0; i < FAMILY_NAMES_MAX && f->names[i] != NULL; i++)
        if (strlen(f->names[i]) == len && memcmp(f->names[i], name, len) == 0)
            return true;
    return false;
}

const struct split_family *family_find(const char *name, size_t len)
{
    for (size_t i = 0; i < N_FAMILIES; i++)
        if (family_is_named(&families[i], name, len))
            return &families[i];
    return NULL;
}

const char *family_name(size_t i)
{
    return i < N_FAMILIES ? families[i].names[0] : NULL;
}
