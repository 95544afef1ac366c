package run

import (
	"fmt"
	"strings"

	"github.com/rondo-rl/rondo/books"
)

// forfeits counts the rollouts that have no verdict of their tests by their agents' doing.
// Many of one class may have a cause in the task or the machine, and all of them are
// trained on as a reward of 0.
type forfeits struct {
	Scored  int            `json:"scored"` // rollouts with a reward, forfeited ones among them
	Classes map[string]int `json:"classes"`
}

// forfeitsOf is nil for a run without any.
func forfeitsOf(l *books.Run) *forfeits {
	f := forfeits{Classes: map[string]int{}}
	for r := range l.All() {
		if r.Scored {
			f.Scored++
		}
		if r.Forfeit != "" {
			f.Classes[r.Forfeit]++
		}
	}
	if len(f.Classes) == 0 {
		return nil
	}
	return &f
}

// String is like "14 of 40 scored rollouts (timeout 12, oom 2)", the most frequent class first.
func (f forfeits) String() string {
	total := 0
	for _, n := range f.Classes {
		total += n
	}
	return fmt.Sprintf("%d of %d scored rollouts (%s)", total, f.Scored, byCount(f.Classes))
}

// byCount is like "timeout 12, oom 2", the most frequent name first.
func byCount(counts map[string]int) string {
	names := books.ByCount(counts)
	for i, name := range names {
		names[i] = fmt.Sprintf("%s %d", name, counts[name])
	}
	return strings.Join(names, ", ")
}

// endingsOf counts the rollouts that have ended by their stop reason; failed ones have none.
func endingsOf(l *books.Run) map[string]int {
	counts := map[string]int{}
	for r := range l.All() {
		if r.StopReason != "" {
			counts[r.StopReason]++
		}
	}
	return counts
}

// summaries are what rollouts made of their conversations as their contexts were full.
type summaries struct {
	Total    int `json:"total"`
	Rollouts int `json:"rollouts"` // that have any
}

// summariesOf counts them; nil for none.
func summariesOf(l *books.Run) *summaries {
	var s summaries
	for r := range l.All() {
		if r.Summaries > 0 {
			s.Total, s.Rollouts = s.Total+r.Summaries, s.Rollouts+1
		}
	}
	if s.Total == 0 {
		return nil
	}
	return &s
}
