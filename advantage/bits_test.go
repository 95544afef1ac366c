package advantage

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"math"
	"math/rand/v2"
	"testing"
)

// bits is the digest of everything that TestBits computes, as a program for amd64 does.
const bits = "05d7ce1b1e46c3e5c728aaecbe3e6ce5bc8f16c50db02ea5ec89c767ee6312a1"

// TestBits: estimators, shaping and normalisation give the same bits on every processor. A program
// for arm64 that fuses a product with a sum fails it.
func TestBits(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	sum := sha256.New()
	for range 200 {
		n := 2 + rng.IntN(14)
		rewards, lengths, tokens := make([]float64, n), make([]Length, n), make([]int, n)
		for i := range rewards {
			rewards[i] = float64(rng.Float64()*3) - 1 // rounded, as all is here
			lengths[i] = Length{Output: rng.IntN(5000), Input: rng.IntN(5000), Turns: rng.IntN(50)}
			tokens[i] = 1 + rng.IntN(5000)
		}
		add(sum, LinearLengthPenalty(rewards, lengths, LengthWeights{Output: 0.1, Input: 0.03, Turns: 0.7})...)
		add(sum, SoftOverlong(tokens[0], 4000, 1300, 0.3))
		add(sum, Tokens(rewards[0], n, []Span{{Start: 0, Length: n / 2, Reward: rewards[1]},
			{Start: 1, Length: n, Reward: rewards[0]}}, 0.7)...)
		for _, name := range Names() {
			e, err := New(name, nil)
			if err != nil {
				t.Fatal(err)
			}
			advantages, after := e.Group(rewards, rewards[0])
			add(sum, e.Batch(advantages, tokens)...)
			add(sum, after)
		}
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != bits {
		t.Errorf("other bits than those of amd64: %s", got)
	}
}

func add(sum hash.Hash, values ...float64) {
	for _, v := range values {
		sum.Write(binary.LittleEndian.AppendUint64(nil, math.Float64bits(v)))
	}
}
