package policy

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

// TestReplayFindsTheSamplersLogprobs: the trainer recomputes from tokens alone
// what the server reported.
func TestReplayFindsTheSamplersLogprobs(t *testing.T) {
	model := someTraining(t, DefaultOptions(), 2).Model()
	compared := 0
	for n, y := range toys() {
		for seed := range uint64(4) {
			sample := y.play(t, model, seed+uint64(n)*10, 6).sample
			decisions, unknown, err := replay(sample.Tokens, sample.LossMask)
			if err != nil || unknown != 0 {
				t.Fatalf("replay: %d unknown, %v", unknown, err)
			}
			next := 0
			for at, token := range sample.Tokens {
				if token < ActionBase {
					continue
				}
				d := decisions[next]
				next++
				got := float32(model.logProbabilities(d.candidates, nil)[d.chosen])
				if d.token != at || got != sample.SamplerLogprobs[at] {
					t.Fatalf("token %d: log-probability %v at %d, the server said %v", at, got, d.token,
						sample.SamplerLogprobs[at])
				}
				compared++
			}
		}
	}
	if compared < 100 {
		t.Errorf("only %d decisions were compared", compared)
	}
}

func TestGenerateIsDeterministic(t *testing.T) {
	y := toys()[0]
	a, b, c := y.play(t, NewModel(), 7, 5), y.play(t, NewModel(), 7, 5), y.play(t, NewModel(), 8, 5)
	if !slices.Equal(a.sample.Tokens, b.sample.Tokens) {
		t.Error("the same seed gave two conversations")
	}
	if slices.Equal(a.sample.Tokens, c.sample.Tokens) {
		t.Error("two seeds gave the same conversation")
	}
	cold := Prompt{Tools: toyTools, Messages: a.messages[:2]}
	first, err := NewModel().Generate(cold)
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(20) {
		cold.Seed = seed
		if other, err := NewModel().Generate(cold); err != nil || other.Content != first.Content {
			t.Fatalf("temperature 0: %q and %q, %v", first.Content, other.Content, err)
		}
	}
}

// TestTemperature: sampling follows p^(1/T); the reported log-probability stays the model's.
func TestTemperature(t *testing.T) {
	model := NewModel()
	messages := []Message{{Role: "user", Content: "Repair it. Run `sh test.sh`."}}
	for _, temperature := range []float64{0.5, 1, 3} {
		counts := map[string]int{}
		logprobs := map[string]float64{}
		const draws = 4000
		for seed := range uint64(draws) {
			a, err := model.Generate(Prompt{Tools: toyTools, Messages: messages, Temperature: temperature, Seed: seed})
			if err != nil {
				t.Fatal(err)
			}
			kind, _, _ := strings.Cut(a.Content, "\n")
			counts[kind]++
			logprobs[kind] = float64(a.Logprobs[0])
		}
		sum, total := 0.0, 0.0
		for _, l := range logprobs {
			sum += math.Exp(l / temperature)
			total += math.Exp(l)
		}
		if math.Abs(total-1) > 1e-5 {
			t.Errorf("temperature %g: the reported probabilities add up to %g", temperature, total)
		}
		for kind, l := range logprobs {
			want := math.Exp(l/temperature) / sum
			got := float64(counts[kind]) / draws
			if math.Abs(got-want) > 4*math.Sqrt(want*(1-want)/draws)+1e-3 {
				t.Errorf("temperature %g: %q drawn with frequency %.4f, want %.4f", temperature, kind, got, want)
			}
		}
	}
}

// TestLengthLimit: a cut answer has no calls, and renders to what was sampled.
func TestLengthLimit(t *testing.T) {
	e := toys()[0].play(t, NewModel(), 3, 4)
	messages := e.messages[:len(e.messages)-1]
	for messages[len(messages)-1].Role != "tool" {
		messages = messages[:len(messages)-1]
	}
	model := NewModel()
	full, err := model.Generate(Prompt{Tools: toyTools, Messages: messages, Temperature: 1, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	for limit := 1; limit < len(full.TokenIDs); limit += 7 {
		a, err := model.Generate(Prompt{Tools: toyTools, Messages: messages, Temperature: 1, Seed: 1, MaxTokens: limit})
		if err != nil {
			t.Fatal(err)
		}
		if len(a.TokenIDs) > limit {
			t.Fatalf("limit %d: %d tokens", limit, len(a.TokenIDs))
		}
		next := Render(toyTools, append(slices.Clone(messages),
			Message{Role: "assistant", Content: a.Content, ToolCalls: a.ToolCalls}), true)
		sampled := append(slices.Clone(a.PromptTokenIDs), a.TokenIDs...)
		if !slices.Equal(next[:len(sampled)], sampled) {
			t.Fatalf("limit %d: the next prompt does not extend %q", limit, a.Content)
		}
		if a.FinishReason == "length" && len(a.ToolCalls) > 0 {
			t.Fatalf("limit %d: a cut answer calls tools", limit)
		}
	}
}

func TestWithoutToolsNothingIsCalled(t *testing.T) {
	a, err := NewModel().Generate(Prompt{Messages: []Message{{Role: "user", Content: "Run `sh test.sh`."}},
		Temperature: 1})
	if err != nil || len(a.ToolCalls) != 0 || a.Content != kindFinish || a.FinishReason != "stop" {
		t.Errorf("%+v, %v", a, err)
	}
}

func BenchmarkTurn(b *testing.B) {
	model := NewModel()
	messages := toys()[1].play(&testing.T{}, model, 3, 4).messages
	for messages[len(messages)-1].Role != "tool" {
		messages = messages[:len(messages)-1]
	}
	b.ReportMetric(float64(len(Render(toyTools, messages, true))), "tokens")
	b.ReportAllocs()
	for seed := uint64(0); b.Loop(); seed++ {
		if _, err := model.Generate(Prompt{Tools: toyTools, Messages: messages, Temperature: 1,
			Seed: seed}); err != nil {
			b.Fatal(err)
		}
	}
}

// TestHostileConversation: files that grow with every edit, endless lines and a repository of
// thousands of files are worked on as far as the bounds go.
func TestHostileConversation(t *testing.T) {
	var messages []Message
	say := func(name, arguments, result string) {
		id := fmt.Sprint(len(messages))
		messages = append(messages, Message{Role: "assistant",
			ToolCalls: []ToolCall{{ID: id, Function: Function{Name: name, Arguments: arguments}}}},
			Message{Role: "tool", ToolCallID: id, Content: result})
	}
	messages = append(messages, Message{Role: "user", Content: strings.Repeat("`sh a.sh` ", 10000)})
	say("list_dir", `{"target_directory":"."}`, strings.Repeat("../../etc/passwd\n", 1000)+"a.sh\nb/\nb/\n")
	say("list_dir", `{"target_directory":"/"}`, func() (all string) {
		for i := range 5000 {
			all += fmt.Sprintf("f%d.sh\n", i)
		}
		return all
	}())
	say("read_file", `{"target_file":"a.sh"}`, "1|a=1\n2|"+strings.Repeat("((", 100000)+"\n99999999999999999999|x\n")
	say("write", `{"file_path":"a.sh","contents":"a=1\nb=$a"}`, "Wrote it.")
	for range 300 {
		say("search_replace", `{"file_path":"a.sh","old_string":"a=1\n","new_string":"a=1\nc=2\n"}`, "Edited.")
	}
	say("run_terminal_cmd", `{"command":"sh a.sh"}`, strings.Repeat("FAIL not ok error\n", 20000)+"exit code: 1")
	a, err := NewModel().Generate(Prompt{Tools: toyTools, Messages: messages, Temperature: 1})
	if err != nil || a.Content == "" {
		t.Fatalf("%+v, %v", a, err)
	}
}
