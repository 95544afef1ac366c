package gateway

import (
	"encoding/json"
	"slices"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
)

// conversation is what the run's rules say of that of a turn, which has its place; nil where there
// are none. It is judged once: a turn that goes on with another one takes over what that has. gone
// are turns to which an agent that was started anew has not come.
func (r *rollout) conversation(a *ask, turn *events.TurnSampled, gone []int) *events.Conversation {
	switch {
	case len(r.cfg.Conversations) == 0:
		return nil
	case turn.After != nil:
		return r.Turns[*turn.After].Conversation
	}
	tree, found := newTree(r.Turns).kin(a)
	if !found {
		tree = runfile.TreeMain
		for i, t := range r.Turns {
			if t.Conversation != nil && t.Conversation.Tree == runfile.TreeMain && !slices.Contains(gone, i) {
				tree = runfile.TreeBeside
			}
		}
	}
	var system []string
	for _, m := range lead(a.Conversation) {
		system = append(system, m.Content)
	}
	rule := r.cfg.ConversationRule(a.model(), system, tree)
	if rule == nil {
		return &events.Conversation{Tree: tree}
	}
	if !found && rule.Masks() && rule.Tree == "" {
		tree = runfile.TreeBeside // whichever comes first: the main one may come yet
	}
	return &events.Conversation{Tree: tree, Rule: rule.Name, Masked: rule.Masks()}
}

// kin is what an earlier conversation is in its rollout's tree, which a request takes up again
// without going on with a turn of it: it was compacted or changed, or is asked once more. One that
// begins with the same words behind another system prompt, or with other tools, and holds no
// answer, is a conversation of its own, as for a title.
func (t *tree) kin(a *ask) (tree string, found bool) {
	cause, of := t.beginning(a)
	if of < 0 || t.turns[of].Conversation == nil {
		return "", false
	}
	answered := slices.ContainsFunc(a.Conversation, func(m events.PromptMessage) bool { return m.Role == roleAssistant })
	if !answered && (cause == events.CauseSystem || cause == events.CauseTools) {
		return "", false
	}
	return t.turns[of].Conversation.Tree, true
}

// model is the name by which a request asks for its model, "" for none.
func (a *ask) model() string {
	var in struct {
		Model json.RawMessage `json:"model"`
	}
	var name string
	if json.Unmarshal(a.body, &in) != nil || json.Unmarshal(in.Model, &name) != nil {
		return ""
	}
	return name
}
