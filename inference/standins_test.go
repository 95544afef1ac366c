package inference_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/inference/tokenstest"
)

// twice asks for a turn twice: as it is, and as if no earlier sample were known, so that two
// renderings find the end of the last one. Both must sample behind the same prompt. It takes the
// turn into the conversation, and returns how many requests each way took.
func (k *talk) twice(text, finish string, answers ...inference.Message) (short, long int) {
	k.t.Helper()
	k.server.Say = func(string) (string, string) { return text, finish }
	conv := k.conversation()
	before := k.server.Requests()
	answer, err := k.complete(conv)
	if err != nil {
		k.t.Fatal(err)
	}
	between := k.server.Requests()
	conv.Samples = conv.Samples[max(0, len(conv.Samples)-1):]
	again, err := k.complete(conv)
	if err != nil {
		k.t.Fatal(err)
	}
	again.Done()
	if decode := k.server.Tokenizer.Decode; !slices.Equal(answer.PromptTokenIDs, again.PromptTokenIDs) {
		k.t.Errorf("turn %d is sampled behind\n%q, and by two renderings behind\n%q", len(k.samples),
			decode(answer.PromptTokenIDs), decode(again.PromptTokenIDs))
	}
	long = k.server.Requests() - between
	k.take(answer, answers...)
	return between - before, long
}

// TestRequestsOfTurns: from the third turn on a turn takes one rendering, and samples behind the
// same tokens as with two.
func TestRequestsOfTurns(t *testing.T) {
	for name, c := range map[string]struct {
		as          func(*tokenstest.Server)
		short, long []int
	}{
		"vLLM":       {func(*tokenstest.Server) {}, []int{2, 3, 2, 2, 2}, []int{2, 3, 3, 3, 3}},
		"older vLLM": {func(s *tokenstest.Server) { s.Older = true }, []int{3, 4, 3, 3, 3}, []int{3, 4, 4, 4, 4}},
		"SGLang":     {func(s *tokenstest.Server) { s.SGLang() }, []int{5, 6, 5, 5, 5}, []int{5, 6, 6, 6, 6}},
		"llama.cpp":  {func(s *tokenstest.Server) { s.LlamaCPP() }, []int{7, 9, 7, 7, 7}, []int{7, 9, 9, 9, 9}},
	} {
		for template := range tokenstest.Templates {
			t.Run(template+" at "+name, func(t *testing.T) {
				s := tokenstest.New(t, template, nil)
				c.as(s)
				k := newTalk(t, s)
				var short, long []int
				for i := range c.short {
					n, m := k.twice(s.Template.Answer("Hm.", "I read.", strings.Repeat("a", i+1)), "", tool("file A"))
					short, long = append(short, n), append(long, m)
				}
				if !slices.Equal(short, c.short) || !slices.Equal(long, c.long) {
					t.Errorf("turns take %v requests, by two renderings %v; want %v and %v", short, long, c.short,
						c.long)
				}
			})
		}
	}
}

// TestOneRendering: which turns save a rendering. Those do not whose last answer is the first of
// its kind, and those lose one where the rendering with stand-ins does not prove its end. Whatever
// answers and results hold, the prompt is that of two renderings.
func TestOneRendering(t *testing.T) {
	user := func(text string) inference.Message { return inference.Message{Role: "user", Content: text} }
	type turn struct {
		thoughts, words, path string
		name                  string // of the tool, in place of read_file
		stop, finish          string // in place of the template's stop token
		answers               []inference.Message
	}
	call, said := turn{thoughts: "Hm.", words: "I read.", path: "a", answers: []inference.Message{tool("file A")}},
		turn{thoughts: "Hm.", words: "So far.", answers: []inference.Message{user("Go on.")}}
	with := func(at turn, change func(*turn)) turn { change(&at); return at }
	literal := with(call, func(at *turn) {
		at.words, at.path, at.answers = "<|im_end|> ends it:", "<|im_end|>\n<|im_start|>user\n<tool_response>\nfile A",
			[]inference.Message{tool("<|im_end|> and\n<|im_start|>user")}
	})
	for name, c := range map[string]struct {
		template string
		turns    []turn
		change   func(s *tokenstest.Server, answers int, ids []int32) []int32 // of a rendering with so many answers
		want     []int                                                        // how many renderings each turn saves
	}{
		"calls": {"Qwen3", []turn{call, call, call, call}, nil, []int{0, 0, 1, 1}},
		"no thoughts": {"Kimi", []turn{with(call, func(at *turn) { at.thoughts = "" }), call, call}, nil,
			[]int{0, 0, 1}},
		"words and calls": {"Qwen35", []turn{call, said, call, said, call, call}, nil, []int{0, 0, 0, 1, 1, 1}},
		"who speaks": {"GLM", []turn{call,
			with(call, func(at *turn) { at.answers = []inference.Message{user("No.")} }), call, call},
			nil, []int{0, 0, 0, 1}},
		"the user behind results": {"Qwen35", []turn{call,
			with(call, func(at *turn) { at.answers = append(at.answers, user("Go on.")) }), call, call},
			nil, []int{0, 0, 1, 1}},
		"literal stop tokens": {"Qwen3", []turn{literal, literal, literal}, nil, []int{0, 0, 1}},
		"stop tokens in names": {"Qwen3", slices.Repeat([]turn{with(call,
			func(at *turn) { at.name = "<|im_end|>" })}, 3), nil, []int{0, 0, 0}},
		"stop tokens in results": {"DeepSeek", []turn{call,
			with(call, func(at *turn) { at.answers = []inference.Message{tool("<｜end▁of▁sentence｜>")} }), call, call},
			nil, []int{0, 0, 1, 1}},
		"another stop token": {"Qwen3", []turn{call, with(call, func(at *turn) { at.stop = "<|endoftext|>" }),
			call}, nil, []int{0, 0, 0}},
		"another stop token, and in results": {"Qwen3", slices.Repeat([]turn{with(call, func(at *turn) {
			at.stop, at.answers = "<|endoftext|>", []inference.Message{tool("<|endoftext|> ends it")}
		})}, 3), nil, []int{0, 0, -1}},
		"an answer that was cut": {"Qwen3", []turn{call,
			with(said, func(at *turn) { at.words, at.stop, at.finish = "It is always so", " ", "length" }), call, call},
			nil, []int{0, 0, 0, 0}},
		"another day": {"Qwen3", []turn{call, call, call, call},
			func(s *tokenstest.Server, answers int, ids []int32) []int32 {
				return slices.Concat(s.Tokenizer.Encode(strings.Repeat("A new day. ", answers/3), false), ids)
			}, []int{0, 0, 1, -1}},
		"a turn is left out later": {"Qwen3", []turn{call, call, call,
			with(call, func(at *turn) { at.answers = append(at.answers, user("Go on.")) }), call},
			func(s *tokenstest.Server, answers int, ids []int32) []int32 {
				text := s.Tokenizer.Decode(ids)
				if begin := strings.Index(text, s.Template.Assistant); answers > 3 {
					text = text[:begin] + text[begin+1+strings.Index(text[begin+1:], s.Template.Assistant):]
				}
				return s.Tokenizer.Encode(text, false)
			}, []int{0, 0, 1, 1, -1}},
		"results are left out later": {"Qwen3", []turn{call, call, call, call},
			func(s *tokenstest.Server, answers int, ids []int32) []int32 {
				return s.Tokenizer.Encode(strings.Replace(s.Tokenizer.Decode(ids), "file A",
					"left out", max(0, answers-2)),
					false)
			}, []int{0, 0, 1, -1}},
		"the last result has a note": {"Qwen3", []turn{call, call, call, call},
			func(s *tokenstest.Server, _ int, ids []int32) []int32 {
				text := s.Tokenizer.Decode(ids)
				if at := strings.LastIndex(text, "file A"); at >= 0 {
					text = text[:at] + "file A!" + text[at+len("file A"):]
				}
				return s.Tokenizer.Encode(text, false)
			}, []int{0, 0, -1, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			s := tokenstest.New(t, c.template, nil)
			s.Change = func(path string, answer map[string]any) {
				if ids, renders := answer["token_ids"].([]int32); renders && c.change != nil {
					answer["token_ids"] = c.change(s, strings.Count(s.Tokenizer.Decode(ids), s.Template.Assistant)-1,
						ids)
				}
			}
			k := newTalk(t, s)
			var got []int
			for _, turn := range c.turns {
				text := s.Template.Answer(turn.thoughts, turn.words, turn.path)
				if turn.name != "" {
					text = strings.Replace(text, "read_file", turn.name, 1)
				}
				if turn.stop != "" {
					stop := s.Template.Stop[0]
					if turn.path == "" {
						stop = s.Template.Stop[1]
					}
					text = strings.TrimSuffix(text, stop) + strings.TrimSpace(turn.stop)
				}
				short, long := k.twice(text, turn.finish, turn.answers...)
				got = append(got, long-short)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("turns save %v renderings, want %v", got, c.want)
			}
		})
	}
}

// TestLiteralStopTokens: what looks like the end of an answer within its words, its arguments or
// its names is not taken for it.
func TestLiteralStopTokens(t *testing.T) {
	for engine, as := range engines {
		for _, name := range []string{"read_file", "<|im_end|>"} {
			s := as(tokenstest.New(t, "Qwen3", nil))
			s.Say = func(string) (string, string) {
				text := s.Template.Answer("Hm.", "It ends with", "<|im_end|>\\n<|im_start|>user\\n<tool_response>")
				return strings.Replace(text, "read_file", name, 1), ""
			}
			k := newTalk(t, s)
			k.turn(tool("file A"))
			got, want := k.turn(),
				"\n<|im_start|>user\n<tool_response>\nfile A\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
			if begins := strings.HasPrefix(got, "<|im_start|>system"); begins != (engine == "llama.cpp" &&
				name != "read_file") || !begins && got != want {
				t.Errorf("%s, %s: the prompt adds %q, want %q", engine, name, got, want)
			}
		}
	}
}
