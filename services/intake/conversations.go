package intake

import (
	"maps"
	"slices"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/storage"
)

// admitConversation checks what a turn says of its conversation: it is as the run's rules are, and
// as in the turn that it goes on with.
func admitConversation(cfg runfile.RunConfig, r *events.Rollout, p *events.TurnSampled) error {
	is := p.Conversation
	switch {
	case len(cfg.Conversations) == 0 && is == nil:
		return nil
	case len(cfg.Conversations) == 0:
		return refuse("conversation: the run's file has no conversations")
	case is == nil:
		return refuse("conversation: the run has rules of conversations; say which one the turn is of, and which rule takes it")
	case !slices.Contains(runfile.Trees, is.Tree):
		return refuse("conversation.tree %.40q: must be one of %v", is.Tree, runfile.Trees)
	}
	if err := p.CheckAnswered(cfg.AnsweredBy(is.Rule)); err != nil {
		return refuse("%v", err)
	}
	switch {
	case p.After != nil:
		if before := r.Turns[*p.After].Conversation; before == nil || *before != *is {
			return refuse("conversation: turn %d, with which it goes on, has another one", *p.After)
		}
		return nil
	case is.Rule == "" && !is.Masked:
		return nil
	}
	i := slices.IndexFunc(cfg.Conversations, func(rule runfile.ConversationRule) bool { return rule.Name == is.Rule })
	if i < 0 {
		return refuse("conversation.rule %.80q: the run has no such rule", is.Rule)
	}
	if masks := cfg.Conversations[i].Masks(); masks != is.Masked {
		return refuse("conversation.masked %t: rule %s of the run says train: %t", is.Masked, is.Rule, !masks)
	}
	return nil
}

// sameMasks refuses an end whose trajectory trains on other conversations than its turns say.
func sameMasks(cfg runfile.RunConfig, t *storage.Trajectory, r *events.Rollout, p *events.RolloutFinished) error {
	if len(cfg.Conversations) > 0 && len(r.Turns) == 0 && p.Sampled > 0 {
		return refuse("turns: the run has rules of conversations, so its rollouts state their turns")
	}
	var want map[string]int
	if !t.TextOnly {
		want = events.MaskedTokens(r.Turns)
	}
	if !maps.Equal(p.Masked, want) {
		return refuse("masked: the rollout's turns have %v", want)
	}
	for i, m := range t.Messages {
		turn, rule := int(m.Turn), ""
		if turn < len(r.Turns) {
			rule = r.Turns[turn].MaskedBy()
		}
		if t.Masked[m.Segment] != rule {
			return refuse("trajectory: message %d is masked by rule %.80q, but turn %d by rule %.80q", i,
				t.Masked[m.Segment], turn, rule)
		}
	}
	return nil
}
