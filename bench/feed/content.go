package feed

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/rondo-rl/rondo/storage"
)

// What the measured trajectories are made of.
const (
	// vocabulary is the number of token ids, as in models of today.
	vocabulary = 151_936
	// sampledShare of the tokens come from the model: three of four.
	sampledShare = 0.75
	// turnTokens is how long a turn is, prompt and generation together.
	turnTokens = 512
	// copied is the share of tokens that repeat an earlier passage: agents read a
	// file, quote it and edit it.
	copied = 0.5
	// passage is the mean length of what is repeated.
	passage = 24
)

// content makes token ids and log-probabilities with the statistics of agents' conversations about
// code: ids are Zipf-distributed with repeated passages, log-probabilities mostly near 0, with all
// of their 24 bits in use.
type content struct {
	rng  *rand.Rand
	zipf *rand.Zipf
	// names scatters the ranks of the Zipf distribution over the ids.
	names []int32
}

func newContent(seed uint64) *content {
	rng := rand.New(rand.NewPCG(seed, 0xfeed))
	c := &content{rng: rng, zipf: rand.NewZipf(rng, 1.1, 8, vocabulary-1), names: make([]int32, vocabulary)}
	for i, id := range rng.Perm(vocabulary) {
		c.names[i] = int32(id)
	}
	return c
}

// ids makes n token ids that follow earlier ones of the same conversation.
func (c *content) ids(n int, earlier []int32) []int32 {
	ids := make([]int32, 0, n)
	for len(ids) < n {
		// A passage of length passage for each fresh stretch that is as long keeps the share.
		if c.rng.Float64() < copied/(passage*(1-copied)+copied) && len(earlier) > 0 {
			from := c.rng.IntN(len(earlier))
			length := min(n-len(ids), len(earlier)-from, 1+int(passage*c.rng.ExpFloat64()))
			ids = append(ids, earlier[from:from+length]...)
			continue
		}
		ids = append(ids, c.names[c.zipf.Uint64()])
	}
	return ids
}

// logprobs makes n log-probabilities of sampled tokens: half of them are all but certain.
func (c *content) logprobs(n int) []float32 {
	values := make([]float32, n)
	for i := range values {
		values[i] = -float32(math.Exp(2.5*c.rng.NormFloat64() - 3))
	}
	return values
}

// trajectory makes a rollout of a number of tokens.
func (c *content) trajectory(run, group, rollout string, tokens int) *storage.Trajectory {
	t := &storage.Trajectory{Run: run, Group: group, Rollout: rollout, Task: task, StopReason: "finished"}
	all := make([]int32, 0, tokens)
	for turn := int32(0); len(all) < tokens; turn++ {
		length := min(turnTokens, tokens-len(all))
		sampled := int(sampledShare * float64(length))
		prompt := c.ids(length-sampled, all)
		all = append(all, prompt...)
		answer := c.ids(sampled, all)
		all = append(all, answer...)
		role := "tool"
		if turn == 0 {
			role = "user"
		}
		t.Messages = append(t.Messages,
			storage.Message{Index: 2 * turn, Turn: turn, Role: role, TokenIDs: prompt,
				Logprobs: make([]float32, len(prompt)), LossMask: make([]bool, len(prompt)), PolicyVersion: -1},
			storage.Message{Index: 2*turn + 1, Turn: turn, Role: "assistant", TokenIDs: answer,
				Logprobs: c.logprobs(sampled),
				LossMask: slices.Repeat([]bool{true}, sampled), PolicyVersion: 1, FinishReason: "tool_calls"})
	}
	return t
}
