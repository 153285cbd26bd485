/* The shortest text that ends a reply from where its matcher stands. C++, for the module alone. */
#ifndef AGENTS_LM_GRAMMAR_ENDING_H
#define AGENTS_LM_GRAMMAR_ENDING_H

#include <xgrammar/xgrammar.h>

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

/* What is known of a grammar; the distances of a rule are found when they are first asked for. */
class Ending
{
  public:
    explicit Ending(const xgrammar::Grammar &grammar);
    /* False: there is none, or none of at most so many bytes. */
    bool find(const xgrammar::GrammarMatcher &matcher, size_t max_bytes, std::string *out);

  private:
    using Distances = std::unordered_map<int32_t, uint64_t>; /* of a state from its rule's end */

    const Distances &distances_of(int32_t rule);
    uint64_t behind(const xgrammar::GrammarMatcher &matcher, int32_t rule, int32_t start);
    bool put_behind(const xgrammar::GrammarMatcher &matcher, int32_t rule, int32_t start);
    bool put_rule(int32_t rule, int32_t state, int32_t n_repeats, int depth);

    xgrammar::Grammar grammar;
    std::vector<uint64_t> of_rule;
    std::unordered_map<int32_t, Distances> distances;
    std::unordered_map<uint64_t, uint64_t> known; /* of one search: behind() by rule and row */
    std::string text;
    size_t max_text = 0;
};

#endif
