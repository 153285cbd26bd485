/* Automata in grammars: Regex("*@…") has one as text, in place of a regular expression. Its states
 * are separated by ";", the first is where it starts. A state has "!" first if a text may end
 * there, then its edges: two bytes in two hexadecimal digits each, from and to, the number of a
 * state, and
 * ",". The patch of fsm_builder beside this file has the engine read them. C++, for the engine. */
#ifndef AGENTS_LM_GRAMMAR_AUTOMATON_TEXT_H
#define AGENTS_LM_GRAMMAR_AUTOMATON_TEXT_H

#include <cstdint>
#include <string>
#include <vector>

#include <fsm.h>

namespace xgrammar
{
namespace automaton_text
{

inline bool Is(const std::string &text)
{
    return text.compare(0, 2, "*@") == 0; /* no regular expression begins so */
}

inline int Digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

inline int Byte(const std::string &text, size_t at)
{
    const int high = at + 1 < text.size() ? Digit(text[at]) : -1,
              low = high < 0 ? -1 : Digit(text[at + 1]);

    return low < 0 ? -1 : high * 16 + low;
}

/* False: it is no automaton. */
inline bool Read(const std::string &text, FSM *fsm, std::vector<int32_t> *ends)
{
    int n_states = 1, state = 0;
    size_t at = 2;

    for (char c : text)
        n_states += c == ';';
    for (int i = 0; i < n_states; i++)
        fsm->AddState();
    while (at < text.size()) {
        if (text[at] == ';') {
            state++;
            at++;
        } else if (text[at] == '!') {
            ends->push_back(state);
            at++;
        } else {
            const int first = Byte(text, at), last = Byte(text, at + 2);
            long target = 0;

            at += 4;
            if (first < 0 || last < first || at >= text.size() || Digit(text[at]) > 9)
                return false;
            for (; at < text.size() && text[at] >= '0' && text[at] <= '9' && target < n_states;
                 at++)
                target = target * 10 + (text[at] - '0');
            if (target >= n_states || at >= text.size() || text[at++] != ',')
                return false;
            fsm->AddEdge(state, static_cast<int>(target), first, last);
        }
    }
    return true;
}

} // namespace automaton_text
} // namespace xgrammar

#endif
