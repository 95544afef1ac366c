package dashboard

import (
	"maps"
	"slices"
	"time"

	"github.com/rondo-rl/rondo/books"
	"github.com/rondo-rl/rondo/events"
)

// maxPoints bounds the points of a curve over time: where there would be more,
// two neighbours become one.
const maxPoints = 240

// flow is what happened in a run in a part of its time, and how many rollouts each
// stage had at the end of it.
type flow struct {
	Started, Scored, Failed int
	Sampled                 int64 // tokens
	Backlog                 [stages]int
	Parts                   []average // of rewards, as flows.parts names them
}

// average is the mean of a part of the reward.
type average struct {
	N    int
	Mean float64
}

func (p average) merge(other average) average {
	n := p.N + other.N
	if n == 0 {
		return average{}
	}
	share := float64(other.N) / float64(n)
	return average{n, p.Mean*(1-share) + other.Mean*share}
}

// maxParts bounds the parts of the reward that are drawn: those that were scored first.
const maxParts = 12

// The stages whose backlog is drawn.
const (
	atModel = iota
	atTools
	atVerifier
	atGroup
	atFeed
	stages
)

var stageOf = map[string]int{
	events.StageGenerator: atModel, events.StageTools: atTools, events.StageScorer: atVerifier,
	events.StageGroup: atGroup, events.StageFeed: atFeed,
}

// flows are a run's curves over time.
type flows struct {
	began   time.Time
	width   time.Duration
	points  []flow
	backlog [stages]int
	where   map[string]int // rollouts in the backlog → their stage
	parts   []string       // of rewards
	more    bool           // there are parts that are not drawn
}

func newFlows() *flows { return &flows{width: time.Second, where: map[string]int{}} }

// point gives the point of a moment, the last one there is for a clock that goes back.
func (f *flows) point(now time.Time) *flow {
	if f.began.IsZero() {
		f.began = now
	}
	i := int(now.Sub(f.began) / f.width)
	for i >= maxPoints {
		f.halve()
		i = int(now.Sub(f.began) / f.width)
	}
	for len(f.points) <= i {
		f.points = append(f.points, flow{Backlog: f.backlog})
	}
	return &f.points[len(f.points)-1]
}

// halve makes one point of each two.
func (f *flows) halve() {
	half := f.points[:0]
	for i := 0; i < len(f.points); i += 2 {
		p := f.points[i]
		if i+1 < len(f.points) {
			next := f.points[i+1]
			p.Started, p.Scored, p.Failed, p.Sampled = p.Started+next.Started, p.Scored+next.Scored,
				p.Failed+next.Failed, p.Sampled+next.Sampled
			p.Backlog = next.Backlog
			for i, other := range next.Parts {
				if i == len(p.Parts) {
					p.Parts = append(p.Parts, average{})
				}
				p.Parts[i] = p.Parts[i].merge(other)
			}
		}
		half = append(half, p)
	}
	f.points, f.width = half, 2*f.width
}

// count counts what an event has added to the totals of the run.
func (f *flows) count(now time.Time, n books.Totals) {
	p := f.point(now)
	p.Started, p.Scored, p.Failed = p.Started+n.Started, p.Scored+n.Scored, p.Failed+n.Failed
	p.Sampled += n.Sampled
}

// score counts the parts of a rollout's reward.
func (f *flows) score(now time.Time, components map[string]float64) {
	p := f.point(now)
	for _, name := range slices.Sorted(maps.Keys(components)) {
		i := slices.Index(f.parts, name)
		if i < 0 && len(f.parts) == maxParts {
			f.more = true
			continue
		}
		if i < 0 {
			i, f.parts = len(f.parts), append(f.parts, name)
		}
		for len(p.Parts) <= i {
			p.Parts = append(p.Parts, average{})
		}
		p.Parts[i] = p.Parts[i].merge(average{1, components[name]})
	}
}

// place notes the stage that has a rollout now; "" is none.
func (f *flows) place(rollout, stage string) {
	if i, ok := f.where[rollout]; ok {
		f.backlog[i]--
		delete(f.where, rollout)
	}
	if i, ok := stageOf[stage]; ok {
		f.backlog[i]++
		f.where[rollout] = i
	}
	if n := len(f.points); n > 0 {
		f.points[n-1].Backlog = f.backlog
	}
}
