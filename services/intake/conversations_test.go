package intake

import (
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/storage"
)

// TestConversationsOfOutsiders: a turn says of its conversation what the run's rules say, and what
// the turn before it says; and the end of an episode trains on nothing that its turns mask.
func TestConversationsOfOutsiders(t *testing.T) {
	var cfg runfile.RunConfig
	cfg.Conversations = []runfile.ConversationRule{{Name: "titles", System: "title", Train: new(false)},
		{Name: "sages", Model: "sage", Train: new(true)},
		{Name: "small", Model: "haiku", Train: new(false),
			Endpoint: &runfile.Endpoint{URL: "http://b/v1", Model: "small-1"}}}
	main, title := &events.Conversation{Tree: runfile.TreeMain},
		&events.Conversation{Tree: runfile.TreeBeside, Rule: "titles", Masked: true}
	r := &events.Rollout{Turns: []events.TurnSampled{
		{NewSegment: true, Conversation: main, TokenIDs: []int32{1}},
		{Turn: 1, NewSegment: true, Conversation: title, TokenIDs: []int32{2, 3}},
	}}
	for name, c := range map[string]struct {
		is    *events.Conversation
		after int // -1: nothing
		bare  bool
		want  string
	}{
		"no rule takes it":   {main, -1, false, ""},
		"masked":             {title, -1, false, ""},
		"goes on":            {title, 1, false, ""},
		"a rule that trains": {&events.Conversation{Tree: runfile.TreeMain, Rule: "sages"}, -1, false, ""},
		"without a word":     {nil, -1, false, "say which one the turn is of"},
		"another tree":       {&events.Conversation{Tree: "left"}, -1, false, `conversation.tree "left"`},
		"another rule": {&events.Conversation{Tree: runfile.TreeMain, Rule: "tiny"}, -1, false,
			`conversation.rule "tiny"`},
		"masked by no rule": {&events.Conversation{Tree: runfile.TreeMain, Masked: true}, -1, false,
			`conversation.rule ""`},
		"masked by one that is not": {&events.Conversation{Tree: runfile.TreeMain, Rule: "sages", Masked: true}, -1,
			false, "rule sages of the run says train: true"},
		"trained on all the same": {&events.Conversation{Tree: runfile.TreeMain, Rule: "titles"}, -1, false,
			"rule titles of the run says train: false"},
		"goes on otherwise":  {main, 1, false, "turn 1, with which it goes on, has another one"},
		"no run with rules":  {main, -1, true, "the run's file has no conversations"},
		"none, and no rules": {nil, -1, true, ""},
	} {
		at, p := cfg, &events.TurnSampled{Conversation: c.is}
		if c.after >= 0 {
			p.After = &c.after
		}
		if c.bare {
			at.Conversations = nil
		}
		if err := admitConversation(at, r, p); c.want == "" && err != nil ||
			c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}

	small := func(model string) *events.Conversation {
		return &events.Conversation{Tree: runfile.TreeBeside, Rule: "small", Masked: true, Model: model}
	}
	for name, c := range map[string]struct {
		turn events.TurnSampled
		want string
	}{
		"another model": {events.TurnSampled{Conversation: small("small-1"), TextOnly: true,
			PolicyVersion: -1}, ""},
		"not by whom": {events.TurnSampled{Conversation: small(""), TextOnly: true, PolicyVersion: -1},
			`conversation.model "": by the rules of the run small-1 answers it`},
		"by a third one": {events.TurnSampled{Conversation: small("large"), TextOnly: true, PolicyVersion: -1},
			`conversation.model "large"`},
		"where no rule says so": {events.TurnSampled{Conversation: &events.Conversation{Tree: runfile.TreeMain,
			Model: "small-1"}, TextOnly: true, PolicyVersion: -1}, "the policy answers it"},
		"with tokens": {events.TurnSampled{Conversation: small("small-1"), TokenIDs: []int32{1},
			PolicyVersion: -1}, "text_only"},
		"with those of a prompt": {events.TurnSampled{Conversation: small("small-1"), TextOnly: true,
			PromptDelta: []int32{1}, PolicyVersion: -1}, "text_only"},
		"of the policy's version": {events.TurnSampled{Conversation: small("small-1"), TextOnly: true,
			PolicyVersion: 3}, "policy_version 3"},
	} {
		if err := admitConversation(cfg, r, &c.turn); c.want == "" && err != nil ||
			c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}

	row := func(turn int32) storage.Message {
		return storage.Message{Role: "assistant", Turn: turn, Segment: turn, PolicyVersion: 1 - int64(turn)}
	}
	for name, c := range map[string]struct {
		turns  []events.TurnSampled
		masked map[int32]string
		stated map[string]int
		want   string
	}{
		"as the turns say": {r.Turns, map[int32]string{1: "titles"}, map[string]int{"titles": 2}, ""},
		"nothing is masked": {r.Turns, nil, map[string]int{"titles": 2},
			`message 1 is masked by rule "", but turn 1 by rule "titles"`},
		"all is masked": {r.Turns, map[int32]string{0: "titles", 1: "titles"}, map[string]int{"titles": 2},
			`message 0 is masked by rule "titles"`},
		"by another rule": {r.Turns, map[int32]string{1: "small"}, map[string]int{"titles": 2},
			`masked by rule "small"`},
		"other figures": {r.Turns, map[int32]string{1: "titles"}, nil,
			"masked: the rollout's turns have map[titles:2]"},
		"without turns":        {nil, nil, nil, "its rollouts state their turns"},
		"masked without turns": {nil, map[int32]string{1: "titles"}, nil, "its rollouts state their turns"},
	} {
		tr := &storage.Trajectory{Masked: c.masked, DispatchVersion: 2, Messages: []storage.Message{row(0), row(1)}}
		err := sameMasks(cfg, tr, &events.Rollout{Turns: c.turns},
			&events.RolloutFinished{Sampled: 1, Masked: c.stated})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("an end, %s: %v, want %q", name, err, c.want)
		}
	}
}
