/* A compiled grammar as bytes, which another process of the same build reads. C++, for the module
 * alone. The engine's own form is JSON: 5 to 30 times as long, and it repeats the automaton for
 * each rule. */
#ifndef AGENTS_LM_GRAMMAR_COMPILED_BYTES_H
#define AGENTS_LM_GRAMMAR_COMPILED_BYTES_H

#include <xgrammar/compiler.h>

#include <string>

/* Throws compiled_bytes_wrong for a grammar that has what these bytes cannot say. */
std::string compiled_bytes_save(const xgrammar::CompiledGrammar &compiled);

/* The bytes may be anything: whatever a matcher would follow is checked, and compiled_bytes_wrong
 * thrown. */
xgrammar::CompiledGrammar compiled_bytes_load(const char *bytes, size_t len,
                                              const xgrammar::TokenizerInfo &vocab);

struct compiled_bytes_wrong {
    const char *what; /* static */
};

#endif
