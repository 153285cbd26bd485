/* The module's side of module.h. XGrammar reports a schema keyword that it leaves out as a warning:
 * here a warning is a failure, since a reply must match the whole schema. */
#include <xgrammar/xgrammar.h>

#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <vector>

extern "C" {
#include "agents/lm/grammar/form.h"
#include "agents/lm/grammar/module.h"
extern __attribute__((visibility("default"))) const struct grammar_module parley_grammar_module;
}

namespace
{

thread_local std::string warning; /* the first one of the running compilation */

struct Failure : std::exception {
    explicit Failure(const std::string &message) : message(message)
    {
    }
    const char *what() const noexcept override
    {
        return message.c_str();
    }
    std::string message;
};

/* The first line of text; errors of the engine may have several. */
void tell(char *why, size_t why_bytes, const char *text)
{
    size_t len = std::strcspn(text, "\n");

    std::snprintf(why, why_bytes, "%.*s", static_cast<int>(len), text);
}

void *vocab_open(const char *const *texts, const size_t *lens, size_t n, const int32_t *ends,
                 size_t n_ends, char *why, size_t why_bytes)
try {
    std::vector<std::string> all;

    all.reserve(n);
    for (size_t i = 0; i < n; i++)
        all.emplace_back(texts[i], lens[i]);
    return new xgrammar::TokenizerInfo(all, xgrammar::VocabType::RAW, static_cast<int>(n),
                                       std::vector<int32_t>(ends, ends + n_ends));
} catch (const std::exception &e) {
    tell(why, why_bytes, e.what());
    return nullptr;
}

void vocab_close(void *vocab)
{
    delete static_cast<xgrammar::TokenizerInfo *>(vocab);
}

/* A format of structural tags: a grammar as text. The engine prints a character as \xHH and reads
 * all hexadecimal digits behind \x: here it gets \u00HH. */
std::string grammar_format(const std::string &schema)
{
    static const char digits[] = "0123456789abcdef";
    std::string text = xgrammar::Grammar::FromJSONSchema(schema, /*any_whitespace=*/false,
                                                         std::nullopt, std::nullopt,
                                                         /*strict_mode=*/false)
                           .ToString();
    std::string out = "{\"type\":\"grammar\",\"grammar\":\"";

    for (size_t i = 0; i < text.size(); i++) {
        unsigned char c = static_cast<unsigned char>(text[i]);

        if (c == '\\' && i + 1 < text.size()) {
            c = static_cast<unsigned char>(text[++i]);
            out += "\\\\";
            if (c == 'x') {
                out += "u00";
                continue;
            }
        }
        if (c == '"' || c == '\\')
            out += '\\';
        if (c >= ' ')
            out += static_cast<char>(c);
        else
            out += std::string("\\u00") + digits[c >> 4] + digits[c & 15];
    }
    return out + "\"}";
}

/* Puts the grammars of schemas where their pieces stand. */
std::string join_tags(const std::string &pieces)
{
    std::string out;
    size_t at = 0;

    while (at < pieces.size()) {
        size_t n = 0, colon = pieces.find(':', at);

        for (size_t i = at + 1; i < colon && i < pieces.size(); i++)
            n = n * 10 + static_cast<size_t>(pieces[i] - '0');
        if (colon == std::string::npos || n > pieces.size() - colon - 1)
            throw Failure("the tags have no pieces");
        out += pieces[at] == 'S' ? grammar_format(pieces.substr(colon + 1, n))
                                 : pieces.substr(colon + 1, n);
        at = colon + 1 + n;
    }
    return out;
}

xgrammar::CompiledGrammar compile_form(xgrammar::GrammarCompiler *compiler, int form,
                                       const std::string &text)
{
    if (form == CONSTRAINT_SCHEMA)
        return compiler->CompileJSONSchema(text, /*any_whitespace=*/false, std::nullopt,
                                           std::nullopt, /*strict_mode=*/false);
    if (form == CONSTRAINT_REGEX)
        return compiler->CompileRegex(text);
    if (form == CONSTRAINT_TAGS)
        return compiler->CompileStructuralTag(join_tags(text));
    return compiler->CompileGrammar(text);
}

void *compile(void *vocab, int form, const char *text, size_t len, char *why, size_t why_bytes)
try {
    xgrammar::GrammarCompiler compiler(*static_cast<xgrammar::TokenizerInfo *>(vocab),
                                       /*max_threads=*/1, /*cache_enabled=*/false);

    warning.clear();
    xgrammar::CompiledGrammar compiled = compile_form(&compiler, form, std::string(text, len));
    if (!warning.empty()) {
        tell(why, why_bytes, warning.c_str());
        return nullptr;
    }
    return new xgrammar::CompiledGrammar(compiled);
} catch (const std::exception &e) {
    tell(why, why_bytes, e.what());
    return nullptr;
}

void compiled_close(void *compiled)
{
    delete static_cast<xgrammar::CompiledGrammar *>(compiled);
}

size_t compiled_bytes(const void *compiled)
{
    return static_cast<const xgrammar::CompiledGrammar *>(compiled)->MemorySizeBytes();
}

struct Matcher {
    explicit Matcher(const xgrammar::CompiledGrammar &compiled)
        : engine(compiled), n_words((compiled.GetTokenizerInfo().GetVocabSize() + 31) / 32)
    {
    }
    xgrammar::GrammarMatcher engine;
    int64_t n_words; /* of a mask */
};

xgrammar::GrammarMatcher *engine_of(void *matcher)
{
    return &static_cast<Matcher *>(matcher)->engine;
}

void *matcher_open(void *compiled)
try {
    return new Matcher(*static_cast<xgrammar::CompiledGrammar *>(compiled));
} catch (const std::exception &) {
    return nullptr;
}

void matcher_close(void *matcher)
{
    delete static_cast<Matcher *>(matcher);
}

bool matcher_mask(void *matcher, uint32_t *mask)
try {
    Matcher *m = static_cast<Matcher *>(matcher);
    DLTensor tensor = {};

    if (m->engine.IsTerminated())
        return false;
    tensor.data = mask;
    tensor.device = DLDevice{kDLCPU, 0};
    tensor.ndim = 1;
    tensor.dtype = xgrammar::GetBitmaskDLType();
    tensor.shape = &m->n_words;
    (void)m->engine.FillNextTokenBitmask(&tensor);
    return true;
} catch (const std::exception &) {
    return false;
}

bool matcher_accept(void *matcher, int32_t id)
try {
    return !engine_of(matcher)->IsTerminated() && engine_of(matcher)->AcceptToken(id);
} catch (const std::exception &) {
    return false;
}

bool matcher_accept_text(void *matcher, const char *text, size_t len)
try {
    return !engine_of(matcher)->IsTerminated() &&
           engine_of(matcher)->AcceptString(std::string(text, len));
} catch (const std::exception &) {
    return false;
}

void matcher_take_back(void *matcher, size_t n)
{
    if (n > 0)
        engine_of(matcher)->Rollback(static_cast<int>(n));
}

bool matcher_may_end(const void *matcher)
{
    return static_cast<const Matcher *>(matcher)->engine.IsCompleted();
}

size_t matcher_forced(void *matcher, char *out, size_t cap)
try {
    std::string text;

    if (engine_of(matcher)->IsTerminated())
        return 0;
    text = engine_of(matcher)->FindJumpForwardString();
    if (text.size() > cap)
        text.resize(cap);
    std::memcpy(out, text.data(), text.size());
    return text.size();
} catch (const std::exception &) {
    return 0;
}

} // namespace

namespace xgrammar
{

/* XGRAMMAR_LOG_CUSTOMIZE leaves these to us. Level 2 and above are warnings and errors. */
[[noreturn]] void LogFatalImpl(const std::string &, int, const std::string &message)
{
    throw Failure(message);
}

void LogMessageImpl(const std::string &, int, int level, const std::string &message)
{
    if (level >= 2 && warning.empty())
        warning = message;
}

} // namespace xgrammar

const struct grammar_module parley_grammar_module = {
    PARLEY_VERSION,    sizeof(struct grammar_module),
    vocab_open,        vocab_close,
    compile,           compiled_close,
    compiled_bytes,    matcher_open,
    matcher_close,     matcher_mask,
    matcher_accept,    matcher_accept_text,
    matcher_take_back, matcher_may_end,
    matcher_forced,
};
