package inference_test

import (
	"errors"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/inference/tokenstest"
)

// TestTurnsOfEngines: each kind of server reads thoughts, words and calls in what was sampled, and
// gives the tokens with their log-probabilities.
func TestTurnsOfEngines(t *testing.T) {
	for engine, as := range engines {
		for name := range tokenstest.Templates {
			t.Run(name+" at "+engine, func(t *testing.T) {
				s := as(tokenstest.New(t, name, nil))
				says := []string{s.Template.Answer("Hm.", "I read.", "a"), s.Template.Answer("So.", "Done.", "")}
				if !s.Template.Opens() {
					says = append(says, "Bare."+s.Template.Stop[1])
				}
				s.Say = func(string) (string, string) {
					text := says[0]
					says = says[1:]
					return text, ""
				}
				k := newTalk(t, s)
				for i, want := range []struct {
					thoughts, words, finish string
					calls                   int
				}{{"Hm.", "I read.", "tool_calls", 1}, {"So.", "Done.", "stop", 0}, {"", "Bare.", "stop", 0}} {
					if len(says) == 0 {
						break
					}
					k.turn(tool("file"))
					thoughts := ""
					if k.last.Reasoning != nil {
						thoughts = k.last.Reasoning.Text
					}
					if strings.TrimSpace(thoughts) != want.thoughts || k.last.Content != want.words ||
						k.last.FinishReason != want.finish ||
						len(k.last.ToolCalls) != want.calls || len(k.last.Lacks) > 0 {
						t.Errorf("turn %d is %+v with thoughts %q", i, k.last, thoughts)
					}
					if want.calls > 0 &&
						(k.last.ToolCalls[0].Name != "read_file" || k.last.ToolCalls[0].Arguments != `{"path":"a"}`) {
						t.Errorf("the call is %+v", k.last.ToolCalls)
					}
					if !slices.Equal(k.last.TokenIDs, s.Turns()[i].Sampled) {
						t.Errorf("turn %d has other tokens than were sampled", i)
					}
					for n, p := range k.last.Logprobs {
						if math.Abs(float64(p-tokenstest.Logprob(n))) > 1e-6 {
							t.Errorf("log-probability %d of turn %d is %g", n, i, p)
						}
					}
				}
			})
		}
	}
}

// TestSGLangAdapters: a turn by tokens is sampled with the adapter that stands behind the
// model's name, as in a chat.
func TestSGLangAdapters(t *testing.T) {
	for model, adapter := range map[string]string{"m": "", "org/m:p@12": "p@12"} {
		s := tokenstest.New(t, "Qwen3", func(string) (string, string) { return "Done.", "" }).SGLang()
		s.Adapter = adapter
		k := newTalk(t, s)
		k.model = model
		if _, err := k.ask(); err != nil {
			t.Errorf("%s: %v", model, err)
		}
		if s.Adapter = "another"; adapter != "" {
			if _, err := k.ask(); err == nil {
				t.Errorf("%s was sampled with another adapter", model)
			}
		}
	}
}

// TestTokensWithoutLogprobs: where a list of log-probabilities is shorter than the tokens, or has
// none of one, the turn is text, and says what it lacks.
func TestTokensWithoutLogprobs(t *testing.T) {
	list := func(change func([]any) []any) func(string, map[string]any) {
		return func(path string, answer map[string]any) {
			if entries, is := answer["completion_probabilities"].([]any); is {
				answer["completion_probabilities"] = change(entries)
			}
		}
	}
	first := func(change func(map[string]any)) func(string, map[string]any) {
		return list(func(entries []any) []any { change(entries[0].(map[string]any)); return entries })
	}
	for name, c := range map[string]struct {
		change  func(string, map[string]any)
		stop    []string
		content string
	}{
		"a stop text": {nil, []string{"read."}, "<think>\nHm.\n</think>\n\nI "},
		"a token that ends in a letter": {list(func(entries []any) []any { return slices.Delete(entries, 1, 2) }),
			nil, "I read."},
		"another token": {first(func(e map[string]any) { e["id"] = 7777 }), nil, "I read."},
		"none":          {first(func(e map[string]any) { delete(e, "prob") }), nil, "I read."},
		"a token that a draft proposed": {first(func(e map[string]any) { e["prob"], e["top_probs"] = 1, []any{} }),
			nil, "I read."},
		"no list": {list(func([]any) []any { return nil }), nil, "I read."},
		"more of them than tokens": {list(func(entries []any) []any { return append(entries, entries[0]) }),
			nil, "I read."},
		"of the raw distribution, unasked": {first(func(e map[string]any) {
			e["logprob"] = e["prob"]
			delete(e,
				"prob")
		}), nil, "I read."},
	} {
		t.Run(name, func(t *testing.T) {
			s := tokenstest.New(t, "Qwen3", nil).LlamaCPP()
			s.Say = func(string) (string, string) { return s.Template.Answer("Hm.", "I read.", ""), "" }
			s.Change = c.change
			k := newTalk(t, s)
			k.stop = c.stop
			answer, err := k.ask()
			if err != nil {
				t.Fatal(err)
			}
			defer answer.Done()
			turn, prompt, err := answer.Turn(0, 0, time.Now())
			if err != nil || !turn.TextOnly || prompt != nil || turn.TokenIDs != nil ||
				!slices.Equal(turn.Lacks, []string{events.LackLogprobs}) || turn.Content != c.content {
				t.Errorf("the turn is %+v: %v", turn, err)
			}
		})
	}
}

// TestHostileEngines: what contradicts itself is no turn with tokens.
func TestHostileEngines(t *testing.T) {
	at := func(field string, value any) func(string, map[string]any) {
		return func(path string, answer map[string]any) {
			if _, is := answer[field]; is {
				answer[field] = value
			}
			if meta, is := answer["meta_info"].(map[string]any); is && meta[field] != nil {
				meta[field] = value
			}
		}
	}
	for name, c := range map[string]struct {
		engine string
		change func(string, map[string]any)
		want   string
	}{
		"more prompt than was sent":   {"llama.cpp", at("tokens_evaluated", 3), "usage counts 3 prompt tokens"},
		"fewer tokens than predicted": {"llama.cpp", at("tokens_predicted", 3), "usage counts 3 completion tokens"},
		"a probability of nothing":    {"llama.cpp", probability(0), "token 0 has -Inf"},
		"a probability above 1":       {"llama.cpp", probability(2), "token 0 has 0.69"},
		"no text":                     {"llama.cpp", at("prompt", 7), "must be a string, got a number"},
		"no rendering":                {"llama.cpp", at("tokens", []int32{}), "token ids from 0 on"},
		"too many tokens":             {"llama.cpp", at("tokens", slices.Repeat([]int32{1}, 1001)), "at most 1000"},
		"a rendering below 0":         {"SGLang", at("tokens", []int32{-1}), "token ids from 0 on"},
		"other ids":                   {"SGLang", at("output_ids", []int32{1, 2}), "name other tokens"},
		"malformed log-probabilities": {"SGLang", at("output_token_logprobs", []any{[]any{"x"}}), "name other tokens"},
		"another prompt":              {"SGLang", at("prompt_tokens", 3), "usage counts 3 prompt tokens"},
		"other counts":                {"SGLang", at("completion_tokens", 3), "usage counts 3 completion tokens"},
	} {
		t.Run(name, func(t *testing.T) {
			s := engines[c.engine](tokenstest.New(t, "Qwen3", nil))
			s.Say = func(string) (string, string) { return s.Template.Answer("Hm.", "I read.", "a"), "" }
			s.Change = c.change
			answer, err := newTalk(t, s).ask()
			if err == nil {
				defer answer.Done()
				_, _, err = answer.Turn(0, 0, time.Now())
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

func probability(p float64) func(string, map[string]any) {
	return func(_ string, answer map[string]any) {
		if entries, is := answer["completion_probabilities"].([]any); is {
			entries[0].(map[string]any)["prob"] = p
		}
	}
}

// TestUnreadCalls: a call that the server's parser does not take stays in the
// text, and the turn says so.
func TestUnreadCalls(t *testing.T) {
	s := tokenstest.New(t, "Qwen3", nil).LlamaCPP()
	s.Say = func(string) (string, string) { return "I read.<tool_call>{nonsense</tool_call><|im_end|>", "" }
	answer, err := newTalk(t, s).ask()
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Done()
	turn, _, err := answer.Turn(0, 0, time.Now())
	if err != nil || turn.TextOnly || len(turn.ToolCalls) != 0 || !strings.Contains(turn.Content, "{nonsense") ||
		!slices.Equal(turn.Lacks, []string{events.LackTools}) {
		t.Errorf("the turn is %+v: %v", turn, err)
	}
}

// TestPathsRefused: a server without its path of tokens says what it needs.
func TestPathsRefused(t *testing.T) {
	for engine, want := range map[string]string{"llama.cpp": "/apply-template", "SGLang": "/v1/tokenize",
		"vLLM": "--enable-scale-out"} {
		s := engines[engine](tokenstest.New(t, "Qwen3", nil))
		s.Refuse = http.StatusNotFound
		_, err := newTalk(t, s).ask()
		var f *inference.Failure
		if !errors.As(err, &f) || f.Status != http.StatusNotFound || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "endpoint_api") {
			t.Errorf("%s: %v", engine, err)
		}
	}
}

// TestFieldsOfChatsAlone: what an engine reads in chats alone is refused by name, and never
// dropped: the answer would not be what was asked for.
func TestFieldsOfChatsAlone(t *testing.T) {
	for engine, as := range engines {
		for field, c := range map[string]struct {
			value any
			taken []string
		}{
			"response_format":  {map[string]string{"type": "json_object"}, []string{"vLLM"}},
			"tool_choice":      {"required", []string{"vLLM"}},
			"tool_choice auto": {"auto", []string{"vLLM", "SGLang", "llama.cpp"}},
			"min_tokens":       {4, []string{"vLLM", "SGLang"}},
			"logit_bias":       {[][]float64{{5, 1}}, []string{"vLLM", "SGLang", "llama.cpp"}},
		} {
			t.Run(field+" at "+engine, func(t *testing.T) {
				s := as(tokenstest.New(t, "Qwen3", nil))
				s.Say = func(string) (string, string) { return s.Template.Answer("Hm.", "Done.", ""), "" }
				k := newTalk(t, s)
				name, _, _ := strings.Cut(field, " ")
				k.extra = map[string]any{name: c.value}
				answer, err := k.ask()
				answer.Done()
				var f *inference.Failure
				if taken := slices.Contains(c.taken, engine); taken && err != nil ||
					!taken && (!errors.As(err, &f) || !f.Permanent ||
						!strings.HasPrefix(err.Error(), name+": ") || len(s.Turns()) > 0) {
					t.Errorf("answered %v", err)
				}
			})
		}
	}
}
