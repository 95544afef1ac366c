package intake

import (
	"math"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/storage"
)

// twoTurns is a trajectory of a prompt, an answer, a tool's result and another answer.
func twoTurns(change func(m []storage.Message)) *storage.Trajectory {
	context := func(role string, ids ...int32) storage.Message {
		return storage.Message{Role: role, Content: role, PolicyVersion: -1, TokenIDs: ids,
			Logprobs: make([]float32, len(ids)), LossMask: make([]bool, len(ids))}
	}
	said := func(turn int32, ids ...int32) storage.Message {
		m := storage.Message{Role: "assistant", Content: "text", Turn: turn, TokenIDs: ids}
		for range ids {
			m.Logprobs, m.LossMask = append(m.Logprobs, -1), append(m.LossMask, true)
		}
		return m
	}
	t := &storage.Trajectory{Run: "r", Group: "x1", Rollout: "x1-0", Task: "a", StopReason: "finished",
		Messages: []storage.Message{context("user", 1, 2), said(0, 3, 4), context("tool", 5), said(1, 6)}}
	for i := range t.Messages {
		t.Messages[i].Index = int32(i)
	}
	if change != nil {
		change(t.Messages)
	}
	return t
}

func without(m *storage.Message) { m.TokenIDs, m.Logprobs, m.LossMask = nil, nil, nil }

// TestSamplesWithHoles: a file of which a sample lacks tokens, or has log-probabilities
// that cannot be, is refused.
func TestSamplesWithHoles(t *testing.T) {
	for name, c := range map[string]struct {
		change func(m []storage.Message)
		want   string
	}{
		"whole":                         {nil, ""},
		"a certain token":               {func(m []storage.Message) { m[1].Logprobs[0] = 0 }, ""},
		"text before any sampled token": {func(m []storage.Message) { m[1].LossMask = []bool{false, true} }, ""},
		"history with a later prompt": {func(m []storage.Message) {
			without(&m[0])
			m[1].LossMask = []bool{false, false}
			m[1].Logprobs = []float32{0, 0}
		}, ""},
		"several messages, one's tokens": {func(m []storage.Message) {
			m[2].Content, m[3].TokenIDs, m[3].Logprobs, m[3].LossMask = "", []int32{5, 6},
				[]float32{0, -1}, []bool{false, true}
			without(&m[2])
		}, ""},
		"a second sample without its prompt": {func(m []storage.Message) { m[3].Segment = 1 },
			"message 3: its sample begins"},
		"no tokens of the prompt": {func(m []storage.Message) { without(&m[0]) },
			"message 1: its sample begins"},
		"no tokens of the tool": {func(m []storage.Message) { without(&m[2]) },
			"message 3: messages between"},
		"no tokens of the second answer": {func(m []storage.Message) { without(&m[3]) },
			"message 3: it was sampled"},
		"a log-probability above 0": {func(m []storage.Message) { m[1].Logprobs[1] = 0.001 },
			"logprobs of message 1"},
		"above 0 where nothing was sampled": {func(m []storage.Message) { m[2].Logprobs[0] = 3 },
			"logprobs of message 2"},
		"vLLM's word for none": {func(m []storage.Message) { m[1].Logprobs[1] = -9999 },
			"logprobs of message 1: token 1 has -9999"},
		"lower than any that is sampled": {func(m []storage.Message) { m[1].Logprobs[1] = -1e30 },
			"logprobs of message 1"},
		"none where nothing was sampled": {func(m []storage.Message) { m[2].Logprobs[0] = -9999 },
			"logprobs of message 2"},
		"infinite": {func(m []storage.Message) { m[1].Logprobs[1] = float32(math.Inf(1)) },
			"logprobs of message 1"},
		"infinitely unlikely": {func(m []storage.Message) { m[1].Logprobs[1] = float32(math.Inf(-1)) },
			"logprobs of message 1"},
		"no number": {func(m []storage.Message) { m[1].Logprobs[1] = float32(math.NaN()) },
			"logprobs of message 1"},
	} {
		err := admitSamples(twoTurns(c.change))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestImpossibleFilesAreRefused states such files.
func TestImpossibleFilesAreRefused(t *testing.T) {
	log := house(t)
	start(t, log)
	o := outsider{t, log, "r"}
	o.must(events.GroupOpenedType, "x1", o.opened())
	o.must(events.RolloutStartedType, "x1-0", o.started(0))
	for name, change := range map[string]func(tr *storage.Trajectory){
		"above 0": func(tr *storage.Trajectory) { tr.Messages[1].Logprobs[0] = 0.25 },
		"prompt":  func(tr *storage.Trajectory) { without(&tr.Messages[0]) },
	} {
		if refused := o.state(events.RolloutFinishedType,
			"x1-0", o.finished("x1-0", change)); !strings.Contains(refused, name) {
			t.Errorf("%s: %q", name, refused)
		}
	}
	o.must(events.RolloutFinishedType, "x1-0", o.finished("x1-0", nil))
}

// TestTurnsWithHoles: a turn says how long its prompt is and what it continues;
// what disagrees is refused.
func TestTurnsWithHoles(t *testing.T) {
	log := house(t)
	start(t, log)
	o := outsider{t, log, "r"}
	o.must(events.GroupOpenedType, "x1", o.opened())
	o.must(events.RolloutStartedType, "x1-0", o.started(0))
	o.must(events.TurnSampledType, "x1-0", sampledTurn(0,
		func(s *events.TurnSampled) { s.PromptTokens, s.CompletionTokens = 2, 1 }))
	o.must(events.TurnSampledType, "x1-0", sampledTurn(1,
		func(s *events.TurnSampled) { s.PromptTokens, s.CompletionTokens = 5, 1 }))
	o.must(events.TurnSampledType, "x1-0", sampledTurn(2, func(s *events.TurnSampled) {
		s.TextOnly, s.TokenIDs, s.Logprobs, s.PromptDelta, s.NewSegment = true, nil, nil, nil, true
	}))
	for name, c := range map[string]struct {
		change func(s *events.TurnSampled)
		want   string
	}{
		"another prompt": {func(s *events.TurnSampled) { *s.After, s.PromptTokens = 1, 5 },
			"prompt_tokens 5: the turn's prompt has 8"},
		"more was sampled": {func(s *events.TurnSampled) { *s.After, s.CompletionTokens = 1, 2 },
			"completion_tokens 2"},
		"text without tokens": {func(s *events.TurnSampled) { *s.After, s.TokenIDs, s.Logprobs = 1, nil, nil },
			"token_ids"},
		"a prompt without": {func(s *events.TurnSampled) { *s.After, s.PromptDelta = 1, nil }, "prompt_delta"},
		"after text":       {func(s *events.TurnSampled) { *s.After = 2 }, "after 2: that turn has no tokens"},
		"after the middle": {func(s *events.TurnSampled) { *s.After = 0 }, "after 0: turn 1 continues"},
		"an infinite one":  {func(s *events.TurnSampled) { *s.After, s.Logprobs[0] = 1, 0.5 }, "above 0"},
	} {
		if refused := o.state(events.TurnSampledType, "x1-0",
			sampledTurn(3, c.change)); !strings.Contains(refused, c.want) {
			t.Errorf("%s: %q does not say %q", name, refused, c.want)
		}
	}
	o.must(events.TurnSampledType, "x1-0", sampledTurn(3,
		func(s *events.TurnSampled) { *s.After, s.PromptTokens = 1, 8 }))
}
