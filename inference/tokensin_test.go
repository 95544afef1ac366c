package inference_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/inference/tokenstest"
)

// talk is a conversation with a server by tokens.
type talk struct {
	model    string
	t        *testing.T
	server   *tokenstest.Server
	client   inference.Client
	messages []inference.Message
	known    []int32
	samples  []inference.Sampled
	last     events.TurnSampled
	most     int
	stop     []string
	extra    map[string]any
}

func newTalk(t *testing.T, s *tokenstest.Server) *talk {
	return &talk{t: t, server: s, model: "m", client: inference.Client{HTTP: http.DefaultClient, MaxTokens: 4096},
		most: 1000,
		messages: []inference.Message{{Role: "system", Content: "You are an agent."},
			{Role: "user", Content: "Mend it."}}}
}

func (k *talk) sampling() runfile.Sampling {
	sampling := runfile.NeutralSampling()
	sampling.Stop = k.stop
	return sampling
}

// conversation is what the next turn is asked with.
func (k *talk) conversation() inference.Conversation {
	engine, err := k.client.Engine(k.t.Context(), k.server.URL+"/v1")
	if err != nil {
		k.t.Fatal(err)
	}
	tools := []inference.Tool{{Type: "function", Function: inference.Description{Name: "read_file",
		Parameters: json.RawMessage(`{}`)}}}
	return inference.Conversation{
		Engine: engine,
		Request: inference.Request{Model: k.model, Messages: k.messages, Tools: tools,
			Sample: inference.NewSample(k.sampling()), Logprobs: true, ReturnTokenIDs: true, Extra: k.extra},
		Known: k.known, Samples: k.samples,
	}
}

// ask asks for one turn.
func (k *talk) ask() (*inference.Response, error) { return k.complete(k.conversation()) }

func (k *talk) complete(conv inference.Conversation) (*inference.Response, error) {
	return k.client.CompleteTokens(k.t.Context(), k.server.URL+"/v1", conv,
		func(int) (int, *inference.Failure) { return k.most, nil })
}

// turn asks for one turn and takes it into the conversation, with what answers it. It returns what
// the prompt added to the tokens known, as text; all of the prompt where it did not extend them.
func (k *talk) turn(answers ...inference.Message) (added string) {
	k.t.Helper()
	answer, err := k.ask()
	if err != nil {
		k.t.Fatal(err)
	}
	return k.take(answer, answers...)
}

// take takes a turn into the conversation, as turn does.
func (k *talk) take(answer *inference.Response, answers ...inference.Message) (added string) {
	k.t.Helper()
	defer answer.Done()
	turn, prompt, err := answer.Turn(0, 0, time.Now())
	if err != nil || turn.TextOnly {
		k.t.Fatalf("turn %+v: %v", turn, err)
	}
	rest := prompt
	if len(k.known) > 0 && len(prompt) >= len(k.known) && slices.Equal(prompt[:len(k.known)], k.known) {
		rest = prompt[len(k.known):]
	}
	sampling := k.sampling()
	if turn.PromptDelta, turn.Sampling = rest, &sampling; len(rest) == len(prompt) {
		k.samples = nil
	}
	sample := inference.SampledOf(&turn, len(prompt)-len(rest))
	sample.Message = len(k.messages)
	k.last, k.known, k.samples = turn, slices.Concat(prompt, turn.TokenIDs), append(k.samples, sample)
	k.messages = append(append(k.messages, inference.Recorded(&turn)), answers...)
	return k.server.Tokenizer.Decode(rest)
}

func tool(text string) inference.Message {
	return inference.Message{Role: "tool", ToolCallID: "call-read_file", Content: text}
}

// engines are the kinds of servers that are asked by tokens.
var engines = map[string]func(*tokenstest.Server) *tokenstest.Server{
	"vLLM": func(s *tokenstest.Server) *tokenstest.Server { return s }, "llama.cpp": (*tokenstest.Server).LlamaCPP,
	"SGLang": (*tokenstest.Server).SGLang,
}

// TestTokensIn: whatever a template does with thoughts and ends of turns, a prompt is the last one,
// the sample, and the tokens of the new messages with as much of the end of the turn as the sample
// lacks. It is as the template writes it, but for the thoughts that stay.
func TestTokensIn(t *testing.T) {
	// what prompts add behind a call, behind words, and behind words that were cut
	for name, want := range map[string][3]string{
		"Qwen3": {"\n<|im_start|>user\n<tool_response>\nfile A\n</tool_response><|im_end|>\n<|im_start|>assistant\n",
			"\n<|im_start|>user\nNow the next.<|im_end|>\n<|im_start|>assistant\n",
			"<|im_end|>\n<|im_start|>user\nGo on.<|im_end|>\n<|im_start|>assistant\n"},
		"Qwen35": {"\n<|im_start|>user\n<tool_response>\nfile A\n</tool_response><|im_end|>\n<|im_start|>assistant\n<think>\n",
			"\n<|im_start|>user\nNow the next.<|im_end|>\n<|im_start|>assistant\n<think>\n",
			"<|im_end|>\n<|im_start|>user\nGo on.<|im_end|>\n<|im_start|>assistant\n<think>\n"},
		"DeepSeek": {"\n\n<function_results>\n<result>file A</result>\n</function_results>\n\n<think>",
			"<｜User｜>Now the next.<｜Assistant｜><think>", "<｜end▁of▁sentence｜><｜User｜>Go on.<｜Assistant｜><think>"},
		"GLM": {"\n<tool_response>\nfile A\n</tool_response><|assistant|>", "\nNow the next.<|assistant|>",
			"<|user|>\nGo on.<|assistant|>"},
		"Kimi": {"<|im_system|>tool<|im_middle|>## Return\nfile A<|im_end|><|im_assistant|>assistant<|im_middle|>",
			"<|im_user|>user<|im_middle|>Now the next.<|im_end|><|im_assistant|>assistant<|im_middle|>",
			"<|im_end|><|im_user|>user<|im_middle|>Go on.<|im_end|><|im_assistant|>assistant<|im_middle|>"},
	} {
		for engine, as := range engines {
			t.Run(name+" at "+engine, func(t *testing.T) {
				s := as(tokenstest.New(t, name, nil))
				says := []string{s.Template.Answer("Where to begin?", "", "a"),
					s.Template.Answer("Once more.", "Reading on.", "b"),
					s.Template.Answer("That is it.", "Done so far.", ""),
					strings.TrimSuffix(s.Template.Answer("Next.", "so we go", ""), s.Template.Stop[1]),
					s.Template.Answer("", "Done.", "")}
				s.Say = func(string) (string, string) {
					text := says[0]
					says = says[1:]
					if len(says) == 1 {
						return text, "length"
					}
					return text, ""
				}
				k := newTalk(t, s)
				whole := k.turn(tool("file A"))
				if !strings.HasPrefix(whole, s.Template.Begin) || !strings.HasSuffix(whole, s.Template.Prompt) {
					t.Errorf("the first prompt is %q", whole)
				}
				for i, turn := range []struct{ want, answer string }{{want[0], ""},
					{strings.Replace(want[0], "file A", "file B", 1), "Now the next."},
					{want[1], "Go on."}, {want[2], ""}} {
					answer := inference.Message{Role: "user", Content: turn.answer}
					if i == 0 {
						answer = tool("file B")
					}
					if got := k.turn(answer); got != turn.want {
						t.Errorf("prompt %d adds %q, want %q", i+1, got, turn.want)
					}
				}
				for i, turn := range s.Turns()[1:] {
					before := s.Turns()[i]
					if seen := slices.Concat(before.Prompt,
						before.Sampled); !slices.Equal(turn.Prompt[:min(len(seen), len(turn.Prompt))], seen) {
						t.Errorf("prompt %d does not begin with what the model has seen and sampled", i+1)
					}
				}
			})
		}
	}
}

// TestTokensOfOlderServers: older versions read the message in a request of its own, and
// name tokens in another way.
func TestTokensOfOlderServers(t *testing.T) {
	for _, oldest := range []bool{false, true} {
		s := tokenstest.New(t, "Qwen3", nil)
		s.Older, s.Oldest = true, oldest
		s.Say = func(string) (string, string) { return s.Template.Answer("Hm.", "I read.", "a"), "" }
		k := newTalk(t, s)
		k.turn()
		if turn := k.last; turn.Content != "I read." || turn.Reasoning == nil || turn.Reasoning.Text != "Hm." ||
			len(turn.ToolCalls) != 1 || turn.FinishReason != "tool_calls" ||
			s.Requests("/v1/chat/completions/derender") != 1 {
			t.Errorf("the turn is %+v", turn)
		}
		for i, p := range k.last.Logprobs {
			if p != tokenstest.Logprob(i) {
				t.Errorf("log-probability %d is %g", i, p)
			}
		}
	}
}

// TestForeignEnds: a stop token that the template does not know stays, and the template's own
// follows it. An end that cannot be found begins with a rendering of all.
func TestForeignEnds(t *testing.T) {
	for name, c := range map[string]struct {
		text, stop, want string
	}{
		"another stop token": {"I am ok.<|endoftext|>", "",
			"<|im_end|>\n<|im_start|>user\nGo on.<|im_end|>\n<|im_start|>assistant\n"},
		"a stop text": {"abc STOP", "STOP", ""},
		"a stop text that the template's end resembles": {"abc\n", "\n", ""},
	} {
		s := tokenstest.New(t, "Qwen3", func(string) (string, string) { return c.text, "" })
		s.Change = func(path string, answer map[string]any) {
			if path == "/inference/v1/generate" { // the text ends before what stopped it
				message := tokenstest.Message{Role: "assistant",
					Content: strings.TrimSuffix(strings.TrimSuffix(c.text, "<|endoftext|>"), c.stop)}
				answer["choices"].([]any)[0].(map[string]any)["message"] = message
			}
		}
		k := newTalk(t, s)
		if c.stop != "" {
			k.stop = []string{c.stop}
		}
		k.turn(inference.Message{Role: "user", Content: "Go on."})
		before := len(k.known)
		answer, err := k.ask()
		if err != nil {
			t.Fatal(err)
		}
		extends := slices.Equal(answer.PromptTokenIDs[:min(before, len(answer.PromptTokenIDs))], k.known)
		if extends != (c.want != "") || extends && s.Tokenizer.Decode(answer.PromptTokenIDs[before:]) != c.want {
			t.Errorf("%s: the prompt is %q", name, s.Tokenizer.Decode(answer.PromptTokenIDs))
		}
		answer.Done()
	}
}

// TestAnotherHistory: where the renderings differ in more than the new messages,
// all of them are rendered.
func TestAnotherHistory(t *testing.T) {
	s := tokenstest.New(t, "Kimi", nil)
	s.Say = func(string) (string, string) { return s.Template.Answer("Hm.", "I read.", "a"), "" }
	s.Change = func(path string, answer map[string]any) {
		if ids, whole := answer["token_ids"].([]int32); whole &&
			strings.HasSuffix(s.Tokenizer.Decode(ids), s.Template.Prompt) && path == "/v1/chat/completions/render" {
			answer["token_ids"] = slices.Concat(s.Tokenizer.Encode("It is a new day.", false), ids)
		}
	}
	k := newTalk(t, s)
	k.turn(tool("file A"))
	if got := k.turn(tool("file B")); !strings.HasPrefix(got, "It is a new day.") ||
		!strings.Contains(got, "<think>Hm.</think>I read.") {
		t.Errorf("the second prompt adds %q", got)
	}
}

// TestHostileTokens: what contradicts itself, or is too much, is no turn.
func TestHostileTokens(t *testing.T) {
	choice := func(change func(choice map[string]any)) func(string, map[string]any) {
		return func(path string, answer map[string]any) {
			if list, is := answer["choices"].([]any); is {
				change(list[0].(map[string]any))
			}
		}
	}
	entries := func(c map[string]any) []any { return c["logprobs"].(map[string]any)["content"].([]any) }
	for name, c := range map[string]struct {
		change func(path string, answer map[string]any)
		older  bool
		want   string
	}{
		"fewer log-probabilities": {choice(func(c map[string]any) {
			c["logprobs"].(map[string]any)["content"] = entries(
				c)[1:]
		}), false, "log-probabilities"},
		"more ids": {choice(func(c map[string]any) {
			c["token_ids"] = append(c["token_ids"].([]int32),
				1)
		}), false, "log-probabilities"},
		"no ids": {choice(func(c map[string]any) { delete(c, "token_ids") }), false, "no token_ids"},
		"a negative id": {choice(func(c map[string]any) { c["token_ids"].([]int32)[0] = -1 }), false,
			"token 0 has the id -1"},
		"an id out of range": {choice(func(c map[string]any) { c["token_ids"] = []int64{1 << 31} }), false,
			"token 0 has the id 2147483648"},
		"a missing one": {choice(func(c map[string]any) {
			entries(c)[0].(map[string]any)["logprob"] = -9999.0
		}), false, "token 0 has -9999"},
		"of another token": {choice(func(c map[string]any) {
			entries(c)[0].(map[string]any)["token_id"] = 7777
		}), true, "is of another one"},
		"of another, as text": {choice(func(c map[string]any) {
			entries(c)[0].(map[string]any)["token"] = "token_id:7777"
		}), true, "is of another one"},
		"too many tokens": {choice(func(c map[string]any) { c["token_ids"] = slices.Repeat([]int32{1}, 1001) }),
			false, "at most 1000 were asked for"},
		"two choices": {func(_ string, a map[string]any) {
			a["choices"] = []any{map[string]any{},
				map[string]any{}}
		}, false, "choices instead of 1"},
		"another prompt": {func(p string, a map[string]any) {
			change(p, a, "generate",
				"prompt_token_ids", []int32{1})
		}, false, "behind another prompt"},
		"an empty prompt": {func(p string, a map[string]any) { change(p, a, "render", "token_ids", []int32{}) },
			false, "token ids from 0 on"},
		"a prompt of nulls": {func(p string, a map[string]any) { change(p, a, "render", "token_ids", nil) },
			false, "token ids from 0 on"},
		"a prompt below 0": {func(p string, a map[string]any) {
			change(p, a, "render",
				"token_ids", []int32{1, -1})
		}, false, "token ids from 0 on"},
		"no sampling parameters": {func(p string, a map[string]any) {
			change(p, a, "render",
				"sampling_params", []int{})
		}, false, "no sampling_params"},
		"a huge prompt": {func(p string, a map[string]any) {
			change(p, a, "render",
				"token_ids", make([]int32, 5<<20))
		}, false, "answered more than"},
		"a list of many objects": {func(p string, a map[string]any) {
			change(p, a, "generate",
				"huge", make([]struct{}, 3<<20))
		}, false, "answered more than"},
		"no message": {func(p string, a map[string]any) {
			change(p, a, "derender", "choices", []any{map[string]any{}})
		}, true, "want 1 with a message"},
	} {
		s := tokenstest.New(t, "Qwen3", nil)
		s.Say = func(string) (string, string) { return s.Template.Answer("Hm.", "I read.", "a"), "" }
		s.Older, s.Change = c.older, c.change
		answer, err := newTalk(t, s).ask()
		var failure *inference.Failure
		if err != nil && !errors.As(err, &failure) {
			t.Errorf("%s: %v is no failure", name, err)
		}
		if err == nil {
			_, _, err = answer.Turn(0, 0, time.Now())
			answer.Done()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// change sets a field of the answer to a path that ends so.
func change(path string, answer map[string]any, end, field string, value any) {
	if strings.HasSuffix(path, "/"+end) {
		answer[field] = value
	}
}

// TestTokensRefused: a server that does not serve the path of tokens says which flag it lacks.
func TestTokensRefused(t *testing.T) {
	for _, status := range []int{http.StatusForbidden, http.StatusNotFound} {
		s := tokenstest.New(t, "Qwen3", nil)
		s.Refuse = status
		_, err := newTalk(t, s).ask()
		var f *inference.Failure
		if !errors.As(err, &f) || f.Status != status || !strings.Contains(err.Error(), "--enable-scale-out") ||
			!strings.Contains(err.Error(), "--tokens-only") {
			t.Errorf("%d: %v", status, err)
		}
	}
}
