package audit

import (
	"fmt"
	"slices"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/storage"
)

// conversation checks what a turn says of its conversation against the run's rules and the turn
// that it goes on with, and notes what is not trained on.
func (c *Checker) conversation(r *rolloutState, turn events.TurnSampled) error {
	rules := c.books.Config.Conversations
	if len(rules) == 0 {
		if turn.Conversation != nil {
			return fmt.Errorf("turn %d has a conversation, but the run has no rules of them", turn.Turn)
		}
		return nil
	}
	is := turn.Conversation
	if is == nil {
		return fmt.Errorf("turn %d does not say which rule of the run takes its conversation", turn.Turn)
	}
	if r.talks == nil {
		r.talks = map[int]talk{}
	}
	r.talks[turn.Turn] = talk{*is, len(turn.TokenIDs)}
	if after := turn.After; after != nil && r.talks[*after].Conversation != *is {
		return fmt.Errorf("turn %d goes on with turn %d in another conversation: %+v", turn.Turn, *after, *is)
	}
	i := slices.IndexFunc(rules, func(rule runfile.ConversationRule) bool { return rule.Name == is.Rule })
	if i < 0 && (is.Rule != "" || is.Masked) || i >= 0 && rules[i].Masks() != is.Masked {
		return fmt.Errorf("turn %d: rule %q of the run does not say masked %t", turn.Turn, is.Rule, is.Masked)
	}
	if err := turn.CheckAnswered(c.books.Config.AnsweredBy(is.Rule)); err != nil {
		return fmt.Errorf("turn %d: %w", turn.Turn, err)
	}
	return nil
}

// talk is the conversation of a turn, which sampled so many tokens.
type talk struct {
	events.Conversation
	tokens int
}

// maskedTokens are the sampled tokens of an episode that are not trained on, by rule.
func (r *rolloutState) maskedTokens(finished events.RolloutFinished) (tokens map[string]int) {
	for turn, t := range r.talks {
		if !t.Masked || finished.TextOnly || t.tokens == 0 || slices.Contains(r.left, turn) {
			continue
		}
		if tokens == nil {
			tokens = map[string]int{}
		}
		tokens[t.Rule] += t.tokens
	}
	return tokens
}

// maskedIn finds a turn that is not trained on in a row of a batch.
func (r *rolloutState) maskedIn(row storage.Sample) (rule string, found bool) {
	for _, span := range row.Turns {
		if t := r.talks[int(span.Turn)]; t.Masked {
			return t.Rule, true
		}
	}
	return "", false
}
