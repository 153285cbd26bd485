/* The parser knows which rules are open and where each goes on. The rest of a rule is a shortest
 * way in its automaton, where a reference to a rule is as long as that rule's shortest text; behind
 * it comes the rest of a rule that waits for it, and so on to the first rule. Of several ways the
 * shortest is taken, and of equally short ones the first. */
#include "agents/lm/grammar/ending.h"

#include <grammar_impl.h>

#include <queue>
#include <tuple>

#include "agents/lm/grammar/parser_work.h"
#include "agents/lm/grammar/shortest.h"

using xgrammar::FSMEdge;
using xgrammar::parser_work::ParserPlace;

namespace
{

constexpr int max_depth = 2000;  /* rules in each other, in a text that is written */
constexpr int max_steps = 10000; /* edges of one rule: some have no bytes */

uint64_t add(uint64_t a, uint64_t b)
{
    return a == shortest_none || b == shortest_none || a > shortest_none - 1 - b ? shortest_none
                                                                                 : a + b;
}

uint64_t times(uint64_t a, int64_t n)
{
    uint64_t sum = 0;

    if (n <= 0)
        return 0;
    if (a == shortest_none || a > (uint64_t{1} << 32))
        return shortest_none;
    sum = a * static_cast<uint64_t>(n);
    return sum;
}

/* Of a range the byte that makes the plainest text. */
char byte_of(const FSMEdge &edge)
{
    for (char c : {'.', '0', 'n', 'a'})
        if (edge.min <= c && c <= edge.max)
            return c;
    return static_cast<char>(edge.min);
}

/* The fewest bytes of an edge; of_rule has those of each rule. */
uint64_t shortest_of(const FSMEdge &edge, const xgrammar::Grammar &grammar,
                     const std::vector<uint64_t> &of_rule)
{
    if (edge.IsRuleRef())
        return of_rule[static_cast<size_t>(edge.GetRefRuleId())];
    if (edge.IsRepeatRef()) {
        const auto repeat = grammar.ImplPtr()->complete_fsm.GetRepeatEdgeInfo(edge.GetAuxIndex());

        return times(of_rule[static_cast<size_t>(repeat.RuleId())], repeat.Lower());
    }
    return edge.IsCharRange() ? 1 : edge.IsEpsilon() ? 0 : shortest_none;
}

} // namespace

Ending::Ending(const xgrammar::Grammar &grammar)
    : grammar(grammar), of_rule(shortest_texts(grammar))
{
}

/* Dijkstra's algorithm from the ends, on the edges turned round. */
const Ending::Distances &Ending::distances_of(int32_t rule)
{
    const auto found = distances.find(rule);
    const auto &fsm = grammar.ImplPtr()->per_rule_fsms[static_cast<size_t>(rule)]->GetFsm();
    std::unordered_map<int32_t, std::vector<std::pair<int32_t, uint64_t>>> before;
    std::priority_queue<std::pair<uint64_t, int32_t>, std::vector<std::pair<uint64_t, int32_t>>,
                        std::greater<>>
        waiting;
    std::vector<int32_t> states = {fsm.GetStart()};
    std::unordered_map<int32_t, bool> seen = {{fsm.GetStart(), true}};

    if (found != distances.end())
        return found->second;
    Distances &out = distances[rule];
    for (size_t i = 0; i < states.size(); i++) {
        const int32_t state = states[i];

        if (fsm.IsEndState(state))
            waiting.push({0, state});
        for (const auto &edge : fsm.GetFsm().GetEdges(state)) {
            const uint64_t len = shortest_of(edge, grammar, of_rule);

            if (len != shortest_none)
                before[edge.target].push_back({state, len});
            if (seen.emplace(edge.target, true).second)
                states.push_back(edge.target);
        }
    }
    while (!waiting.empty()) {
        const auto [distance, state] = waiting.top();

        waiting.pop();
        if (!out.emplace(state, distance).second)
            continue;
        for (const auto &[from, len] : before[state])
            waiting.push({add(distance, len), from});
    }
    return out;
}

/* The edge that a place repeats at, if it does; then how many times more, once is_behind. */
static const FSMEdge *repeat_at(const xgrammar::Grammar &grammar, const ParserPlace &place)
{
    const auto &fsm = grammar.ImplPtr()->per_rule_fsms[static_cast<size_t>(place.rule)]->GetFsm();

    for (const auto &edge : fsm.GetFsm().GetEdges(place.state))
        if (edge.IsRepeatRef())
            return &edge;
    return nullptr;
}

static uint64_t distance_in(const std::unordered_map<int32_t, uint64_t> &all, int32_t state)
{
    const auto found = all.find(state);

    return found != all.end() ? found->second : shortest_none;
}

/* The rest of a place's rule where the rule that it waits for has ended, without what is behind. */
static std::tuple<uint64_t, int32_t, int64_t, int32_t>
rest_of(const xgrammar::Grammar &grammar, const std::vector<uint64_t> &of_rule,
        const std::unordered_map<int32_t, uint64_t> &all, const ParserPlace &place, int32_t ended)
{
    const FSMEdge *edge = repeat_at(grammar, place);

    if (edge != nullptr) {
        const auto repeat = grammar.ImplPtr()->complete_fsm.GetRepeatEdgeInfo(edge->GetAuxIndex());

        if (repeat.RuleId() == ended) {
            const int64_t n = int64_t{repeat.Lower()} - place.n_repeats - 1;

            return {
                add(times(of_rule[static_cast<size_t>(ended)], n), distance_in(all, edge->target)),
                edge->target, n, ended};
        }
    }
    return {distance_in(all, place.state), place.state, 0, -1};
}

/* What follows a rule that was begun at a row. */
uint64_t Ending::behind(const xgrammar::GrammarMatcher &matcher, int32_t rule, int32_t start)
{
    const uint64_t key =
        static_cast<uint64_t>(static_cast<uint32_t>(start)) << 32 | static_cast<uint32_t>(rule);
    std::vector<ParserPlace> places;
    uint64_t least = shortest_none;

    if (start < 0)
        return 0;
    const auto [found, is_new] = known.emplace(key, shortest_none); /* a circle is no way out */
    if (!is_new)
        return found->second;
    xgrammar::parser_work::LookAtWaiting(matcher, start, rule, &places);
    for (const ParserPlace &place : places) {
        if (place.rule < 0)
            continue;
        const uint64_t rest =
            std::get<0>(rest_of(grammar, of_rule, distances_of(place.rule), place, rule));
        const uint64_t len =
            rest == shortest_none ? rest : add(rest, behind(matcher, place.rule, place.start));

        least = len < least ? len : least;
    }
    return known[key] = least;
}

/* Writes a shortest way from the state to its rule's end. */
bool Ending::put_rule(int32_t rule, int32_t state, int32_t n_repeats, int depth)
{
    const auto &fsm = grammar.ImplPtr()->per_rule_fsms[static_cast<size_t>(rule)]->GetFsm();
    const Distances &all = distances_of(rule);

    if (depth == max_depth)
        return false;
    for (int n = 0; text.size() <= max_text && n < max_steps; n++) {
        const uint64_t here = distance_in(all, state);
        const FSMEdge *best = nullptr;

        if (here == shortest_none)
            return false;
        if (here == 0 && fsm.IsEndState(state))
            return true;
        for (const auto &edge : fsm.GetFsm().GetEdges(state)) {
            const uint64_t len = shortest_of(edge, grammar, of_rule);

            /* ways of no bytes could lead in a circle: only a nearer state, or an end */
            if (add(len, distance_in(all, edge.target)) == here && (len > 0 || best == nullptr) &&
                (best == nullptr || (edge.IsCharRange() && best->IsCharRange() &&
                                     std::string(".0na").find(byte_of(edge)) <
                                         std::string(".0na").find(byte_of(*best)))))
                best = &edge;
        }
        if (best == nullptr)
            return false;
        if (best->IsCharRange()) {
            text += byte_of(*best);
        } else if (best->IsRuleRef()) {
            const int32_t inner = best->GetRefRuleId();

            if (!put_rule(inner,
                          grammar.ImplPtr()
                              ->per_rule_fsms[static_cast<size_t>(inner)]
                              ->GetFsm()
                              .GetStart(),
                          0, depth + 1))
                return false;
        } else if (best->IsRepeatRef()) {
            const auto repeat =
                grammar.ImplPtr()->complete_fsm.GetRepeatEdgeInfo(best->GetAuxIndex());

            for (int32_t i = n_repeats; i < repeat.Lower() && text.size() <= max_text; i++)
                if (!put_rule(repeat.RuleId(),
                              grammar.ImplPtr()
                                  ->per_rule_fsms[static_cast<size_t>(repeat.RuleId())]
                                  ->GetFsm()
                                  .GetStart(),
                              0, depth + 1))
                    return false;
        }
        state = best->target;
        n_repeats = 0;
    }
    return false;
}

bool Ending::put_behind(const xgrammar::GrammarMatcher &matcher, int32_t rule, int32_t start)
{
    while (start >= 0) {
        const uint64_t least = behind(matcher, rule, start);
        std::vector<ParserPlace> places;
        bool is_put = false;

        if (least == shortest_none)
            return false;
        xgrammar::parser_work::LookAtWaiting(matcher, start, rule, &places);
        for (const ParserPlace &place : places) {
            if (place.rule < 0)
                continue;
            const auto [rest, state, n, repeated] =
                rest_of(grammar, of_rule, distances_of(place.rule), place, rule);

            if (rest == shortest_none ||
                add(rest, behind(matcher, place.rule, place.start)) != least)
                continue;
            for (int64_t i = 0; i < n; i++)
                if (text.size() > max_text ||
                    !put_rule(repeated,
                              grammar.ImplPtr()
                                  ->per_rule_fsms[static_cast<size_t>(repeated)]
                                  ->GetFsm()
                                  .GetStart(),
                              0, 0))
                    return false;
            if (!put_rule(place.rule, state, 0, 0))
                return false;
            rule = place.rule;
            start = place.start;
            is_put = true;
            break;
        }
        if (!is_put)
            return false;
    }
    return true;
}

bool Ending::find(const xgrammar::GrammarMatcher &matcher, size_t max_bytes, std::string *out)
{
    std::vector<ParserPlace> places;
    const ParserPlace *best = nullptr;
    uint64_t least = shortest_none;

    known.clear();
    text.clear();
    max_text = max_bytes;
    xgrammar::parser_work::LookAtLatest(matcher, &places);
    for (const ParserPlace &place : places) {
        if (place.rule < 0)
            continue;
        const uint64_t rest = distance_in(distances_of(place.rule), place.state);
        const uint64_t len =
            rest == shortest_none ? rest : add(rest, behind(matcher, place.rule, place.start));

        if (len < least) {
            least = len;
            best = &place;
        }
    }
    if (best == nullptr || least > max_bytes || !put_rule(best->rule, best->state, 0, 0) ||
        !put_behind(matcher, best->rule, best->start) || text.size() > max_bytes)
        return false;
    *out = text;
    return true;
}
