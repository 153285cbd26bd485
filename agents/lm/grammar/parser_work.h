/* How much the engine's parser may do. The two patches beside this file have it count here: an
 * ambiguous grammar makes a parser's state grow with each byte, and one that can only go on in one
 * way may do so for ever. Counts depend on the grammar and the text alone, so the same reply ends
 * at the same place everywhere. C++, for the engine and the module alone. */
#ifndef AGENTS_LM_GRAMMAR_PARSER_WORK_H
#define AGENTS_LM_GRAMMAR_PARSER_WORK_H

#include <cstddef>
#include <cstdint>
#include <exception>
#include <vector>

namespace xgrammar
{
class GrammarMatcher;

namespace parser_work
{
constexpr std::size_t max_forced_bytes = 256; /* of a forced text that is looked for at once */

constexpr std::size_t state_cost = 16; /* of a new state, beside a look at one that is there */

/* Thrown where left is used up. The parser is then of no more use. */
struct Spent : std::exception {
};

inline thread_local std::size_t left = SIZE_MAX; /* of the work that this thread may do */
inline thread_local std::size_t kept = 0;        /* states that this thread's parsers have stored */

/* The grammar whose rules this thread's last parser has found to have no attributes: the parser
 * that the compiler makes for each state would look at all rules again. Whoever makes another
 * grammar sets it to null first. */
inline thread_local const void *plain = nullptr;

inline void Take(std::size_t n)
{
    if (n > left)
        throw Spent();
    left -= n;
}

inline void Keep(std::size_t n)
{
    kept += n;
}

/* Where the parser stands in a rule: in a state of its automaton, begun at a row of the parser's,
 * -1 for the first rule; and how often what the state repeats was read. */
struct ParserPlace {
    int32_t rule, state, start, n_repeats;
};

/* The places that wait for a byte. */
void LookAtLatest(const GrammarMatcher &matcher, std::vector<ParserPlace> *out);
/* The places that wait for the end of this rule, which was begun at the row: behind it, or where it
 * is repeated. */
void LookAtWaiting(const GrammarMatcher &matcher, int32_t row, int32_t rule,
                   std::vector<ParserPlace> *out);

} // namespace parser_work
} // namespace xgrammar

#endif
