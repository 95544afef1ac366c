package policy

// decision is one decision of a recorded conversation: what there was to choose from, and what was chosen.
type decision struct {
	candidates []candidate
	chosen     int
	token      int // index of its action token in the sample
	turn       int // 0 for the first answer of the sample
}

// replay recomputes the decisions of a token sequence, from the tokens alone. Answers for which mine is false at an action token
// are only folded. unknown counts action tokens that none of the candidates has: another version of the policy, or another
// policy altogether, made them.
func replay(tokens []int32, mine []bool) (decisions []decision, turns, unknown int, err error) {
	tools, messages, err := parse(tokens)
	if err != nil {
		return nil, 0, 0, err
	}
	s := newState(tools)
	for i := range messages {
		m := &messages[i]
		if m.Role == "assistant" {
			if len(m.actions) > 0 && mine[m.actions[0]] {
				r := replayer{tokens: tokens, actions: m.actions, turn: turns}
				s.answer(r.choose)
				decisions = append(decisions, r.decisions...)
				unknown += len(m.actions) - len(r.decisions)
			}
			turns++
		}
		s.observe(&m.Message)
	}
	return decisions, turns, unknown, nil
}

// replayer is the chooser that picks what the action tokens say.
type replayer struct {
	tokens    []int32
	actions   []int
	turn      int
	decisions []decision
}

func (r *replayer) choose(candidates []candidate) int {
	if len(r.decisions) == len(r.actions) {
		return -1
	}
	at := r.actions[len(r.decisions)]
	for i := range candidates {
		if actionToken(candidates[i].text) == r.tokens[at] {
			r.decisions = append(r.decisions, decision{candidates, i, at, r.turn})
			return i
		}
	}
	return -1
}
