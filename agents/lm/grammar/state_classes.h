/* Which states of an automaton go on alike for as many bytes as a token may have: the tokens that
 * may come are the same there, so the engine's compiler finds them once. Where an automaton counts,
 * only the last states before a bound differ. C++, for the engine. */
#ifndef AGENTS_LM_GRAMMAR_STATE_CLASSES_H
#define AGENTS_LM_GRAMMAR_STATE_CLASSES_H

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include <fsm.h>

namespace xgrammar
{

class StateClasses
{
  public:
    /* For each of the states the first one of its class, itself if it has no other. An automaton
     * that refers to rules has classes of one state. */
    static std::unordered_map<int, int> Find(const CompactFSMWithStartEnd &rule,
                                             const std::unordered_set<int> &states, size_t n_bytes)
    {
        std::vector<int> all(states.begin(), states.end());
        std::unordered_map<int, int32_t> index;
        std::unordered_map<int, int> first;
        std::vector<int32_t> classes(all.size());
        bool is_plain = all.size() >= MIN_STATES;
        size_t n_classes = 0;

        std::sort(all.begin(), all.end());
        for (size_t i = 0; is_plain && i < all.size(); i++) {
            index[all[i]] = static_cast<int32_t>(i);
            for (const auto &edge : rule.GetFsm().GetEdges(all[i]))
                is_plain = is_plain && edge.IsCharRange();
            classes[i] = rule.IsEndState(all[i]);
        }
        for (size_t round = 0; is_plain && round < n_bytes; round++) {
            const size_t n = Refine(rule, all, index, &classes);

            if (n == n_classes)
                break;
            n_classes = n;
        }
        std::unordered_map<int32_t, int> of_class;
        for (size_t i = 0; i < all.size(); i++)
            first[all[i]] = is_plain ? of_class.emplace(classes[i], all[i]).first->second : all[i];
        return first;
    }

  private:
    enum { MIN_STATES = 16 }; /* fewer are not worth it */

    /* Tells apart, within each class, states whose edges lead to other classes. */
    static size_t Refine(const CompactFSMWithStartEnd &rule, const std::vector<int> &all,
                         const std::unordered_map<int, int32_t> &index,
                         std::vector<int32_t> *classes)
    {
        std::map<std::vector<int32_t>, int32_t> known;
        std::vector<int32_t> next(all.size()), key;

        for (size_t i = 0; i < all.size(); i++) {
            key.assign(1, (*classes)[i]);
            for (const auto &edge : rule.GetFsm().GetEdges(all[i])) {
                const int32_t target = (*classes)[static_cast<size_t>(index.at(edge.target))];

                key.insert(key.end(), {edge.min, edge.max, target});
            }
            next[i] = known.emplace(key, static_cast<int32_t>(known.size())).first->second;
        }
        *classes = std::move(next);
        return known.size();
    }
};

} // namespace xgrammar

#endif
