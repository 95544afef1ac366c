package utilisation

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
)

// The loads have long tails, as published ones have. Lengths are log-normal: by a median and a 99th
// percentile a source says both.
//
// Turns: a median of 8 turns in 973 sessions of coding agents, some of more than 60
// (https://www.xor.tech/resources/benchmarks/sessions); at most 100 in training (NeMo Gym, "SWE RL
// Infrastructure Case Study", February 2026).
//
// Tokens of a turn: of a response in RL the median is some 500 and the 99th percentile 5,000,
// log-normal (https://jiahuanglin.xyz/all_lessons/RL/lessons/22b_longtail_rollouts.html). Turns of
// agents are cut at 8,192 here.
//
// Both sources of tails exist, hard tasks and long rollouts of one task (DARTS, arXiv 2605.30859):
// half of the variance of turns is the task's. That it is half is an assumption.
//
// Assumptions are times of tools and verifiers, as no source gives their distribution, and the
// tokens of prompts and of the answers of tools.
type workload struct {
	name    string
	turns   tail
	tokens  tail    // sampled in a turn
	prompt  tail    // tokens before the first turn
	results tail    // tokens of the answers of a turn's tools
	tools   tail    // seconds of a turn's tools
	verify  tail    // seconds
	context float64 // tokens: the rollout sums a longer conversation up; 0: none is
}

// Names of the workloads.
const (
	// WorkloadAgents are coding agents with short tools.
	WorkloadAgents = "agents"
	// WorkloadTests are the same, whose tools are test suites: a rollout is at its
	// tools for most of its time.
	WorkloadTests = "tests"
	// WorkloadLong are rollouts of 10^5 to 10^6 tokens, in contexts of 128 Ki tokens.
	WorkloadLong = "long"
	// WorkloadEqual are rollouts of one turn, all alike, without prompts, tools, verifiers and
	// loading of weights. All schedules must come out the same.
	WorkloadEqual = "equal"
)

// ki is 1024 tokens.
const ki = 1024

var workloads = []workload{
	{
		name: WorkloadAgents, turns: tail{8, 60, 100}, tokens: tail{500, 5000, 8 * ki},
		prompt: tail{2000, 10000, 16 * ki}, results: tail{300, 6000, 8 * ki},
		tools: tail{2, 60, 600}, verify: tail{20, 200, 600},
	},
	{
		name: WorkloadTests, turns: tail{8, 60, 100}, tokens: tail{500, 5000, 8 * ki},
		prompt: tail{2000, 10000, 16 * ki}, results: tail{300, 6000, 8 * ki},
		tools: tail{40, 400, 900}, verify: tail{120, 600, 900},
	},
	{
		name: WorkloadLong, turns: tail{80, 400, 600}, tokens: tail{1000, 8000, 16 * ki},
		prompt: tail{4000, 20000, 32 * ki}, results: tail{600, 12000, 16 * ki},
		tools: tail{2, 60, 600}, verify: tail{60, 600, 900}, context: 128 * ki,
	},
	{name: WorkloadEqual},
}

// summaryTokens is how long the summary is with which a conversation goes on that
// has grown to its context.
const summaryTokens = 4 * ki

func workloadOf(name string) (workload, error) {
	i := slices.IndexFunc(workloads, func(w workload) bool { return w.name == name })
	if i < 0 {
		var names []string
		for _, w := range workloads {
			names = append(names, w.name)
		}
		return workload{}, fmt.Errorf("workload %.40q: must be one of %s", name, strings.Join(names, ", "))
	}
	return workloads[i], nil
}

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
	prompt float64 // tokens
	turns  []turn
	verify float64 // seconds
	reward float64
}

// turn is one answer of the model and the calls behind it. The last turn calls nothing.
type turn struct {
	tokens  float64
	results float64 // tokens
	tools   float64 // seconds
}

func (s shape) tokens() (n float64) {
	for _, t := range s.turns {
		n += t.tokens
	}
	return n
}

// load makes groups. The n-th group is the same in every schedule, so that all of
// them have the same to do.
type load struct {
	workload
	seed uint64
	size int // rollouts of a group
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
	if l.name == WorkloadEqual {
		return shape{turns: []turn{{tokens: equalTokens}}, reward: float64(rng.IntN(2))}
	}
	z := float64(math.Sqrt(ofTask)*task) + float64(math.Sqrt(1-ofTask)*rng.NormFloat64())
	s := shape{prompt: math.Ceil(l.prompt.at(task)), turns: make([]turn, max(1, int(math.Round(l.turns.at(z)))))}
	for i := range s.turns {
		s.turns[i].tokens = math.Ceil(l.tokens.at(rng.NormFloat64()))
		s.turns[i].results = math.Ceil(l.results.at(rng.NormFloat64()))
		s.turns[i].tools = l.tools.at(rng.NormFloat64())
	}
	s.turns[len(s.turns)-1].tools = 0
	s.verify = l.verify.at(rng.NormFloat64())
	s.reward = float64(rng.IntN(2))
	return s
}

// meanTokens is the mean of a rollout's tokens over many groups.
func (l load) meanTokens() float64 {
	const groups = 500
	sum := 0.0
	for n := range int64(groups) {
		for _, s := range l.group(n + 1) {
			sum += s.tokens()
		}
	}
	return sum / float64(groups*l.size)
}
