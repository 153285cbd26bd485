/* Writes a compiled grammar as the rules, the automata and the masks, each with its length before
 * it. The reader checks every index against these lengths, because the bytes come from another
 * process. */
#include "agents/lm/grammar/compiled_bytes.h"

#include <compiled_grammar_impl.h>
#include <grammar_impl.h>
#include <tokenizer_info_impl.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <tuple>
#include <vector>

using xgrammar::AdaptiveTokenMask;
using xgrammar::CompactFSM;
using xgrammar::DynamicBitset;
using xgrammar::FSMEdge;
using xgrammar::Grammar;
using Ints = std::vector<int32_t>;

namespace
{

constexpr uint32_t magic = 0x31475043;

/* The members of the engine's grammar, some of them private: in the order of its own table. */
enum { RULES, SUFFIXES, DATA, STARTS, ROOT, FSM, FSMS, EMPTY, OPTIMIZED, N_MEMBERS };

using Members = xgrammar::member_functor<Grammar::Impl>;
static_assert(Members::member_count == N_MEMBERS, "the engine's grammar has other members");

template <int which> auto &member(Grammar::Impl &g)
{
    return g.*std::get<which>(Members::members);
}

void check(bool is_right, const char *what)
{
    if (!is_right)
        throw compiled_bytes_wrong{what};
}

bool is_index(int64_t i, size_t n)
{
    return i >= 0 && static_cast<uint64_t>(i) < n;
}

/* --- writing --- */

struct Writer {
    std::string bytes;

    void number(int64_t n)
    {
        const int32_t value = static_cast<int32_t>(n);

        bytes.append(reinterpret_cast<const char *>(&value), sizeof(value));
    }
    void ints(const int32_t *all, size_t n)
    {
        number(static_cast<int64_t>(n));
        bytes.append(reinterpret_cast<const char *>(all), n * sizeof(*all));
    }
    void ints(const Ints &all)
    {
        ints(all.data(), all.size());
    }
};

void save_rules(Writer *w, Grammar::Impl &g)
{
    check(member<SUFFIXES>(g).empty(), "a rule ends with a marker");
    w->number(static_cast<int64_t>(member<RULES>(g).size()));
    for (const auto &rule : member<RULES>(g)) {
        check(rule.max_tokens < 0 && rule.max_chars < 0 && rule.capture_name.empty() &&
                  !rule.temperature.has_value(),
              "a rule has attributes");
        w->number(rule.body_expr_id);
        w->number(rule.lookahead_assertion_id);
        w->number(rule.is_exact_lookahead);
        w->number(rule.is_lazy);
    }
    w->number(member<ROOT>(g));
    w->ints(member<EMPTY>(g));
    w->ints(member<DATA>(g));
    w->ints(member<STARTS>(g));
}

void save_automata(Writer *w, Grammar::Impl &g)
{
    const CompactFSM &fsm = member<FSM>(g);

    w->number(fsm.NumStates());
    for (int state = 0; state < fsm.NumStates(); state++) {
        w->number(fsm.GetEdges(state).size());
        for (const FSMEdge &edge : fsm.GetEdges(state)) {
            w->number(edge.min);
            w->number(edge.max);
            w->number(edge.target);
        }
    }
    w->ints(fsm.GetEdgeAuxData());
    for (const auto &of_rule : member<FSMS>(g)) {
        check(of_rule.has_value() && of_rule->GetFsm().GetFsm().ImplPtr() == fsm.ImplPtr(),
              "a rule has an automaton of its own");
        w->number(of_rule->GetFsm().GetStart());
        w->ints(of_rule->GetFsm().GetEnds());
        w->number(of_rule->GetEdgeNum());
        w->number(of_rule->GetNodeNum());
    }
}

void save_mask(Writer *w, const AdaptiveTokenMask &mask)
{
    const int n_bits = mask.accepted_bitset.Size();
    std::vector<uint32_t> words(static_cast<size_t>(DynamicBitset::GetBufferSize(n_bits)));

    w->number(static_cast<int64_t>(mask.store_type));
    w->ints(mask.accepted_indices);
    w->ints(mask.rejected_indices);
    w->ints(mask.uncertain_indices);
    w->number(n_bits);
    if (n_bits > 0)
        DynamicBitset(n_bits, words.data()) = mask.accepted_bitset;
    w->bytes.append(reinterpret_cast<const char *>(words.data()), words.size() * sizeof(words[0]));
}

/* --- reading --- */

struct Reader {
    const char *at;
    size_t left;

    const char *take(size_t n)
    {
        const char *taken = at;

        check(n <= left, "the bytes are cut");
        at += n;
        left -= n;
        return taken;
    }
    int32_t number()
    {
        int32_t value;

        std::memcpy(&value, take(sizeof(value)), sizeof(value));
        return value;
    }
    /* Of things that take at least so many bytes each. */
    size_t count(size_t size_bytes)
    {
        const int32_t n = number();

        check(n >= 0 && static_cast<size_t>(n) <= left / size_bytes, "a count is too large");
        return static_cast<size_t>(n);
    }
    Ints ints()
    {
        Ints all(count(sizeof(all[0])));

        if (!all.empty())
            std::memcpy(all.data(), take(all.size() * sizeof(all[0])), all.size() * sizeof(all[0]));
        return all;
    }
    /* Ascending, each an index of n. */
    Ints indices(size_t n)
    {
        Ints all = ints();

        check(all.empty() || (is_index(all.front(), n) && is_index(all.back(), n)),
              "an index is out of range");
        check(std::adjacent_find(all.begin(), all.end(), std::greater_equal<int32_t>()) ==
                  all.end(),
              "indices are not in order");
        return all;
    }
};

void load_rules(Reader *r, Grammar::Impl &g)
{
    const size_t n = r->count(4 * sizeof(int32_t));

    for (size_t i = 0; i < n; i++) {
        Grammar::Impl::Rule rule = {};

        rule.body_expr_id = r->number();
        rule.lookahead_assertion_id = r->number();
        rule.is_exact_lookahead = r->number() != 0;
        rule.is_lazy = r->number() != 0;
        member<RULES>(g).push_back(rule);
    }
    member<ROOT>(g) = r->number();
    check(is_index(member<ROOT>(g), n), "the root is no rule");
    member<EMPTY>(g) = r->ints();
    for (int32_t rule : member<EMPTY>(g))
        check(is_index(rule, n), "an empty rule is no rule");
    member<DATA>(g) = r->ints();
    member<STARTS>(g) = r->ints();

    const Ints &data = member<DATA>(g);
    for (int32_t start : member<STARTS>(g))
        check(is_index(start, data.size()) && is_index(int64_t{start} + 1, data.size()) &&
                  data[static_cast<size_t>(start) + 1] >= 0 &&
                  int64_t{start} + 2 + data[static_cast<size_t>(start) + 1] <=
                      static_cast<int64_t>(data.size()),
              "an expression is cut");
    for (const auto &rule : member<RULES>(g))
        check(is_index(rule.body_expr_id, member<STARTS>(g).size()), "a rule has no body");
}

void check_edge(const FSMEdge &edge, size_t n_states, size_t n_rules, const Ints &aux)
{
    check(is_index(edge.target, n_states), "an edge leads nowhere");
    if (edge.IsCharRange()) {
        check(edge.min <= edge.max && edge.max <= FSMEdge::kMaxChar, "an edge has no bytes");
    } else if (edge.IsRuleRef()) {
        check(is_index(edge.max, n_rules), "an edge refers to no rule");
    } else if (edge.IsRepeatRef()) {
        check(is_index(edge.max, aux.size()) && is_index(int64_t{edge.max} + 2, aux.size()),
              "a repetition is cut");
        check(is_index(aux[static_cast<size_t>(edge.max)], n_rules), "a repetition has no rule");
    } else if (edge.IsToken() || edge.IsExcludeToken()) {
        check(is_index(edge.max, aux.size()) && aux[static_cast<size_t>(edge.max)] >= 0 &&
                  int64_t{edge.max} + aux[static_cast<size_t>(edge.max)] <
                      static_cast<int64_t>(aux.size()),
              "a set of tokens is cut");
    } else {
        check(edge.IsEpsilon() || edge.IsEOS(), "an edge is of no kind");
    }
}

void load_automata(Reader *r, Grammar::Impl &g)
{
    const size_t n_rules = member<RULES>(g).size(), n_states = r->count(sizeof(int32_t));
    xgrammar::Compact2DArray<FSMEdge> edges;
    std::vector<FSMEdge> row;

    for (size_t i = 0; i < n_states; i++) {
        row.resize(r->count(3 * sizeof(int32_t)));
        for (FSMEdge &edge : row) {
            edge.min = r->number();
            edge.max = r->number();
            edge.target = r->number();
        }
        edges.PushBack(row);
    }
    Ints aux = r->ints();
    for (int32_t i = 0; i < edges.size(); i++)
        for (const FSMEdge &edge : edges[i])
            check_edge(edge, n_states, n_rules, aux);
    member<FSM>(g) = CompactFSM(std::move(edges), std::move(aux));
    for (size_t i = 0; i < n_rules; i++) {
        const int32_t start = r->number();
        Ints ends = r->indices(n_states);
        const int32_t n_edges = r->number(), n_nodes = r->number();

        check(is_index(start, n_states), "a rule begins nowhere");
        member<FSMS>(g).emplace_back(xgrammar::CompactFSMWithStartEndWithSize(
            xgrammar::CompactFSMWithStartEnd(member<FSM>(g), start, std::move(ends)), n_edges,
            n_nodes));
    }
    member<OPTIMIZED>(g) = true;
}

AdaptiveTokenMask load_mask(Reader *r, const xgrammar::TokenizerInfo &vocab)
{
    const size_t n_sorted = vocab.GetSortedDecodedVocab().size();
    AdaptiveTokenMask mask;
    const int32_t kind = r->number();

    check(kind >= 0 && kind <= static_cast<int32_t>(AdaptiveTokenMask::StoreType::kAcceptedBitset),
          "a mask is of no kind");
    mask.store_type = static_cast<AdaptiveTokenMask::StoreType>(kind);
    mask.accepted_indices = r->indices(n_sorted);
    mask.rejected_indices = r->indices(n_sorted);
    mask.uncertain_indices = r->indices(n_sorted);

    const int32_t n_bits = r->number();
    const bool has_bits = mask.store_type == AdaptiveTokenMask::StoreType::kAcceptedBitset;

    check(n_bits == (has_bits ? vocab.GetVocabSize() : 0), "a mask is of another vocabulary");
    if (has_bits) {
        std::vector<uint32_t> words(static_cast<size_t>(DynamicBitset::GetBufferSize(n_bits)));

        std::memcpy(words.data(), r->take(words.size() * sizeof(words[0])),
                    words.size() * sizeof(words[0]));
        const DynamicBitset outside(n_bits, words.data());

        mask.accepted_bitset = outside; /* a copy: moving it would leave the words outside */
    }
    return mask;
}

} // namespace

std::string compiled_bytes_save(const xgrammar::CompiledGrammar &compiled)
{
    Grammar grammar = compiled.GetGrammar();
    Writer w;

    w.number(magic);
    save_rules(&w, *grammar.ImplPtr());
    save_automata(&w, *grammar.ImplPtr());
    w.number(static_cast<int64_t>(compiled->adaptive_token_mask_cache.size()));
    for (const auto &[state, mask] : compiled->adaptive_token_mask_cache) {
        w.number(state.rule_id);
        w.number(state.sequence_id);
        w.number(state.element_id);
        w.number(state.sub_element_id);
        save_mask(&w, mask);
    }
    return std::move(w.bytes);
}

xgrammar::CompiledGrammar compiled_bytes_load(const char *bytes, size_t len,
                                              const xgrammar::TokenizerInfo &vocab)
{
    auto impl = std::make_shared<xgrammar::CompiledGrammar::Impl>();
    auto grammar = std::make_shared<Grammar::Impl>();
    Reader r = {bytes, len};

    check(static_cast<uint32_t>(r.number()) == magic, "they are no compiled constraint");
    load_rules(&r, *grammar);
    load_automata(&r, *grammar);
    for (size_t n = r.count(9 * sizeof(int32_t)); n > 0; n--) {
        const int32_t rule = r.number(), sequence = r.number(), element = r.number();
        const xgrammar::ParserState state(rule, sequence, element,
                                          xgrammar::ParserState::kNoPrevInputPos, -1, r.number());

        impl->adaptive_token_mask_cache.insert_or_assign(state, load_mask(&r, vocab));
    }
    check(r.left == 0, "there are more bytes");
    impl->grammar = Grammar(std::move(grammar));
    impl->tokenizer_info = vocab;
    return xgrammar::CompiledGrammar(std::move(impl));
}
