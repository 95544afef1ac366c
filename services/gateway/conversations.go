package gateway

import (
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
)

// conversation is what the run's rules say of that of a request, whose place is known; nil where
// there are none. It is judged once: a request that goes on with a turn takes over what that has.
// gone are turns to which an agent that was started anew has not come.
func (r *rollout) conversation(a *ask, gone []int) *events.Conversation {
	switch {
	case len(r.cfg.Conversations) == 0:
		return nil
	case a.after >= 0:
		return r.Turns[a.after].Conversation
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
	return &events.Conversation{Tree: tree, Rule: rule.Name, Masked: rule.Masks(), Model: r.cfg.AnsweredBy(rule.Name)}
}

// choose chooses who answers a request whose place is known: the run's own servers, as the run
// samples, or the one that the rule of its conversation names, as the client wishes.
func (a *ask) choose(r *rollout, gone []int) error {
	a.cfg, a.server = &r.cfg, r.answering(a, gone)
	if a.server == nil {
		return nil
	}
	cfg := r.cfg.AskedOf(*a.server)
	a.cfg = &cfg
	wishes := cfg.Sampling
	if t, ok := a.requested["temperature"].(float64); ok {
		wishes.Temperature = t
	}
	return a.chooseSampling(wishes)
}

// answering is the server that answers a request by the rules of the run, nil for the run's own.
func (r *rollout) answering(a *ask, gone []int) *runfile.Endpoint {
	if is := r.conversation(a, gone); is != nil {
		return r.cfg.Answering(is.Rule)
	}
	return nil
}

// errMoved refuses an answer of a model that does not answer its conversation any more: which one
// is the main one was decided while it was sampled.
var errMoved = &refusal{status: http.StatusServiceUnavailable, code: "conversation_moved", after: time.Second,
	message: "another conversation of the rollout began meanwhile, and by the rules of the run another model answers this one: try again"}

// moved reports whether another server answers a request by now.
func (r *rollout) moved(a *ask, gone []int) bool {
	now := r.answering(a, gone)
	return (now == nil) != (a.server == nil) || now != nil && *now != *a.server
}

// asText leaves out of a turn what another model than the policy says of its tokens.
func asText(turn *events.TurnSampled) {
	turn.TextOnly, turn.TokenIDs, turn.Logprobs, turn.Columns = true, nil, nil, nil
	turn.PolicyVersion, turn.VersionSpans = runfile.UnknownVersion, nil
	turn.Lacks = slices.DeleteFunc(turn.Lacks, func(what string) bool { return what != events.LackTools })
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
	answered := slices.ContainsFunc(a.Conversation, func(
		m events.PromptMessage) bool {
		return m.Role == roleAssistant
	})
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
