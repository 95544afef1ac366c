package audit

import (
	"testing"

	"github.com/rondo-rl/rondo/events"
)

// TestObserved: an environment opens once, and answers each turn once, with the calls
// that the turn asked for.
func TestObserved(t *testing.T) {
	turn := func(n int, calls ...string) events.TurnSampled {
		sampled := events.TurnSampled{Turn: n}
		for _, id := range calls {
			sampled.ToolCalls = append(sampled.ToolCalls, events.ToolCall{ID: id})
		}
		return sampled
	}
	said := func(n int, calls ...string) events.RolloutObserved {
		o := events.RolloutObserved{Turn: n}
		for _, id := range calls {
			o.Messages = append(o.Messages, events.Observation{Role: "tool", ToolCallID: id})
		}
		return o
	}
	for name, c := range map[string]struct {
		words []any
		wrong bool
	}{
		"in order":        {[]any{said(-1), turn(0, "c"), said(0, "c"), turn(1), said(1)}, false},
		"done in a call":  {[]any{said(-1), turn(0, "c"), events.RolloutObserved{Done: true}}, false},
		"opened twice":    {[]any{said(-1), said(-1)}, true},
		"answered twice":  {[]any{said(-1), turn(0), said(0), said(0)}, true},
		"never opened":    {[]any{turn(0), said(0)}, true},
		"another turn":    {[]any{said(-1), turn(0), said(1)}, true},
		"another call":    {[]any{said(-1), turn(0, "c"), said(0, "d")}, true},
		"call unanswered": {[]any{said(-1), turn(0, "c"), said(0)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := &rolloutState{}
			var err error
			for _, w := range c.words {
				switch w := w.(type) {
				case events.TurnSampled:
					err = r.sampled(w, false)
				case events.RolloutObserved:
					err = r.observed(w)
				}
			}
			if (err != nil) != c.wrong {
				t.Error(err)
			}
		})
	}
}
