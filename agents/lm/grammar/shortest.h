/* How short the shortest text of a grammar is. C++, for the module alone. */
#ifndef AGENTS_LM_GRAMMAR_SHORTEST_H
#define AGENTS_LM_GRAMMAR_SHORTEST_H

#include <xgrammar/grammar.h>

#include <cstdint>
#include <vector>

constexpr uint64_t shortest_none = UINT64_MAX; /* there is no finite text */

/* In bytes, at most shortest_none - 1 where there is one. */
uint64_t shortest_text(const xgrammar::Grammar &grammar);
/* Of each rule. */
std::vector<uint64_t> shortest_texts(const xgrammar::Grammar &grammar);

#endif
