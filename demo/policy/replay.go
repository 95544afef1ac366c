package policy

import "math"

// decision is one decision of a recorded conversation: what there was to choose
// from, and what was chosen.
type decision struct {
	candidates []candidate
	chosen     int
	token      int  // index of its action token in the sample
	undone     bool // it decided on a change that did not stay
}

// replay recomputes the decisions of a token sequence, from the tokens alone. Answers for which
// mine is false at an action token are only folded. unknown counts action tokens that none of the
// candidates has: another version of the policy, or another policy altogether, made them.
func replay(tokens []int32, mine []bool) (decisions []decision, unknown int, err error) {
	tools, messages, err := parse(tokens)
	if err != nil {
		return nil, 0, err
	}
	s := newState(tools)
	var changes []uint64
	for i := range messages {
		m := &messages[i]
		if m.Role == "assistant" {
			if len(m.actions) > 0 && mine[m.actions[0]] {
				r := replayer{tokens: tokens, actions: m.actions}
				t, _ := s.answer(r.choose, math.MaxInt)
				decisions = append(decisions, r.decisions...)
				changes = append(changes, t.change...)
				unknown += len(m.actions) - len(r.decisions)
			}
		}
		s.observe(&m.Message)
	}
	s.keep()
	stayed := map[uint64]bool{0: true}
	for i := range s.tries {
		stayed[s.tries[i].key] = s.tries[i].stayed
	}
	for i := range decisions {
		decisions[i].undone = !stayed[changes[i]]
	}
	return decisions, unknown, nil
}

// replayer is the chooser that picks what the action tokens say.
type replayer struct {
	tokens    []int32
	actions   []int
	decisions []decision
}

func (r *replayer) choose(candidates []candidate) int {
	if len(r.decisions) == len(r.actions) {
		return -1
	}
	at := r.actions[len(r.decisions)]
	for i := range candidates {
		if actionToken(candidates[i].text) == r.tokens[at] {
			r.decisions = append(r.decisions, decision{candidates: candidates, chosen: i, token: at})
			return i
		}
	}
	return -1
}
