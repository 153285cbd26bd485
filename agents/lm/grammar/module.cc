/* The module's side of module.h. XGrammar reports a schema keyword that it leaves out as a warning:
 * here a warning is a failure, since a reply must match the whole schema. */
#include "agents/lm/grammar/compiled_bytes.h"
#include "agents/lm/grammar/ending.h"
#include "agents/lm/grammar/parser_work.h"
#include "agents/lm/grammar/shortest.h"

#include <xgrammar/xgrammar.h>

#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <vector>

extern "C" {
#include "agents/constraint/form.h"
#include "agents/lm/grammar/module.h"
extern __attribute__((visibility("default"))) const struct grammar_module parley_grammar_module;
}

namespace
{

namespace parser_work = xgrammar::parser_work;

/* A longer reply would fill no model's context. */
constexpr uint64_t max_shortest_bytes = 1 << 20;

/* What a matcher may do for one token: 2^20 new states of its parser, or 2^24 looks at one, which
 * take some 50 ms, as a step does. */
constexpr size_t step_work = xgrammar::parser_work::state_cost << 20;

/* States of its parser that a matcher may keep for a text: 44 bytes each. An ordinary schema has
 * one to six for each byte; an enumeration has one for each text that goes on as the reply has
 * begun, so as many as the constraint has bytes. */
constexpr size_t kept_at_first = 1 << 18, kept_for_byte = 32, max_kept = 1 << 20;

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

xgrammar::CompiledGrammar compile_form(xgrammar::GrammarCompiler *compiler, int form,
                                       const std::string &text)
{
    if (form == CONSTRAINT_REGEX)
        return compiler->CompileRegex(text);
    if (form == CONSTRAINT_TAGS)
        return compiler->CompileStructuralTag(text);
    return compiler->CompileGrammar(text);
}

void check_shortest(const xgrammar::CompiledGrammar &compiled)
{
    const uint64_t len = shortest_text(compiled.GetGrammar());

    if (len == shortest_none)
        throw Failure("no reply is finite: each way through its rules comes back to where it was");
    if (len > max_shortest_bytes)
        throw Failure("its shortest reply has " +
                      (len == shortest_none - 1 ? "more than 10^19" : std::to_string(len)) +
                      " bytes, it may have at most " + std::to_string(max_shortest_bytes));
}

void *compile(void *vocab, int form, const char *text, size_t len, bool *ret_no_memory, char *why,
              size_t why_bytes)
try {
    xgrammar::GrammarCompiler compiler(*static_cast<xgrammar::TokenizerInfo *>(vocab),
                                       /*max_threads=*/1, /*cache_enabled=*/false);

    *ret_no_memory = false;
    warning.clear();
    parser_work::plain = nullptr;
    xgrammar::CompiledGrammar compiled = compile_form(&compiler, form, std::string(text, len));
    if (!warning.empty()) {
        tell(why, why_bytes, warning.c_str());
        return nullptr;
    }
    check_shortest(compiled);
    return new xgrammar::CompiledGrammar(compiled);
} catch (const std::bad_alloc &) {
    *ret_no_memory = true;
    tell(why, why_bytes, "it takes too much memory");
    return nullptr;
} catch (const std::exception &e) {
    tell(why, why_bytes, e.what());
    return nullptr;
}

bool compiled_save(const void *compiled, bool (*put)(void *arg, const char *bytes, size_t len),
                   void *arg, char *why, size_t why_bytes)
try {
    const std::string bytes =
        compiled_bytes_save(*static_cast<const xgrammar::CompiledGrammar *>(compiled));

    return put(arg, bytes.data(), bytes.size());
} catch (const compiled_bytes_wrong &e) {
    tell(why, why_bytes, e.what);
    return false;
} catch (const std::exception &e) {
    tell(why, why_bytes, e.what());
    return false;
}

void *compiled_load(void *vocab, const char *bytes, size_t len, char *why, size_t why_bytes)
try {
    return new xgrammar::CompiledGrammar(
        compiled_bytes_load(bytes, len, *static_cast<xgrammar::TokenizerInfo *>(vocab)));
} catch (const compiled_bytes_wrong &e) {
    tell(why, why_bytes, e.what);
    return nullptr;
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
        : engine(compiled), grammar(compiled.GetGrammar()), vocab(compiled.GetTokenizerInfo()),
          n_words((vocab.GetVocabSize() + 31) / 32)
    {
    }
    xgrammar::GrammarMatcher engine;
    xgrammar::Grammar grammar;
    xgrammar::TokenizerInfo vocab;
    std::unique_ptr<Ending> ending; /* made when it is first asked for */
    int64_t n_words;                /* of a mask */
    size_t left = step_work, n_bytes = 0, n_kept = 0;
    bool is_spent = false;
};

Matcher *matcher_of(void *matcher)
{
    return static_cast<Matcher *>(matcher);
}

/* Calls f with what is left of the work; failed where that is too little, and for an exception. */
template <typename R, typename F> R within(Matcher *m, R failed, F f)
{
    R result = failed;

    if (m->is_spent || m->engine.IsTerminated())
        return failed;
    parser_work::left = m->left;
    try {
        result = f();
    } catch (const parser_work::Spent &) {
        m->is_spent = true;
    } catch (const std::exception &) {
    }
    m->left = parser_work::left;
    parser_work::left = SIZE_MAX;
    return result;
}

void *matcher_open(void *compiled, bool *ret_is_spent)
{
    Matcher *m = nullptr;

    *ret_is_spent = false;
    parser_work::plain = nullptr;
    parser_work::left = step_work;
    try {
        m = new Matcher(*static_cast<xgrammar::CompiledGrammar *>(compiled));
    } catch (const parser_work::Spent &) {
        *ret_is_spent = true;
    } catch (const std::exception &) {
    }
    parser_work::left = SIZE_MAX;
    return m;
}

void matcher_close(void *matcher)
{
    delete matcher_of(matcher);
}

void matcher_renew(void *matcher)
{
    matcher_of(matcher)->left = step_work;
}

bool matcher_is_spent(const void *matcher)
{
    return static_cast<const Matcher *>(matcher)->is_spent;
}

bool matcher_mask(void *matcher, uint32_t *mask)
{
    Matcher *m = matcher_of(matcher);

    return within(m, false, [&] {
        DLTensor tensor = {};

        tensor.data = mask;
        tensor.device = DLDevice{kDLCPU, 0};
        tensor.ndim = 1;
        tensor.dtype = xgrammar::GetBitmaskDLType();
        tensor.shape = &m->n_words;
        (void)m->engine.FillNextTokenBitmask(&tensor);
        return true;
    });
}

/* Of a token that is not taken back. */
void count_kept(Matcher *m, int32_t id)
{
    m->n_bytes += m->vocab.GetDecodedVocab()[static_cast<size_t>(id)].size();
    m->n_kept += parser_work::kept;
    if (m->n_kept > kept_at_first + kept_for_byte * m->n_bytes || m->n_kept > max_kept)
        throw parser_work::Spent();
}

bool matcher_accept(void *matcher, int32_t id)
{
    Matcher *m = matcher_of(matcher);

    return within(m, false, [&] {
        parser_work::kept = 0;
        if (!m->engine.AcceptToken(id))
            return false;
        count_kept(m, id);
        return true;
    });
}

bool matcher_accept_text(void *matcher, const char *text, size_t len)
{
    Matcher *m = matcher_of(matcher);

    return within(m, false, [&] { return m->engine.AcceptString(std::string(text, len)); });
}

void matcher_take_back(void *matcher, size_t n)
{
    Matcher *m = matcher_of(matcher);

    if (n > 0 && !m->is_spent)
        m->engine.Rollback(static_cast<int>(n));
}

bool matcher_may_end(const void *matcher)
{
    const Matcher *m = static_cast<const Matcher *>(matcher);

    return !m->is_spent && m->engine.IsCompleted();
}

size_t matcher_forced(void *matcher, char *out, size_t cap)
{
    Matcher *m = matcher_of(matcher);

    return within(m, size_t{0}, [&] {
        std::string text = m->engine.FindJumpForwardString();

        if (text.size() > cap)
            text.resize(cap);
        std::memcpy(out, text.data(), text.size());
        return text.size();
    });
}

size_t matcher_ending(void *matcher, char *out, size_t cap)
{
    Matcher *m = matcher_of(matcher);

    return within(m, SIZE_MAX, [&]() -> size_t {
        std::string text;

        if (m->engine.IsCompleted())
            return 0;
        if (m->ending == nullptr)
            m->ending = std::make_unique<Ending>(m->grammar);
        if (!m->ending->find(m->engine, cap, &text))
            return SIZE_MAX;
        std::memcpy(out, text.data(), text.size());
        return text.size();
    });
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
    compiled_bytes,    compiled_save,
    compiled_load,     matcher_open,
    matcher_close,     matcher_renew,
    matcher_is_spent,  matcher_mask,
    matcher_accept,    matcher_accept_text,
    matcher_take_back, matcher_may_end,
    matcher_forced,    matcher_ending,
};
