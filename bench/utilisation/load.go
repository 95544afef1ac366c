package utilisation

import (
	"math"
	"math/rand/v2"
)

// The load has long tails, as published ones have. Lengths are log-normal: by a median and a 99th percentile a source says both.
//
// Turns: a median of 8 turns in 973 sessions of coding agents, some of more than 60 (https://www.xor.tech/resources/benchmarks/sessions); at
// most 100 in training (NeMo Gym, "SWE RL Infrastructure Case Study", February 2026).
//
// Tokens of a turn: of a response in RL the median is some 500 and the 99th percentile 5,000, log-normal
// (https://jiahuanglin.xyz/all_lessons/RL/lessons/22b_longtail_rollouts.html). Turns of agents are cut at 8,192 here.
//
// Both sources of tails exist, hard tasks and long rollouts of one task (DARTS, arXiv 2605.30859): half of the variance of turns is the
// task's. That it is half is an assumption.
//
// Times of tools and verifiers are assumptions, as no source gives their distribution: a median of 2 s and a 99th percentile of 60 s of a
// turn's tools, 20 s and 200 s of a verifier.
var (
	turnCounts    = tail{median: 8, p99: 60, most: 100}
	turnTokens    = tail{median: 500, p99: 5000, most: 8192}
	toolSeconds   = tail{median: 2, p99: 60, most: 600}
	verifySeconds = tail{median: 20, p99: 200, most: 600}
)

// ofTask is the part of the variance of turns that all rollouts of a group share.
const ofTask = 0.5

// tail is a log-normal distribution that is cut off.
type tail struct{ median, p99, most float64 }

// z99 is the 99th percentile of the normal distribution.
const z99 = 2.3263478740408408

// at is the value at a standard normal z.
func (t tail) at(z float64) float64 {
	sigma := math.Log(t.p99/t.median) / z99
	return min(t.most, t.median*math.Exp(float64(sigma*z)))
}

// shape is what a rollout will do: neither its schedule nor its time changes that.
type shape struct {
	turns  []turn
	verify float64 // seconds
	reward float64
}

// turn is one answer of the model and the calls behind it. The last turn calls nothing.
type turn struct{ tokens, tools float64 } // tokens, seconds

func (s shape) tokens() (n float64) {
	for _, t := range s.turns {
		n += t.tokens
	}
	return n
}

// held is how many tokens a rollout's turns have had so far.
func (r *rollout) held() float64 { return shape{turns: r.turns[:r.turn]}.tokens() }

// load makes groups. The n-th group is the same in every schedule, so that all of them have the same to do.
type load struct {
	seed  uint64
	size  int  // rollouts of a group
	equal bool // all rollouts are alike, and call no tools
}

// equalTokens is how long a rollout is where all are alike.
const equalTokens = 4000

func (l load) group(n int64) []shape {
	rng := rand.New(rand.NewPCG(l.seed, uint64(n)))
	task := rng.NormFloat64()
	shapes := make([]shape, l.size)
	for i := range shapes {
		shapes[i] = l.rollout(rng, task)
	}
	return shapes
}

func (l load) rollout(rng *rand.Rand, task float64) shape {
	if l.equal {
		return shape{turns: []turn{{tokens: equalTokens}}, reward: float64(rng.IntN(2))}
	}
	z := float64(math.Sqrt(ofTask)*task) + float64(math.Sqrt(1-ofTask)*rng.NormFloat64())
	s := shape{turns: make([]turn, max(1, int(math.Round(turnCounts.at(z)))))}
	for i := range s.turns {
		s.turns[i] = turn{tokens: math.Ceil(turnTokens.at(rng.NormFloat64())), tools: toolSeconds.at(rng.NormFloat64())}
	}
	s.turns[len(s.turns)-1].tools = 0
	s.verify = verifySeconds.at(rng.NormFloat64())
	s.reward = float64(rng.IntN(2))
	return s
}

// meanTokens is the mean of a rollout's tokens over many groups.
func (l load) meanTokens() float64 {
	const groups = 2000
	sum := 0.0
	for n := range int64(groups) {
		for _, s := range l.group(n + 1) {
			sum += s.tokens()
		}
	}
	return sum / float64(groups*l.size)
}
