package generator

import (
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference/tokenstest"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// byTokensOnly has a run ask its endpoint by tokens.
func byTokensOnly(c *runfile.RunConfig) { c.EndpointAPI = runfile.APITokens }

// thinker is a server whose model thinks in every turn, calls a tool in all but the last, and is
// done behind so many answers of tools.
func thinker(t *testing.T, template string, calls int) *tokenstest.Server {
	t.Helper()
	s := tokenstest.New(t, template, nil)
	s.Say = func(prompt string) (string, string) {
		seen := strings.Count(prompt, "seen ")
		if seen < calls {
			return s.Template.Answer("I think of number "+string(rune('0'+seen)), "Reading.",
				"path"+string(rune('a'+seen))), ""
		}
		return s.Template.Answer("All is read.", "Done.", ""), ""
	}
	return s
}

// TestTokensInTokensOut: a rollout of several turns of a model that thinks is one sample with every
// template, though another generator asks for each turn. Its tokens are those that the server saw
// and sampled, one for one.
func TestTokensInTokensOut(t *testing.T) {
	log := natstest.Log(t)
	const calls = 3
	type kind struct{ template, engine string }
	kinds := []kind{{"Qwen3", "sglang"}, {"GLM", "sglang"}}
	for template := range tokenstest.Templates {
		kinds = append(kinds, kind{template, "vllm"}, kind{template, "llamacpp"})
	}
	for _, kind := range kinds {
		s := thinker(t, kind.template, calls)
		switch kind.engine {
		case "llamacpp":
			s.LlamaCPP()
		case "sglang":
			s.SGLang()
		}
		template := kind.template + "-" + kind.engine
		open(t, log, template, s.URL, byTokensOnly)
		for i := range calls {
			stop := start(t, log, nil)
			turn := turns(t, log, template, i+1)[i]
			stop() // the next generator knows what is on the log, and no more
			if len(turn.ToolCalls) != 1 || turn.Reasoning == nil || turn.NewSegment != (i == 0) {
				t.Fatalf("%s: turn %d is %+v", template, i, turn)
			}
			answerTools(t, log, template, turn)
		}
		stop := start(t, log, nil)
		f, trajectory := finished(t, log, template)
		stop()
		samples, asked := trajectory.Samples(), s.Turns()
		if f.Turns != calls+1 || f.Samples != 1 || f.TextOnly || len(samples) != 1 || len(asked) != calls+1 {
			t.Fatalf("%s: %d samples, the server was asked %d times: %+v", template, len(samples), len(asked), f)
		}
		var tokens []int32
		var mask []bool
		var logprobs []float32
		for i, turn := range turns(t, log, template, calls+1) {
			if !slices.Equal(slices.Concat(tokens, turn.PromptDelta), asked[i].Prompt) ||
				!slices.Equal(turn.TokenIDs, asked[i].Sampled) {
				t.Errorf("%s: turn %d records other tokens than the server saw and sampled", template, i)
			}
			tokens = slices.Concat(asked[i].Prompt, asked[i].Sampled)
			mask = append(append(mask, make([]bool, len(turn.PromptDelta))...),
				slices.Repeat([]bool{true}, len(turn.TokenIDs))...)
			logprobs = append(logprobs, make([]float32, len(turn.PromptDelta))...)
			for k := range turn.TokenIDs {
				logprobs = append(logprobs, tokenstest.Logprob(k))
			}
		}
		for k, p := range samples[0].SamplerLogprobs { // llama.cpp gives probabilities
			if k < len(logprobs) && p != logprobs[k] && kind.engine == "llamacpp" &&
				math.Abs(float64(p-logprobs[k])) < 1e-6 {
				logprobs[k] = p
			}
		}
		equal(t, template+": tokens", samples[0].Tokens, tokens)
		equal(t, template+": loss mask", samples[0].LossMask, mask)
		equal(t, template+": log-probabilities", samples[0].SamplerLogprobs, logprobs)
		if text := s.Tokenizer.Decode(tokens); strings.Count(text, "I think of number") != calls ||
			strings.Count(text, "</think>") < calls+1 {
			t.Errorf("%s: thoughts are missing in %q", template, text)
		}
		// the second turn has two
		if n := s.Requests("/v1/chat/completions/render"); kind.engine == "vllm" && n != 2+calls {
			t.Errorf("%s: %d renderings", template, n)
		}
	}
}

// TestTokensAfterAKill: a generator that is killed with a turn in its hands leaves nothing behind;
// the next one asks for the same tokens.
func TestTokensAfterAKill(t *testing.T) {
	log := natstest.Log(t)
	s := thinker(t, "Qwen3", 1)
	open(t, log, "r", s.URL, byTokensOnly)
	stop := start(t, log, nil)
	turn := turns(t, log, "r", 1)[0]
	stop()
	answerTools(t, log, "r", turn)
	answered := servicetest.All(t, log, "r", events.ToolsCompletedType)[0]
	for range 2 {
		if facts, err := service(t, log).Handle(t.Context(), messageOf(log, answered)); err != nil || len(facts) != 2 {
			t.Fatalf("%d facts: %v", len(facts), err)
		}
	}
	asked := s.Turns()
	if len(asked) != 3 || !slices.Equal(asked[1].Prompt, asked[2].Prompt) {
		t.Errorf("the server was asked %d times, and for another prompt", len(asked))
	}
}

// TestTokensOfAnotherHistory: where the new messages cannot be told from the old ones, a new sample
// begins with all of them, and the log says why.
func TestTokensOfAnotherHistory(t *testing.T) {
	log := natstest.Log(t)
	start(t, log, nil)
	s := thinker(t, "Kimi", 2)
	s.Change = func(path string, answer map[string]any) {
		ids, renders := answer["token_ids"].([]int32)
		if text := s.Tokenizer.Decode(ids); renders && strings.Count(text, "seen ") == 2 &&
			strings.HasSuffix(text, s.Template.Prompt) {
			answer["token_ids"] = slices.Concat(s.Tokenizer.Encode("A new day.", false), ids)
		}
	}
	open(t, log, "r", s.URL, byTokensOnly)
	for i := range 2 {
		answerTools(t, log, "r", turns(t, log, "r", i+1)[i])
	}
	f, trajectory := finished(t, log, "r")
	last := turns(t, log, "r", 3)[2]
	if f.Samples != 2 || !last.NewSegment || last.SegmentCause != events.CauseHistory ||
		!slices.Equal(last.PromptDelta, s.Turns()[2].Prompt) {
		t.Errorf("%d samples, the last turn is %+v", f.Samples, last)
	}
	equal(t, "second sample", trajectory.Samples()[1].Tokens, slices.Concat(last.PromptDelta, last.TokenIDs))
}

// TestTokensFillTheContext: the prompt is counted and no guess, thoughts and all. A turn has what
// is left, and the next one that does not fit ends the rollout unasked.
func TestTokensFillTheContext(t *testing.T) {
	log := natstest.Log(t)
	for name, limit := range map[string]func(*tokenstest.Server, *runfile.RunConfig, int){
		"of-the-server": func(s *tokenstest.Server, _ *runfile.RunConfig, n int) { s.Context = n },
		"of-the-run":    func(_ *tokenstest.Server, c *runfile.RunConfig, n int) { c.Limits.Context = n },
	} {
		s := thinker(t, "DeepSeek", 100)
		const room = 420
		open(t, log, name, s.URL, func(c *runfile.RunConfig) {
			byTokensOnly(c)
			c.Policy = "m"
			limit(s, c, room)
		})
		ended := drive(t, log, name)
		f := servicetest.Data[events.RolloutFinished](t, ended)
		if ended.Type != events.RolloutFinishedType || f.StopReason != events.StopContext || f.Turns < 2 ||
			f.Turns != len(s.Turns()) {
			t.Fatalf("%s: ended with %s %+v, the server sampled %d turns", name, ended.Type, f, len(s.Turns()))
		}
		for i, turn := range turns(t, log, name, f.Turns) {
			asked := s.Turns()[i]
			if most := room - 1 - len(asked.Prompt); turn.PromptTokens != len(asked.Prompt) ||
				turn.ContextLimit != room || turn.Sampling.MaxTokens != most || most < 1 {
				t.Errorf("%s: turn %d has a prompt of %d tokens, a limit of %d, and %+v", name, i, turn.PromptTokens,
					turn.ContextLimit, turn.Sampling)
			}
		}
		open(t, log, name+"-too-small", s.URL, func(c *runfile.RunConfig) {
			byTokensOnly(c)
			c.Policy = "m"
			limit(s, c, 20)
		})
		ended = drive(t, log, name+"-too-small")
		if f := servicetest.Data[events.RolloutFinished](t, ended); ended.Type != events.RolloutFinishedType ||
			f.StopReason != events.StopContext || f.Turns != 0 {
			t.Errorf("%s: a task that does not fit ends with %s %+v", name, ended.Type, f)
		}
	}
}

// TestTokensOfSteps: the instruction of the next step follows the last words of the one before,
// whose thoughts templates drop then. The rollout stays one sample.
func TestTokensOfSteps(t *testing.T) {
	log := natstest.Log(t)
	for template := range tokenstest.Templates {
		s := thinker(t, template, 1)
		open(t, log, template, s.URL, func(c *runfile.RunConfig) {
			byTokensOnly(c)
			c.Tasks[0].Steps = []runfile.StepSpec{{Name: "one", Instruction: "Read it."},
				{Name: "two", Instruction: "Say it again."}}
		})
		ended := drive(t, log, template)
		if f := servicetest.Data[events.RolloutFinished](t, ended); ended.Type != events.RolloutFinishedType ||
			f.Turns != 3 || f.Steps != 2 || f.Samples != 1 {
			t.Fatalf("%s: ended with %s %+v", template, ended.Type, f)
		}
		last, asked := turns(t, log, template, 3)[2], s.Turns()
		equal(t, template+": the last prompt", asked[2].Prompt,
			slices.Concat(asked[1].Prompt, asked[1].Sampled, last.PromptDelta))
		if added := s.Tokenizer.Decode(last.PromptDelta); !strings.Contains(added, "Say it again.") ||
			strings.Contains(added, "Done.") || !strings.HasSuffix(added, s.Template.Prompt) {
			t.Errorf("%s: the instruction comes as %q", template, added)
		}
	}
}

// drive goes through a rollout, with a generator of its own for each turn, and
// returns the fact that ends it.
func drive(t *testing.T, log *eventlog.Log, run string) events.Event {
	t.Helper()
	input := servicetest.All(t, log, run, events.RolloutStartedType)[0]
	for {
		facts, err := service(t, log).Handle(t.Context(), messageOf(log, input))
		if err != nil || len(facts) == 0 {
			t.Fatalf("%s: %d facts: %v", run, len(facts), err)
		}
		if _, _, err := (pipeline.Env{Log: log}).Publish(t.Context(), facts); err != nil {
			t.Fatal(err)
		}
		last := facts[len(facts)-1]
		if last.Type == events.StepFinishedType {
			ended := servicetest.Data[events.StepFinished](t, last)
			scored := events.StepScored{Step: ended.Step, Components: map[string]float64{"reward": 1}}
			input = servicetest.Append(t, log, servicetest.Event(t, run, events.StepScoredType, rollout,
				events.Ordinal(ended.Step), scored))
			continue
		}
		if last.Type != events.TurnSampledType {
			return last
		}
		answerTools(t, log, run, servicetest.Data[events.TurnSampled](t, last))
		answered := servicetest.All(t, log, run, events.ToolsCompletedType)
		input = answered[len(answered)-1]
	}
}

// TestEndpointWithoutTokens: a server that does not serve the path of tokens fails the rollout
// with the flag that it lacks.
func TestEndpointWithoutTokens(t *testing.T) {
	log := natstest.Log(t)
	start(t, log, nil)
	s := thinker(t, "Qwen3", 1)
	s.Refuse = http.StatusForbidden
	open(t, log, "r", s.URL, byTokensOnly)
	failed := servicetest.WaitData[events.RolloutFailed](t, log, "r", events.RolloutFailedType, rollout)
	if failed.Class != events.ClassEndpoint || !strings.Contains(failed.Message, "--enable-scale-out") {
		t.Errorf("failed as %+v", failed)
	}
}

// TestSegment: the tokens known are those of the last segment, and none
// behind a turn without tokens.
func TestSegment(t *testing.T) {
	begins := events.TurnSampled{NewSegment: true, PromptDelta: []int32{1, 2}, TokenIDs: []int32{3}}
	goesOn := events.TurnSampled{PromptDelta: []int32{4}, TokenIDs: []int32{5, 6}}
	textOnly := events.TurnSampled{TextOnly: true}
	for name, c := range map[string]struct {
		turns []events.TurnSampled
		want  []int32
	}{
		"no turn":                   {nil, nil},
		"two turns":                 {[]events.TurnSampled{begins, goesOn}, []int32{1, 2, 3, 4, 5, 6}},
		"of the last one":           {[]events.TurnSampled{begins, goesOn, begins}, []int32{1, 2, 3}},
		"a turn without tokens":     {[]events.TurnSampled{textOnly}, nil},
		"behind it":                 {[]events.TurnSampled{begins, textOnly}, nil},
		"a segment behind that one": {[]events.TurnSampled{textOnly, begins}, []int32{1, 2, 3}},
	} {
		ids, _ := segment(&events.Rollout{Turns: c.turns})
		equal(t, name, ids, c.want)
	}
}
