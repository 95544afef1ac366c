package audit

import (
	"testing"

	"github.com/rondo-rl/rondo/books"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
)

// TestMasks: the audit knows by itself which episodes must not be trained on.
func TestMasks(t *testing.T) {
	for name, c := range map[string]struct {
		episode events.RolloutFinished
		filters runfile.Filters
		want    string
	}{
		"finished": {events.RolloutFinished{StopReason: events.StopFinished, Sampled: 3},
			runfile.Filters{}, ""},
		"a call not read": {events.RolloutFinished{StopReason: events.StopUnread, Sampled: 3},
			runfile.Filters{}, "unread_call"},
		"an unknown end": {events.RolloutFinished{StopReason: events.StopUnknown, Sampled: 3},
			runfile.Filters{}, "unknown_finish"},
		"a refused prompt": {events.RolloutFinished{StopReason: events.StopRefused, Sampled: 3},
			runfile.Filters{}, "refused"},
		"cut, and trained on": {events.RolloutFinished{StopReason: events.StopLength, Sampled: 3}, runfile.Filters{},
			""},
		"cut": {events.RolloutFinished{StopReason: events.StopLength, Sampled: 3},
			runfile.Filters{Truncated: true}, "truncated"},
		"nothing was sampled": {events.RolloutFinished{StopReason: events.StopFinished, Tokens: 5},
			runfile.Filters{}, "no sampled tokens"},
		"all constrained": {events.RolloutFinished{StopReason: events.StopFinished, Sampled: 3, Constrained: 3},
			runfile.Filters{}, "constrained"},
		"some constrained": {events.RolloutFinished{StopReason: events.StopFinished, Sampled: 3, Constrained: 2},
			runfile.Filters{}, ""},
		"constrained by the run": {events.RolloutFinished{StopReason: events.StopFinished, Sampled: 3, Constrained: 3},
			runfile.Filters{TrainConstrained: true}, ""},
		"all masked": {events.RolloutFinished{StopReason: events.StopFinished,
			Masked: map[string]int{"titles": 3}}, runfile.Filters{}, "conversations"},
		"some masked": {events.RolloutFinished{StopReason: events.StopFinished, Sampled: 3,
			Masked: map[string]int{"titles": 3}}, runfile.Filters{}, ""},
	} {
		cfg := runfile.DefaultRunConfig()
		cfg.Filters = c.filters
		r := &rolloutState{episode: c.episode}
		if n := c.episode.Masked["titles"]; n > 0 {
			r.talks = map[int]talk{0: {events.Conversation{Rule: "titles", Masked: true}, n}}
		}
		checker := &Checker{books: &books.Run{Rollouts: books.Rollouts{Config: cfg}}}
		if got := checker.mask(runfile.Feed{}, events.Member{}, r, 1); got != c.want {
			t.Errorf("%s: masked as %q, want %q", name, got, c.want)
		}
	}
}
