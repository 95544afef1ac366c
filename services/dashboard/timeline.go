package dashboard

import (
	"fmt"
	"time"

	"github.com/rondo-rl/rondo/export/episode"
)

// Measures of a timeline, in units of its picture.
const (
	timelineWidth = 1000
	rowHeight     = 18
	maxToolRows   = 12
	maxBars       = 2000
)

// timeline is when a rollout's model, tools and verifier were at work.
type timeline struct {
	Bars          []bar
	Width, Height int
	Took          time.Duration
	More          int // bars that are not drawn
}

type bar struct {
	Kind        string // model, tool, failed or verifier
	Title       string
	X, Width, Y float64
	Row         int
	from, to    time.Time
}

// timelineOf lays the work of a rollout out; nil where no times are known. Calls that ran beside
// each other stand below each other.
func timelineOf(e *episode.Episode) *timeline {
	t := &timeline{Width: timelineWidth}
	for _, m := range e.Trajectory.Messages {
		if m.Role == "assistant" && !m.StartedAt.IsZero() && int(m.Turn) >= e.Rollout.Copied {
			t.add(bar{Kind: "model", Title: fmt.Sprintf("turn %d: model, %s", m.Turn, span(m.Duration)),
				from: m.StartedAt, to: m.StartedAt.Add(m.Duration)})
		}
	}
	var ends []time.Time // of the last bar in each row of tools
	for turn := range len(e.Rollout.Turns) {
		for _, r := range e.Rollout.Tools.Answer(turn).Results {
			took := time.Duration(r.DurationMS * float64(time.Millisecond))
			b := bar{Kind: "tool", Title: fmt.Sprintf("turn %d: %s, %s", turn, line(r.Name), span(took)),
				from: r.StartedAt, to: r.StartedAt.Add(took)}
			if r.Error || r.ExitCode != nil && *r.ExitCode != 0 {
				b.Kind = "failed"
			}
			if r.StartedAt.IsZero() {
				continue
			}
			b.Row = 1
			for b.Row <= len(ends) && ends[b.Row-1].After(b.from) && b.Row < maxToolRows {
				b.Row++
			}
			if b.Row > len(ends) {
				ends = append(ends, b.to)
			}
			ends[b.Row-1] = b.to
			t.add(b)
		}
	}
	if s := e.Rollout.Scored; s != nil && !e.ScoredAt.IsZero() {
		took := time.Duration(s.DurationMS * float64(time.Millisecond))
		t.add(bar{Kind: "verifier", Title: "verifier, " + span(took), Row: len(ends) + 1,
			from: e.ScoredAt.Add(-took), to: e.ScoredAt})
	}
	if len(t.Bars) == 0 {
		return nil
	}
	t.place()
	return t
}

func (t *timeline) add(b bar) {
	if len(t.Bars) == maxBars {
		t.More++
		return
	}
	t.Bars = append(t.Bars, b)
}

// place gives each bar its place.
func (t *timeline) place() {
	first, last := t.Bars[0].from, t.Bars[0].to
	for _, b := range t.Bars {
		if b.from.Before(first) {
			first = b.from
		}
		if b.to.After(last) {
			last = b.to
		}
		t.Height = max(t.Height, (b.Row+1)*rowHeight)
	}
	t.Took = last.Sub(first)
	unit := float64(timelineWidth) / max(1, float64(t.Took))
	for i := range t.Bars {
		b := &t.Bars[i]
		b.X, b.Y = float64(b.from.Sub(first))*unit, float64(b.Row*rowHeight+2)
		b.Width = max(1.5, float64(b.to.Sub(b.from))*unit)
	}
}
