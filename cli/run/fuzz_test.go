package run

import (
	"testing"

	"github.com/rondo-rl/rondo/books"
	"github.com/rondo-rl/rondo/events"
)

// Whatever is read as conditions can be asked.
func FuzzWhere(f *testing.F) {
	for _, seed := range []string{"task=fix-*,reward>=0.9", "before=3,after=1", "rollout!=[a-]", "reward<=", "=",
		"turns>1e9", "task=\\"} {
		f.Add(seed)
	}
	f.Fuzz(func(_ *testing.T, where string) {
		conditions, err := parseWhere(where)
		if err != nil {
			return
		}
		for _, c := range conditions {
			c(books.Rollout{})
			c(books.Rollout{ID: "g000001-0", Task: "fix-a", Progress: events.Progress{Scored: true}, Reward: 1})
		}
	})
}
