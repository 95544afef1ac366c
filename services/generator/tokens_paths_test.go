package generator

import (
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference/tokenstest"
)

// TestSummaryByTokens: behind a summary the prompt is a rendering of its own, not the tokens that
// it stands for. The rest of each segment goes on token by token.
func TestSummaryByTokens(t *testing.T) {
	log := natstest.Log(t)
	start(t, log, nil)
	s := tokenstest.New(t, "Qwen3", nil)
	s.Context = 500
	summaries := 0
	s.Say = func(prompt string) (string, string) {
		switch {
		case strings.Contains(prompt, sumUp):
			summaries++
			return s.Template.Answer("What was it?", "All is read so far.", ""), ""
		case summaries == 2:
			return s.Template.Answer("Enough.", "Done.", ""), ""
		}
		return s.Template.Answer("More.", "Reading.", "path"), ""
	}
	open(t, log, "r", s.URL, summarising(func(c *runfile.RunConfig) {
		byTokensOnly(c)
		c.Policy, c.Sampling.MaxTokens = "m", 100
	}))
	f, trajectory, r := play(t, log, "r", "seen")
	if segments := strings.Split(shape(r), "|"); len(segments) != 3 || segments[2] != "f" || f.Samples != 3 ||
		f.TextOnly || !strings.HasSuffix(segments[0], "ts") || segments[0] != segments[1] {
		t.Fatalf("%s: %+v", shape(r), f)
	}
	var sampled [][]int32
	var prompt []int32
	for i, asked := range s.Turns() {
		turn := r.Turns[i]
		if turn.NewSegment {
			prompt = nil
		}
		if prompt = slices.Concat(prompt, turn.PromptDelta); !slices.Equal(prompt, asked.Prompt) {
			t.Errorf("turn %d was asked with other tokens than the log has", i)
		}
		prompt = slices.Concat(prompt, turn.TokenIDs)
		sampled = append(sampled, asked.Sampled)
	}
	checkSegments(t, "r", r, trajectory, sampled)
}

// TestVersionsByTokens: the path of tokens reports the versions of a turn's tokens, too.
func TestVersionsByTokens(t *testing.T) {
	log := natstest.Log(t)
	start(t, log, nil)
	s := thinker(t, "Qwen3", 0)
	s.Change = func(_ string, answer map[string]any) {
		choices, _ := answer["choices"].([]any)
		if len(choices) == 0 {
			return
		}
		choice := choices[0].(map[string]any)
		if ids, samples := choice["token_ids"].([]int32); samples {
			choice["weight_versions"] = []any{map[string]any{"version": "default", "start": 0, "end": 2},
				map[string]any{"version": "0", "start": 2, "end": len(ids)}}
		}
	}
	open(t, log, "r", s.URL, byTokensOnly)
	finished(t, log, "r")
	turn := turns(t, log, "r", 1)[0]
	want := []events.VersionSpan{{Version: runfile.UnknownVersion, Start: 0, End: 2},
		{Version: 0, Start: 2, End: len(turn.TokenIDs)}}
	if !slices.Equal(turn.VersionSpans, want) || turn.PolicyVersion != runfile.UnknownVersion {
		t.Errorf("version %d, spans %+v; want %+v", turn.PolicyVersion, turn.VersionSpans, want)
	}
}
