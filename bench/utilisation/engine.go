package utilisation

import (
	"container/heap"
	"math"
)

// The engine is an accelerator with continuous batching: up to a knee each sequence more adds as many tokens a second, and behind it the
// same rate is shared. That is the roofline of decoding: bound by memory first and then by computation. The knee of an 8B model on an H100
// is some 64 to 128 sequences (https://www.longformexplainers.com/llm-inference/20-throughput-vs-latency). The rate of one sequence is an
// assumption. Prompts cost nothing here, as if all of them were in the engine's cache.
const (
	knee        = 64 // sequences
	sequenceTPS = 30 // tokens a second of one sequence up to the knee
	peakTPS     = knee * sequenceTPS
	// loadSeconds is how long the engine stands still to take up a version: what a 30B model takes with verl's checkpoint engine
	// (verl docs, checkpoint_engine/README: 4.4 s).
	loadSeconds = 4.4
	// kvTokens is how many tokens its memory for keys and values holds, in which a sequence is from its first turn's beginning to the end of its last one: 64 sequences of 16 Ki
	// tokens. That is an assumption. It bounds nothing here: the engine says how much of it is used.
	kvTokens = knee * 16384
)

type engine struct {
	now      float64
	work     float64 // tokens that a sequence which was there all the time would have by now
	resumes  float64 // it stands still until then
	produced float64 // tokens of all sequences
	active   pending // at is the work at which a turn is over
	held     float64 // tokens of the sequences under way, counted when a turn begins
}

// rate is that of one sequence, in tokens a second.
func (e *engine) rate() float64 {
	return float64(peakTPS) / float64(max(knee, len(e.active.items)))
}

// start samples a turn behind so many tokens.
func (e *engine) start(tokens, before float64, over func()) {
	e.held += before + tokens
	e.active.add(e.work+tokens, func() {
		e.held -= before + tokens
		over()
	})
}

// drop forgets everything under way.
func (e *engine) drop() { e.active, e.held = pending{added: e.active.added}, 0 }

// pause lets the engine stand still from now on.
func (e *engine) pause(seconds float64) { e.resumes = max(e.resumes, e.now) + seconds }

// next is when the first turn under way will be over; infinite where there is none.
func (e *engine) next() float64 {
	if len(e.active.items) == 0 {
		return math.Inf(1)
	}
	return max(e.now, e.resumes) + (e.active.items[0].at-e.work)/e.rate()
}

// advance lets the time pass to a moment at or before next.
func (e *engine) advance(to float64) {
	if n := len(e.active.items); n > 0 {
		if elapsed := to - max(e.now, e.resumes); elapsed > 0 {
			done := float64(elapsed * e.rate())
			e.work += done
			e.produced += float64(done * float64(n))
		}
	}
	e.now = to
}

// pending is what will happen, the first on top; of what happens at once, what was added first.
type pending struct {
	items []happening
	added int
}

type happening struct {
	at    float64
	order int
	do    func()
}

func (p *pending) add(at float64, do func()) {
	p.added++
	heap.Push(p, happening{at, p.added, do})
}

func (p *pending) take() func() { return heap.Pop(p).(happening).do }

// Len, Less, Swap, Push and Pop are those of a heap.
func (p *pending) Len() int { return len(p.items) }
func (p *pending) Less(i, j int) bool {
	a, b := p.items[i], p.items[j]
	return a.at < b.at || a.at == b.at && a.order < b.order
}
func (p *pending) Swap(i, j int) { p.items[i], p.items[j] = p.items[j], p.items[i] }
func (p *pending) Push(x any)    { p.items = append(p.items, x.(happening)) }
func (p *pending) Pop() any {
	last := p.items[len(p.items)-1]
	p.items = p.items[:len(p.items)-1]
	return last
}
