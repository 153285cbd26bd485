/* What a rule that is repeated may begin with, for the engine's rewriting of grammars. A repetition
 * is a rule that refers to itself behind the one that it repeats. Where that may be one character,
 * as in a string's text, its end would be possible in each place, and each token would be tried out
 * by the parser, for each token of a reply. So its alternatives become the repetition's own, as
 * those of a rule that refers to no other already do. C++, for the engine. */
#ifndef AGENTS_LM_GRAMMAR_REPEATED_RULE_H
#define AGENTS_LM_GRAMMAR_REPEATED_RULE_H

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <grammar_builder.h>

namespace xgrammar
{
namespace repeated_rule
{

using Type = Grammar::Impl::GrammarExprType;
using Sequence = std::vector<int32_t>; /* of elements */

enum {
    MAX_ALTERNATIVES = 64,
    MAX_RULES = 16, /* that are replaced */
    MAX_PATH = 64,  /* repetitions, each of which is all of a rule that another one repeats */
};

/* Appends a rule that is a repetition and no more to those on the way to it; throws where it is one
 * of them, which has no end. name_of: a rule's name. */
inline void Enter(std::vector<int32_t> *path, int32_t rule,
                  const std::function<std::string(int32_t)> &name_of)
{
    const auto same = std::find(path->begin(), path->end(), rule);
    std::string name = name_of(rule);

    for (auto other = same; other != path->end(); other++) /* those of groups are longer */
        if (name_of(*other).size() < name.size())
            name = name_of(*other);
    if (name.compare(0, 2, "g-") == 0) /* as agents/constraint/gbnf.c has names */
        name.erase(0, 2);
    if (same != path->end())
        throw std::invalid_argument("the rule '" + name.substr(0, 60) + "' repeats itself alone");
    if (path->size() == MAX_PATH)
        throw std::invalid_argument("the rule '" + name.substr(0, 60) +
                                    "' stands in too many repetitions of repetitions");
    path->push_back(rule);
}

/* Whether body is that of a repetition. bodies: of all rules. */
inline bool IsRepetition(GrammarBuilder *builder, const std::vector<int32_t> &bodies, int32_t body)
{
    for (int32_t choice_id : builder->GetGrammarExpr(body)) {
        const auto choice = builder->GetGrammarExpr(choice_id);

        if (choice.type != Type::kSequence || choice.size() < 2)
            continue;
        const auto last = builder->GetGrammarExpr(choice[choice.size() - 1]);
        if (last.type == Type::kRuleRef && bodies[static_cast<size_t>(last[0])] == body)
            return true;
    }
    return false;
}

/* Appends the alternatives of a rule, each with what stands behind it. False, and nothing: it may
 * be empty, or more. */
inline bool Append(GrammarBuilder *builder, int32_t body, const Sequence &behind,
                   std::vector<Sequence> *to)
{
    const auto choices = builder->GetGrammarExpr(body);

    if (choices.type != Type::kChoices || choices.size() == 0)
        return false;
    for (int32_t choice_id : choices)
        if (builder->GetGrammarExpr(choice_id).type != Type::kSequence)
            return false;
    for (int32_t choice_id : choices) {
        const auto choice = builder->GetGrammarExpr(choice_id);

        to->emplace_back(choice.begin(), choice.end());
        to->back().insert(to->back().end(), behind.begin(), behind.end());
    }
    return true;
}

/* The alternatives of a rule, without such as begin with another rule, which its own replace. None:
 * not all of them begin with a character, or none is one, or they are too many. is_plain: whether a
 * rule is nothing but its body. */
inline std::vector<Sequence> Alternatives(GrammarBuilder *builder,
                                          const std::vector<int32_t> &bodies,
                                          const std::function<bool(int32_t)> &is_plain,
                                          int32_t rule)
{
    std::vector<Sequence> waiting, all;
    bool has_character = false;
    int n_rules = 1;

    if (!is_plain(rule) || !Append(builder, bodies[static_cast<size_t>(rule)], {}, &waiting))
        return {};
    while (!waiting.empty()) {
        const Sequence sequence = std::move(waiting.back());
        const auto first = builder->GetGrammarExpr(sequence[0]);

        waiting.pop_back();
        if (first.type == Type::kRuleRef) {
            if (n_rules++ == MAX_RULES || !is_plain(first[0]) ||
                !Append(builder, bodies[static_cast<size_t>(first[0])],
                        Sequence(sequence.begin() + 1, sequence.end()), &waiting))
                return {};
        } else if (first.type == Type::kCharacterClass || first.type == Type::kByteString) {
            has_character =
                has_character || (sequence.size() == 1 && first.type == Type::kCharacterClass);
            all.push_back(sequence);
        } else {
            return {};
        }
        if (all.size() + waiting.size() > MAX_ALTERNATIVES)
            return {};
    }
    return has_character ? all : std::vector<Sequence>();
}

} // namespace repeated_rule
} // namespace xgrammar

#endif
