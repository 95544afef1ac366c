package storage_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/storage"
)

// makeTrajectory makes a trajectory of turns, each of an assistant's message and a tool's answer.
func makeTrajectory(turns, tokensPerMessage int) *storage.Trajectory {
	random := rand.New(rand.NewPCG(1, uint64(turns)))
	t := &storage.Trajectory{Run: "quickstart", Group: "g000123", Rollout: "g000123-4", Task: "shell-slugify",
		StopReason: "finished", DispatchVersion: 7}
	add := func(m storage.Message, sampled bool) {
		m.Index = int32(len(t.Messages))
		m.PolicyVersion = -1
		if sampled {
			m.PolicyVersion = 7 + int64(m.Turn)/2
		}
		for range tokensPerMessage {
			m.TokenIDs = append(m.TokenIDs, int32(random.ExpFloat64()*9000)%150_000)
			m.LossMask = append(m.LossMask, sampled)
			logprob := float32(0)
			if sampled {
				logprob = float32(-random.ExpFloat64() / 4)
			}
			m.Logprobs = append(m.Logprobs, logprob)
		}
		t.Messages = append(t.Messages, m)
	}
	add(storage.Message{Role: "system", Content: "You repair programs."}, false)
	add(storage.Message{Role: "user", Content: "Make the tests pass. Größe ≥ 3 ✓"}, false)
	start := time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)
	for turn := range int32(turns) {
		id := fmt.Sprintf("call_%d", turn)
		add(storage.Message{Turn: turn, Role: "assistant", Content: strings.Repeat("I look at the file. ", 3),
			ToolCalls: `[{"id":"` + id +
				`","type":"function","function":{"name":"read_file","arguments":"{\"path\":\"a.go\"}"}}]`,
			FinishReason: "tool_calls", StartedAt: start.Add(time.Duration(turn) * time.Second),
			Duration: 1234567 * time.Nanosecond}, true)
		add(storage.Message{Turn: turn, Role: "tool", Name: "read_file", ToolCallID: id, Content: "1|package a\n2|\n",
			Workspace: "blobs/sha256/ab/abcd"}, false)
	}
	return t
}

func makeBatch(samples, tokens int) *storage.Batch {
	random := rand.New(rand.NewPCG(2, uint64(samples)))
	b := &storage.Batch{Run: "quickstart", Feed: "trainer", Step: 12, Rank: 1, Ranks: 2, MicroBatches: 3,
		Whole: storage.Counts{Samples: 1e6, SampledTokens: 1e9, Rollouts: 1e5}}
	turn, reward := int32(4), -0.5
	for i := range samples {
		s := storage.Sample{Run: "quickstart", Group: fmt.Sprintf("g%06d", i/4),
			Rollout: fmt.Sprintf("g%06d-%d", i/4, i%4), Task: "shell-slugify",
			StopReason: "finished", SamplesInRollout: 1, PromptLength: int32(tokens / 2), Truncated: i%3 == 0,
			DispatchVersion: 7, Staleness: 2,
			RolloutSampled: int32(tokens), MicroBatch: int32(i % 3), Temperature: 0.7,
			Reward: float32(i%2) + 0.25, RewardComponents: map[string]float64{"tests": 0.1 + float64(i),
				"length": -1e-300, "ünïcode \"": 3}}
		for position := range tokens {
			sampled := position >= tokens/2
			s.Tokens = append(s.Tokens, random.Int32N(150_000))
			s.LossMask = append(s.LossMask, sampled)
			s.SamplerLogprobs = append(s.SamplerLogprobs, 0)
			s.Advantages = append(s.Advantages, 0)
			if sampled {
				s.SamplerLogprobs[position], s.Advantages[position] = float32(-random.ExpFloat64()), 0.5-float32(i%2)
			}
		}
		if tokens > 2 {
			middle := int32(tokens*3) / 4
			s.PolicyVersions = []storage.VersionSegment{{Start: int32(tokens / 2), Length: middle - int32(tokens/2),
				Version: 7}, {Start: middle, Length: int32(tokens) - middle, Version: 9, Stale: i%2 == 0}}
			s.Turns = []storage.TurnSpan{{Start: int32(tokens / 2), Length: 1, Turn: 3},
				{Start: middle, Length: int32(tokens) - middle, Turn: turn}}
			s.Annotations = []storage.Annotation{{Turn: &turn, Start: middle, Length: 1, Reward: &reward,
				Text: "hier fehlt \"ü\"", Values: map[string]float64{"b": 1, "a": 2}}, {Note: "turn 9 is not there"}}
		}
		b.Samples = append(b.Samples, s)
	}
	return b
}

func encodeTrajectory(t testing.TB, trajectory *storage.Trajectory) []byte {
	t.Helper()
	file, err := storage.EncodeTrajectory(trajectory)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func encodeBatch(t testing.TB, batch *storage.Batch) []byte {
	t.Helper()
	file, err := storage.EncodeBatch(batch)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func TestTrajectoryRoundTrip(t *testing.T) {
	textOnly := &storage.Trajectory{Run: "r", Rollout: "x", TextOnly: true, DispatchVersion: -1,
		Messages: []storage.Message{{Role: "user", Content: "hello", PolicyVersion: -1},
			{Index: 1, Role: "assistant", PolicyVersion: 3}}}
	for name, want := range map[string]*storage.Trajectory{"small": makeTrajectory(3, 5),
		"large": makeTrajectory(40, 400), "text only": textOnly,
		"no messages": {Run: "r", Rollout: "x"}, "no tokens": makeTrajectory(2, 0), "empty": {}} {
		t.Run(name, func(t *testing.T) {
			got, err := storage.DecodeTrajectory(encodeTrajectory(t, want))
			if err != nil {
				t.Errorf("%s: %v", name, err)
			} else if !reflect.DeepEqual(got, want) {
				t.Errorf("%s: read back another trajectory:\n got %.2000v\nwant %.2000v", name, got, want)
			}
		})
	}
}

func TestBatchRoundTrip(t *testing.T) {
	for name, want := range map[string]*storage.Batch{"small": makeBatch(3, 8), "large": makeBatch(64, 2000),
		"no samples": {Run: "r", Feed: "f", Ranks: 1},
		"no tokens": {Run: "r", Feed: "f", Ranks: 1, Whole: storage.Counts{Samples: 1, Rollouts: 1},
			Samples: []storage.Sample{{TextOnly: true, Reward: 1, MicroBatch: -1}}},
		"an empty rank": {Run: "r", Feed: "f", Rank: 1, Ranks: 2, MicroBatches: 4,
			Whole: storage.Counts{Samples: 3, SampledTokens: 30, Rollouts: 2}},
		"of many ranks": makeBatch(1, 1), "odd": makeBatch(5, 13)} {
		t.Run(name, func(t *testing.T) {
			got, err := storage.DecodeBatch(encodeBatch(t, want))
			if err != nil {
				t.Errorf("%s: %v", name, err)
			} else if !reflect.DeepEqual(got, want) {
				t.Errorf("%s: read back another batch:\n got %.2000v\nwant %.2000v", name, got, want)
			}
		})
	}
}

// TestEncodingIsDeterministic: a redelivered batch must have the same bytes, whatever the number of
// processors and what ran before.
func TestEncodingIsDeterministic(t *testing.T) {
	trajectory, batch := makeTrajectory(20, 500), makeBatch(16, 4000)
	wantTrajectory, wantBatch := encodeTrajectory(t, trajectory), encodeBatch(t, batch)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for processors := 1; processors <= 4; processors++ {
		runtime.GOMAXPROCS(processors)
		encodeBatch(t, makeBatch(5, 100*processors)) // leaves other bytes in memory that is used again
		if !bytes.Equal(encodeTrajectory(t, trajectory), wantTrajectory) {
			t.Errorf("another trajectory file with %d processors", processors)
		}
		if !bytes.Equal(encodeBatch(t, batch), wantBatch) {
			t.Errorf("another batch file with %d processors", processors)
		}
	}
}

func TestEncodeRefusesWhatDisagrees(t *testing.T) {
	tests := []struct {
		name   string
		change func(*storage.Message)
		want   string
	}{
		{"logprobs", func(m *storage.Message) { m.Logprobs = m.Logprobs[1:] }, "message 2: 5 token ids, 4 logprobs"},
		{"mask", func(m *storage.Message) { m.LossMask = nil }, "message 2: 5 token ids"},
		{"NaN", func(m *storage.Message) { m.Logprobs[3] = float32(math.NaN()) }, "entry 3 of the logprobs is NaN"},
		{"infinite", func(m *storage.Message) { m.Logprobs[0] = float32(math.Inf(-1)) },
			"entry 0 of the logprobs is -Inf"},
		{"token", func(m *storage.Message) { m.TokenIDs[4] = -100 }, "token 4 has the id -100"},
		{"version", func(m *storage.Message) { m.PolicyVersion = -2 }, "policy version -2 is negative"},
		{"tool calls", func(m *storage.Message) { m.ToolCalls = `{"a":1}` }, "not a JSON array"},
		{"broken tool calls", func(m *storage.Message) { m.ToolCalls = `[{"a":1}` }, "not a JSON array"},
		{"turn", func(m *storage.Message) { m.Turn = -1 }, "turn -1"},
		{"time", func(m *storage.Message) { m.StartedAt = time.Date(3000, 1, 1, 0, 0, 0, 0, time.UTC) },
			"out of the range"},
	}
	for _, test := range tests {
		trajectory := makeTrajectory(2, 5)
		test.change(&trajectory.Messages[2])
		_, err := storage.EncodeTrajectory(trajectory)
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "g000123-4") {
			t.Errorf("%s: %v, want %q and the rollout", test.name, err, test.want)
		}
	}
}

func TestEncodeRefusesABadSample(t *testing.T) {
	tests := []struct {
		name   string
		change func(*storage.Sample)
		want   string
	}{
		{"advantages", func(s *storage.Sample) { s.Advantages = nil }, "8 sampler logprobs and 0 advantages"},
		{"advantage", func(s *storage.Sample) { s.Advantages[1] = float32(math.Inf(1)) },
			"entry 1 of the advantages is +Inf"},
		{"reward", func(s *storage.Sample) { s.Reward = float32(math.NaN()) }, "reward is NaN"},
		{"component", func(s *storage.Sample) { s.RewardComponents["tests"] = math.NaN() },
			`reward component "tests" is NaN`},
		{"prompt", func(s *storage.Sample) { s.PromptLength = 9 }, "prompt length 9 of 8 tokens"},
		{"overlap", func(s *storage.Sample) { s.PolicyVersions[1].Start = 5 }, "policy version segment 1"},
		{"past the end", func(s *storage.Sample) { s.PolicyVersions[1].Length = 3 }, "policy version segment 1"},
		{"overflow", func(s *storage.Sample) { s.PolicyVersions[1].Length = math.MaxInt32 },
			"policy version segment 1"},
		{"index", func(s *storage.Sample) { s.SampleIndex = 1 }, "sample index 1 of 1"},
		{"text only", func(s *storage.Sample) { s.TextOnly = true }, "8 tokens in a sample marked text only"},
		{"token", func(s *storage.Sample) { s.Tokens[3] = -1 }, "token 3 has the id -1"},
		{"turns overlap", func(s *storage.Sample) { s.Turns[1].Start = 4 }, "turn span 1"},
		{"turn past the end", func(s *storage.Sample) { s.Turns[1].Length = math.MaxInt32 }, "turn span 1"},
		{"annotation past the end", func(s *storage.Sample) { s.Annotations[0].Length = 3 },
			"annotation 0 (start 6, length 3) does not fit in 8 tokens"},
		{"annotation reward", func(s *storage.Sample) { inf := math.Inf(1); s.Annotations[0].Reward = &inf },
			"the reward of annotation 0 is +Inf"},
		{"annotation value", func(s *storage.Sample) { s.Annotations[0].Values["a"] = math.NaN() },
			`value "a" of annotation 0 is NaN`},
		{"micro-batch", func(s *storage.Sample) { s.MicroBatch = 3 }, "micro-batch 3 of 3"},
		{"not packed", func(s *storage.Sample) { s.MicroBatch = -1 }, "micro-batch -1 of 3"},
		{"normaliser", func(s *storage.Sample) { s.RolloutSampled = 3 },
			"3 tokens were sampled in the rollout, 4 of them in this sample alone"},
		{"temperature", func(s *storage.Sample) { s.Temperature = -1 }, "temperature is -1"},
	}
	for _, test := range tests {
		batch := makeBatch(3, 8)
		test.change(&batch.Samples[1])
		if _, err := storage.EncodeBatch(batch); err == nil || !strings.Contains(err.Error(), test.want) ||
			!strings.Contains(err.Error(), "sample 1") {
			t.Errorf("%s: %v, want %q and the sample", test.name, err, test.want)
		}
	}
}

func TestEncodeRefusesABadBatch(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*storage.Batch)
		want   string
	}{
		"no ranks":        {func(b *storage.Batch) { b.Ranks = 0 }, "rank 1 of 0"},
		"rank":            {func(b *storage.Batch) { b.Rank = 2 }, "rank 2 of 2"},
		"step":            {func(b *storage.Batch) { b.Step = -1 }, "step -1 is negative"},
		"micro-batches":   {func(b *storage.Batch) { b.MicroBatches = -1 }, "-1 micro-batches"},
		"unpacked":        {func(b *storage.Batch) { b.MicroBatches = 0 }, "micro-batch 0 of 0"},
		"fewer than here": {func(b *storage.Batch) { b.Whole.Samples = 2 }, "of a batch of"},
		"one rank's all":  {func(b *storage.Batch) { b.Rank, b.Ranks = 0, 1 }, "over 1 ranks"},
	} {
		t.Run(name, func(t *testing.T) {
			batch := makeBatch(3, 8)
			c.change(batch)
			if _, err := storage.EncodeBatch(batch); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %q", name, err, c.want)
			}
		})
	}
}

func TestEncodeRefusesTooMuch(t *testing.T) {
	if testing.Short() {
		t.Skip("needs half a gigabyte of memory")
	}
	tokens := make([]int32, storage.MaxArrowTokens+1)
	message := storage.Message{TokenIDs: tokens, Logprobs: make([]float32, len(tokens)),
		LossMask: make([]bool, len(tokens)), PolicyVersion: -1}
	_, err := storage.EncodeTrajectory(&storage.Trajectory{Messages: []storage.Message{message}})
	if !errors.Is(err, storage.ErrTooLarge) {
		t.Errorf("too many tokens: %v", err)
	}
	_, err = storage.EncodeTrajectory(&storage.Trajectory{Task: strings.Repeat("x", 65<<10)})
	if !errors.Is(err, storage.ErrTooLarge) {
		t.Errorf("too much metadata: %v", err)
	}
}

func TestBytesThatAreNotUTF8AreRepaired(t *testing.T) {
	want := makeTrajectory(1, 2)
	want.Messages[3].Content = "before \xff\xfe after"
	want.Rollout = "x\xff"
	got, err := storage.DecodeTrajectory(encodeTrajectory(t, want))
	if err != nil {
		t.Fatal(err)
	}
	if got.Messages[3].Content != "before \uFFFD after" || got.Rollout != "x\uFFFD" {
		t.Errorf("content %q, rollout %q", got.Messages[3].Content, got.Rollout)
	}
}

func TestDecodeNamesTheWrongKind(t *testing.T) {
	_, err := storage.DecodeBatch(encodeTrajectory(t, makeTrajectory(1, 2)))
	if !errors.Is(err, storage.ErrCorrupt) || !strings.Contains(err.Error(), `kind is "trajectory", want "batch"`) {
		t.Errorf("a trajectory read as a batch: %v", err)
	}
}

func TestSamples(t *testing.T) {
	trajectory := &storage.Trajectory{Run: "r", Group: "g", Rollout: "g-1", Task: "t", StopReason: "turn_limit",
		DispatchVersion: 3, Messages: []storage.Message{
			{Role: "user", TokenIDs: []int32{1, 2}, Logprobs: []float32{0, 0},
				LossMask: []bool{false, false}, PolicyVersion: -1},
			{Role: "assistant", TokenIDs: []int32{3, 4, 5}, Logprobs: []float32{0, -1, -2},
				LossMask: []bool{false, true, true}, PolicyVersion: 3},
			{Role: "tool", TokenIDs: []int32{6}, Logprobs: []float32{0}, LossMask: []bool{false}, PolicyVersion: -1},
			{Role: "assistant", TokenIDs: []int32{7, 8}, Logprobs: []float32{-3, -4}, LossMask: []bool{true, true},
				PolicyVersion: 3, FinishReason: "length"},
			{Role: "assistant", Turn: 1, TokenIDs: []int32{9}, Logprobs: []float32{-5}, LossMask: []bool{true},
				PolicyVersion: 4, FinishReason: "tool_calls"},
			{Role: "user", Segment: 1, TokenIDs: []int32{10}, Logprobs: []float32{0},
				LossMask: []bool{false}, PolicyVersion: -1},
			{Role: "assistant", Turn: 2, Segment: 1, TokenIDs: []int32{11},
				Logprobs: []float32{-6}, LossMask: []bool{true},
				PolicyVersion: 5, FinishReason: "length"},
		}}
	want := []storage.Sample{
		{Run: "r", Group: "g", Rollout: "g-1", Task: "t", StopReason: "turn_limit", DispatchVersion: 3,
			SamplesInRollout: 2, PromptLength: 3, RolloutSampled: 6, MicroBatch: -1,
			Tokens:          []int32{1, 2, 3, 4, 5, 6, 7, 8, 9},
			LossMask:        []bool{false, false, false, true, true, false, true, true, true},
			SamplerLogprobs: []float32{0, 0, 0, -1, -2, 0, -3, -4, -5},
			PolicyVersions: []storage.VersionSegment{{Start: 3, Length: 2, Version: 3},
				{Start: 6, Length: 2, Version: 3}, {Start: 8, Length: 1, Version: 4}},
			Turns: []storage.TurnSpan{{Start: 3, Length: 2}, {Start: 6, Length: 2},
				{Start: 8, Length: 1, Turn: 1}}},
		{Run: "r", Group: "g", Rollout: "g-1", Task: "t", StopReason: "turn_limit", DispatchVersion: 3, SampleIndex: 1,
			SamplesInRollout: 2, PromptLength: 1, RolloutSampled: 6, MicroBatch: -1,
			Truncated: true, Tokens: []int32{10, 11}, LossMask: []bool{false, true}, SamplerLogprobs: []float32{0, -6},
			PolicyVersions: []storage.VersionSegment{{Start: 1, Length: 1, Version: 5}},
			Turns:          []storage.TurnSpan{{Start: 1, Length: 1, Turn: 2}}},
	}
	if got := trajectory.Samples(); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if got := (&storage.Trajectory{}).Samples(); len(got) != 0 {
		t.Errorf("samples of nothing: %+v", got)
	}
}
