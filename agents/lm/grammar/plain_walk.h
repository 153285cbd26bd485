/* Whether a token's bytes lead through one rule's automaton, for the engine's compiler: it asks so
 * of all tokens, in the order of their bytes, for one state of the automaton after the other. What
 * a token has in common with the last one is not walked again. C++, for the engine. */
#ifndef AGENTS_LM_GRAMMAR_PLAIN_WALK_H
#define AGENTS_LM_GRAMMAR_PLAIN_WALK_H

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <fsm.h>

namespace xgrammar
{

class PlainWalk
{
  public:
    using Tokens = std::vector<std::pair<int32_t, std::string>>; /* sorted by their bytes */
    enum class Way {
        WITHIN,  /* all bytes are edges of the automaton */
        NOWHERE, /* a byte is none, and before it the rule could neither end nor refer to another */
        UNKNOWN, /* the parser must say it */
    };

    /* fsm has the automata of all rules. */
    PlainWalk(const CompactFSM &fsm, const Tokens &tokens)
        : fsm(fsm), tokens(tokens), states(fsm.NumStates()), n_common(tokens.size())
    {
        size_t n_bytes = 0;

        for (size_t i = 0; i < tokens.size(); i++) {
            n_common[i] = i > 0 ? Common(i - 1, i) : 0;
            n_bytes = std::max(n_bytes, tokens[i].second.size());
        }
        path.resize(n_bytes + 1);
    }

    void Start(const CompactFSMWithStartEnd *rule_fsm, int32_t state)
    {
        rule = rule_fsm;
        is_first = true;
        n_walked = 0;
        path[0] = {state, IsOpen(state)};
    }

    /* i: of the token, ascending */
    Way Take(size_t i)
    {
        const std::string &token = tokens[i].second;
        const size_t n = is_first ? 0 : i == last + 1 ? n_common[i] : Common(last, i);

        is_first = false;
        last = i;
        if (n <= n_walked) { /* else the byte that led nowhere is here again */
            n_walked = n;
            for (; n_walked < token.size(); n_walked++) {
                const Step &at = path[n_walked];
                const int32_t next = Next(at.state, static_cast<uint8_t>(token[n_walked]));

                if (next < 0)
                    break;
                path[n_walked + 1] = {next, at.is_open || IsOpen(next)};
            }
        }
        if (token.empty())
            return Way::UNKNOWN;
        if (n_walked == token.size())
            return Way::WITHIN;
        return path[n_walked].is_open ? Way::UNKNOWN : Way::NOWHERE;
    }

  private:
    enum { N_BYTES = 256, MAX_SCANNED = 4, NO_ROW = -1 };

    struct State {
        bool is_known = false;
        bool is_plain = false; /* its edges are bytes, each of one edge at most */
        int32_t row = NO_ROW;  /* in rows, for many edges */
    };
    struct Step {
        int32_t state;
        bool is_open; /* the rule may end here or before, or goes on with what is no byte */
    };

    size_t Common(size_t a, size_t b) const /* bytes that both tokens begin with */
    {
        const std::string &x = tokens[a].second, &y = tokens[b].second;

        return static_cast<size_t>(std::mismatch(x.begin(), x.end(), y.begin(), y.end()).first -
                                   x.begin());
    }

    void Learn(int32_t at)
    {
        State &s = states[static_cast<size_t>(at)];
        const auto edges = fsm.GetEdges(at);
        int32_t targets[N_BYTES];

        std::fill(targets, targets + N_BYTES, -1);
        s.is_known = s.is_plain = true;
        for (const auto &edge : edges) {
            s.is_plain = s.is_plain && edge.IsCharRange();
            for (int32_t c = edge.min; edge.IsCharRange() && c <= edge.max; c++) {
                s.is_plain = s.is_plain && targets[c] < 0;
                if (targets[c] < 0)
                    targets[c] = edge.target;
            }
        }
        if (edges.size() > MAX_SCANNED) {
            s.row = static_cast<int32_t>(rows.size());
            rows.insert(rows.end(), targets, targets + N_BYTES);
        }
    }

    const State &Know(int32_t at)
    {
        if (!states[static_cast<size_t>(at)].is_known)
            Learn(at);
        return states[static_cast<size_t>(at)];
    }

    bool IsOpen(int32_t at)
    {
        return !Know(at).is_plain || rule->IsEndState(at);
    }

    int32_t Next(int32_t at, uint8_t byte)
    {
        const State &s = Know(at);

        if (s.row != NO_ROW)
            return rows[static_cast<size_t>(s.row) + byte];
        for (const auto &edge : fsm.GetEdges(at))
            if (edge.IsCharRange() && edge.min <= byte && byte <= edge.max)
                return edge.target;
        return -1;
    }

    const CompactFSM &fsm;
    const Tokens &tokens;
    const CompactFSMWithStartEnd *rule = nullptr;
    bool is_first = true; /* there is no last token */
    size_t last = 0;      /* the token before */
    size_t n_walked = 0;  /* its bytes that are edges */
    std::vector<State> states;
    std::vector<size_t> n_common; /* with the token before */
    std::vector<int32_t> rows;    /* [N_BYTES] each: the state that a byte leads to, or -1 */
    std::vector<Step> path;       /* a state for each byte that was walked, and the first one */
};

} // namespace xgrammar

#endif
