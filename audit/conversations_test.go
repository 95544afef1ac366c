package audit

import (
	"errors"
	"testing"

	"github.com/rondo-rl/rondo/books"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/storage"
)

// TestConversationsAreAudited: turns say of their conversations what the run's rules say, the end
// of the episode counts what they mask, and no row of a batch trains on it.
func TestConversationsAreAudited(t *testing.T) {
	rules := []runfile.ConversationRule{{Name: "titles", System: "title", Train: new(false)},
		{Name: "small", Model: "haiku", Train: new(false),
			Endpoint: &runfile.Endpoint{URL: "http://b/v1", Model: "small-1"}}}
	small := func(model string, tokens ...int32) []events.TurnSampled {
		return []events.TurnSampled{{TokenIDs: tokens, TextOnly: tokens == nil, PolicyVersion: -1,
			Conversation: &events.Conversation{Tree: runfile.TreeBeside, Rule: "small", Masked: true, Model: model}}}
	}
	main, title := &events.Conversation{Tree: runfile.TreeMain},
		&events.Conversation{Tree: runfile.TreeBeside, Rule: "titles", Masked: true}
	turn := func(n, after int, is *events.Conversation) events.TurnSampled {
		s := events.TurnSampled{Turn: n, TokenIDs: []int32{1, 2}, Conversation: is}
		if after >= 0 {
			s.After = &after
		}
		return s
	}
	good := []events.TurnSampled{turn(0, -1, main), turn(1, -1, title), turn(2, 0, main), turn(3, 1, title)}
	for name, c := range map[string]struct {
		rules  []runfile.ConversationRule
		turns  []events.TurnSampled
		left   []int
		masked map[string]int
		wrong  bool
	}{
		"as they are":        {rules, good, nil, map[string]int{"titles": 4}, false},
		"a turn is left":     {rules, good, []int{3}, map[string]int{"titles": 2}, false},
		"a left turn counts": {rules, good, []int{3}, map[string]int{"titles": 4}, true},
		"nothing is counted": {rules, good, nil, nil, true},
		"nothing is masked":  {rules, []events.TurnSampled{turn(0, -1, main)}, nil, nil, false},
		"goes on otherwise": {rules, []events.TurnSampled{turn(0, -1, main), turn(1, 0, title)}, nil,
			map[string]int{"titles": 2}, true},
		"no word of it": {rules, []events.TurnSampled{turn(0, -1, nil)}, nil, nil, true},
		"no word, then a mask": {rules, []events.TurnSampled{turn(0, -1, nil), turn(1, -1, title)}, nil,
			map[string]int{"titles": 2}, true},
		"another model":          {rules, small("small-1"), nil, nil, false},
		"a third model":          {rules, small("large"), nil, nil, true},
		"no model":               {rules, small(""), nil, nil, true},
		"another model's tokens": {rules, small("small-1", 1, 2), nil, map[string]int{"small": 2}, true},
		"a rule that is not": {rules, []events.TurnSampled{turn(0, -1, &events.Conversation{Rule: "tiny"})}, nil,
			nil, true},
		"masked by no rule": {rules, []events.TurnSampled{turn(0, -1, &events.Conversation{Masked: true})}, nil,
			map[string]int{"": 2}, true},
		"trained on by a rule": {rules, []events.TurnSampled{turn(0, -1, &events.Conversation{Rule: "titles"})}, nil,
			nil, true},
		"in a run without rules": {nil, []events.TurnSampled{turn(0, -1, main)}, nil, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			config := runfile.RunConfig{Conversations: c.rules}
			checker := &Checker{books: &books.Run{Rollouts: books.Rollouts{Config: config}}}
			r := &rolloutState{agent: true, left: c.left}
			state := func(typ events.Type, data any) error {
				e, err := events.New("r", typ, "g000001-0", "0", data)
				if err != nil {
					t.Fatal(err)
				}
				return checker.progress(r, e)
			}
			var err error
			for _, s := range c.turns { // what is wrong keeps the checker from nothing that comes later
				err = errors.Join(err, state(events.TurnSampledType, s))
			}
			err = errors.Join(err, state(events.RolloutFinishedType,
				events.RolloutFinished{Turns: len(c.turns) - len(c.left), Masked: c.masked}))
			if (err != nil) != c.wrong {
				t.Error(err)
			}
		})
	}
	r := &rolloutState{talks: map[int]talk{0: {*main, 2}, 1: {*title, 2}}}
	for n, want := range []string{"", "titles"} {
		if rule, is := r.maskedIn(storage.Sample{Turns: []storage.TurnSpan{{Turn: int32(n)}}}); rule != want ||
			is != (want != "") {
			t.Errorf("a row with turn %d is masked by %q, %t", n, rule, is)
		}
	}
}
