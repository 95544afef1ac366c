package utilisation

import (
	"container/heap"
	"container/list"
	"math"
)

// The engine is an accelerator with continuous batching: up to a knee each sequence more adds as
// many tokens a second, and behind it the same rate is shared. That is the roofline of decoding:
// bound by memory first and then by computation. The knee of an 8B model on an H100 is some 64 to
// 128 sequences (https://www.longformexplainers.com/llm-inference/20-throughput-vs-latency). The
// rate of one sequence is an assumption.
//
// A turn's prompt is computed before its first token, but for the prefix that the engine has kept
// of the conversation. Prompts are computed one after the other, and decoding goes on beside them
// at a part of its rate, as with chunked prefill. Both rates are assumptions.
//
// The memory for keys and values holds the sequences under way, from the turn's begin to its end,
// and behind them the conversations used last. A turn that does not fit waits. New weights make
// all kept prefixes worthless, and leave the sequences under way as they are, as engines do that
// take up weights in flight.
const (
	knee        = 64 // sequences
	sequenceTPS = 30 // tokens a second of one sequence up to the knee
	peakTPS     = knee * sequenceTPS
	// prefillTPS is how many tokens of prompts are computed in a second while nothing is decoded: a
	// token of a prompt costs an eighth of one that is sampled at the peak.
	prefillTPS = 8 * peakTPS
	// prefillShare is the part of the engine that prompts take of it while
	// sequences are decoded, too.
	prefillShare = 0.5
	// loadSeconds is how long the engine stands still to take up a version: what a 30B model takes
	// with verl's checkpoint engine (verl docs, checkpoint_engine/README: 4.4 s).
	loadSeconds = 4.4
	// memory is how many tokens the memory for keys and values holds: that of eight H100s holds 8
	// to 9 million of an 8B model, with 64 KiB a token.
	memory = 128 * knee * ki
)

type engine struct {
	now      float64
	work     float64 // tokens that a sequence which was there all the time would have by now
	resumes  float64 // it stands still until then
	produced float64 // tokens of all sequences
	queued   []*sequence
	prompts  []*sequence // that are computed, the first one now
	active   pending     // that are decoded; at is the work at which a turn is over
	used     float64     // tokens of the sequences under way
	kept     prefixes

	computed, reused float64 // tokens of prompts
}

// sequence is one turn at the engine.
type sequence struct {
	conversation   string
	prompt, answer float64 // tokens
	left           float64 // of the prompt, to be computed
	first, over    func()  // at the first token, and behind the last one
}

// rate is that of one sequence, in tokens a second.
func (e *engine) rate() float64 {
	rate := float64(peakTPS) / float64(max(knee, len(e.active.items)))
	if len(e.prompts) > 0 {
		rate *= 1 - prefillShare
	}
	return rate
}

// prefillRate is that of the prompt that is computed.
func (e *engine) prefillRate() float64 {
	if len(e.active.items) > 0 {
		return prefillTPS * prefillShare
	}
	return prefillTPS
}

// start takes in a turn.
func (e *engine) start(s *sequence) {
	e.queued = append(e.queued, s)
	e.admit()
}

// admit begins turns that fit into the memory. One alone always does.
func (e *engine) admit() {
	for len(e.queued) > 0 {
		s := e.queued[0]
		need := s.prompt + s.answer
		if e.used > 0 && e.used+need > memory {
			return
		}
		e.queued = e.queued[1:]
		reused := min(s.prompt, e.kept.take(s.conversation))
		e.used += need
		e.kept.shrink(memory - e.used)
		e.reused, e.computed, s.left = e.reused+reused, e.computed+s.prompt-reused, s.prompt-reused
		if s.left > 0 {
			e.prompts = append(e.prompts, s)
		} else {
			e.decode(s)
		}
	}
}

func (e *engine) decode(s *sequence) {
	s.first()
	e.active.add(e.work+s.answer, func() {
		e.used -= s.prompt + s.answer
		e.kept.put(s.conversation, s.prompt+s.answer)
		e.kept.shrink(memory - e.used)
		s.over()
		e.admit()
	})
}

// drop forgets everything.
func (e *engine) drop() {
	e.queued, e.prompts, e.active, e.used, e.kept = nil, nil, pending{added: e.active.added}, 0, prefixes{}
}

// load takes up new weights.
func (e *engine) load() {
	e.resumes = max(e.resumes, e.now) + loadSeconds
	e.kept = prefixes{}
}

// next is when the first prompt will be computed, or the first turn will be over;
// infinite where there is none.
func (e *engine) next() (at float64, prompt bool) {
	at, from := math.Inf(1), max(e.now, e.resumes)
	if len(e.active.items) > 0 {
		at = from + (e.active.items[0].at-e.work)/e.rate()
	}
	if len(e.prompts) > 0 {
		if computed := from + e.prompts[0].left/e.prefillRate(); computed < at {
			return computed, true
		}
	}
	return at, false
}

// advance lets the time pass to a moment at or before next.
func (e *engine) advance(to float64) {
	if elapsed := to - max(e.now, e.resumes); elapsed > 0 {
		if n := len(e.active.items); n > 0 {
			done := float64(elapsed * e.rate())
			e.work += done
			e.produced += float64(done * float64(n))
		}
		if len(e.prompts) > 0 {
			e.prompts[0].left -= float64(elapsed * e.prefillRate())
		}
	}
	e.now = to
}

// happen lets that happen which next has said.
func (e *engine) happen(prompt bool) {
	if prompt {
		s := e.prompts[0]
		e.prompts = e.prompts[1:]
		e.decode(s)
		return
	}
	e.work = e.active.items[0].at // not a rounding error less
	e.active.take()()
}

// prefixes are the conversations whose keys and values the engine has kept,
// those that were used last.
type prefixes struct {
	tokens float64
	order  list.List // of prefix, the one used last in front
	byName map[string]*list.Element
}

type prefix struct {
	conversation string
	tokens       float64
}

func (p *prefixes) put(conversation string, tokens float64) {
	if p.byName == nil {
		p.byName = map[string]*list.Element{}
	}
	p.byName[conversation] = p.order.PushFront(prefix{conversation, tokens})
	p.tokens += tokens
}

// take takes out what is kept of a conversation, and gives its tokens.
func (p *prefixes) take(conversation string) float64 {
	element := p.byName[conversation]
	if element == nil {
		return 0
	}
	delete(p.byName, conversation)
	tokens := p.order.Remove(element).(prefix).tokens
	p.tokens -= tokens
	return tokens
}

// shrink forgets conversations until what is left has so many tokens at most.
func (p *prefixes) shrink(most float64) {
	for p.order.Len() > 0 && p.tokens > most {
		p.take(p.order.Back().Value.(prefix).conversation)
	}
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
