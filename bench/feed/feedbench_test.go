package feed

import (
	"testing"
	"time"

	"github.com/rondo-rl/rondo/storage"
)

func TestRun(t *testing.T) {
	o := Options{Lengths: []int{256, 1000}, Tokens: 32000,
		Durability: []time.Duration{100 * time.Millisecond}, Dir: t.TempDir()}
	var said []string
	r, err := Run(t.Context(), o, func(line string) { said = append(said, line) })
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Turns) != 2 || len(said) != 2 || r.PullReader != "go" {
		t.Fatalf("%d turns, said %q: %+v", len(r.Turns), said, r)
	}
	for _, turn := range r.Turns {
		for name, speed := range map[string]float64{"push": turn.Push, "raw write": turn.RawWrite,
			"raw append": turn.RawAppend, "compose": turn.Compose, "pull": turn.Pull, "raw read": turn.RawRead} {
			if speed <= 0 {
				t.Errorf("%d tokens: %s took no time at all or for ever: %+v", turn.Tokens, name, turn)
			}
		}
		// An id has 18 bits, three of four tokens a log-probability of 32, and
		// repetition is at most half.
		if turn.LogPerToken < 3 || turn.LogPerToken > 6 {
			t.Errorf("%d tokens: %.2f bytes on the log for each that was sampled", turn.Tokens, turn.LogPerToken)
		}
		if turn.BytesPerToken < 1 || turn.BytesPerToken > 8.2 || turn.FilePerToken <= turn.BytesPerToken {
			t.Errorf("%d tokens: %.2f bytes per token, %.2f of the file", turn.Tokens,
				turn.BytesPerToken, turn.FilePerToken)
		}
	}
}

func TestOptions(t *testing.T) {
	for name, o := range map[string]Options{
		"too short":      {Lengths: []int{15}},
		"no whole group": {Lengths: []int{1024}, Tokens: 8000},
		"no backlog":     {Backlogs: []int{0}},
	} {
		if _, err := Run(t.Context(), o, func(string) {}); err == nil {
			t.Errorf("%s: it was accepted", name)
		}
	}
}

// The figures say something only as long as the content is what it claims to be.
func TestContent(t *testing.T) {
	tokens := 8192
	trajectory := newContent(7).trajectory("r", "g000001", "g000001-0", tokens)
	total, sampled, seen := 0, 0, map[int32]bool{}
	for _, m := range trajectory.Messages {
		total += len(m.TokenIDs)
		for i, id := range m.TokenIDs {
			seen[id] = true
			if m.LossMask[i] {
				sampled++
			} else if m.Logprobs[i] != 0 {
				t.Fatal("a token that was not sampled has a log-probability")
			}
			if id < 0 || id >= vocabulary || m.Logprobs[i] > 0 {
				t.Fatalf("id %d, log-probability %g", id, m.Logprobs[i])
			}
		}
	}
	if total != tokens || sampled != tokens*3/4 {
		t.Errorf("%d tokens, %d sampled", total, sampled)
	}
	if len(seen) < tokens/16 || len(seen) > tokens/2 {
		t.Errorf("%d different ids of %d tokens", len(seen), tokens)
	}
}

func BenchmarkEncode(b *testing.B) {
	const tokens = 8192
	trajectory := newContent(1).trajectory("r", "g000001", "g000001-0", tokens)
	for b.Loop() {
		if _, err := storage.EncodeTrajectory(trajectory); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(tokens*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mtok/s")
}
