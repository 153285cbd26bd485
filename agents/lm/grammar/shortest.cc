/* Knuth's generalization of Dijkstra's algorithm. A place is a state of a rule's automaton; its
 * distance is the shortest text from the rule's start to there. A reference to a rule is as long as
 * the rule's own shortest text, so it is followed when that is known. Places come by their
 * distance, so the first end that comes of a rule is its shortest text; rules whose end never comes
 * have none. Each edge is followed once. */
#include "agents/lm/grammar/shortest.h"

#include <grammar_impl.h>

#include <queue>
#include <unordered_map>
#include <vector>

namespace
{

struct Place {
    uint64_t distance;
    int32_t rule, state;
    bool operator>(const Place &other) const
    {
        return distance > other.distance;
    }
};

/* A reference to a rule that has to be followed n times. */
struct Reference {
    uint64_t distance; /* where it begins */
    int32_t rule, target, n;
};

uint64_t saturating_add(uint64_t a, uint64_t b)
{
    return a >= shortest_none - 1 - b ? shortest_none - 1 : a + b;
}

uint64_t saturating_times(uint64_t a, uint64_t n)
{
    return n != 0 && a > (shortest_none - 1) / n ? shortest_none - 1 : a * n;
}

class Shortest
{
  public:
    explicit Shortest(const xgrammar::Grammar::Impl &grammar)
        : grammar(grammar), of_rule(grammar.per_rule_fsms.size(), shortest_none),
          waiting(of_rule.size()), seen(of_rule.size())
    {
    }

    /* Up to that of this rule, or of all for -1. */
    const std::vector<uint64_t> &find(int32_t last)
    {
        for (size_t i = 0; i < of_rule.size(); i++)
            reach(static_cast<int32_t>(i), grammar.per_rule_fsms[i]->GetFsm().GetStart(), 0);
        while (!places.empty() &&
               (last < 0 || of_rule[static_cast<size_t>(last)] == shortest_none)) {
            const Place at = places.top();

            places.pop();
            if (seen[static_cast<size_t>(at.rule)][at.state] == at.distance)
                follow(at);
        }
        return of_rule;
    }

  private:
    void reach(int32_t rule, int32_t state, uint64_t distance)
    {
        auto found = seen[static_cast<size_t>(rule)].emplace(state, distance);

        if (!found.second && found.first->second <= distance)
            return;
        found.first->second = distance;
        places.push({distance, rule, state});
    }

    void follow(const Place &at)
    {
        const auto &fsm = grammar.per_rule_fsms[static_cast<size_t>(at.rule)]->GetFsm();

        if (fsm.IsEndState(at.state) && of_rule[static_cast<size_t>(at.rule)] == shortest_none)
            end(at.rule, at.distance);
        for (const auto &edge : fsm.GetFsm().GetEdges(at.state)) {
            if (edge.IsRuleRef()) {
                refer(edge.GetRefRuleId(), {at.distance, at.rule, edge.target, 1});
            } else if (edge.IsRepeatRef()) {
                const auto repeat = grammar.complete_fsm.GetRepeatEdgeInfo(edge.GetAuxIndex());

                refer(repeat.RuleId(), {at.distance, at.rule, edge.target, repeat.Lower()});
            } else if (!edge.IsEOS()) {
                reach(at.rule, edge.target, saturating_add(at.distance, edge.IsEpsilon() ? 0 : 1));
            }
        }
    }

    void refer(int32_t rule, const Reference &r)
    {
        if (r.n <= 0)
            reach(r.rule, r.target, r.distance);
        else if (of_rule[static_cast<size_t>(rule)] != shortest_none)
            pass(r, of_rule[static_cast<size_t>(rule)]);
        else
            waiting[static_cast<size_t>(rule)].push_back(r);
    }

    void pass(const Reference &r, uint64_t len)
    {
        reach(r.rule, r.target,
              saturating_add(r.distance, saturating_times(len, static_cast<uint64_t>(r.n))));
    }

    void end(int32_t rule, uint64_t distance)
    {
        of_rule[static_cast<size_t>(rule)] = distance;
        for (const Reference &r : waiting[static_cast<size_t>(rule)])
            pass(r, distance);
        waiting[static_cast<size_t>(rule)].clear();
    }

    const xgrammar::Grammar::Impl &grammar;
    std::vector<uint64_t> of_rule;
    std::vector<std::vector<Reference>> waiting; /* for a rule's shortest text */
    std::vector<std::unordered_map<int32_t, uint64_t>> seen;
    std::priority_queue<Place, std::vector<Place>, std::greater<Place>> places;
};

} // namespace

uint64_t shortest_text(const xgrammar::Grammar &grammar)
{
    const int32_t root = grammar.ImplPtr()->GetRootRuleId();

    return Shortest(*grammar.ImplPtr()).find(root)[static_cast<size_t>(root)];
}

std::vector<uint64_t> shortest_texts(const xgrammar::Grammar &grammar)
{
    return Shortest(*grammar.ImplPtr()).find(-1);
}
