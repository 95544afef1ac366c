package policy

import (
	"reflect"
	"slices"
	"testing"
	"unicode/utf8"
)

func TestRenderAndParse(t *testing.T) {
	call := ToolCall{ID: "call_0_1", Type: "function",
		Function: Function{Name: "read_file", Arguments: `{"target_file":"ü.sh"}`}}
	messages := []Message{
		{Role: "system", Content: "s"},
		{Role: "user", Content: "line\nline\n"},
		{Role: "assistant", Content: "one\n\nthree\n", ToolCalls: []ToolCall{call, call}},
		{Role: "tool", ToolCallID: "call_0_1", Content: "1|x"},
		{Role: "assistant"},
		{Role: "tool"},
	}
	tools, parsed, err := parse(Render([]string{"a", "b"}, messages, false))
	if err != nil || !slices.Equal(tools, []string{"a", "b"}) {
		t.Fatal(tools, err)
	}
	for i := range parsed {
		if !reflect.DeepEqual(parsed[i].Message, messages[i]) {
			t.Errorf("message %d: %+v, want %+v", i, parsed[i].Message, messages[i])
		}
	}
	if n := len(parsed[2].actions); n != 4 {
		t.Errorf("%d action tokens for 4 lines", n)
	}
}

// FuzzPrefix: whatever is said, the rendering of a longer chat begins with that of a shorter one,
// and with what was sampled.
func FuzzPrefix(f *testing.F) {
	f.Add("hello", "Look around.\nAt a.sh:1", `{"x":1}`, "1|x\n")
	f.Add("", "", "", "")
	f.Add("\x00\xff", "\n\n", "\n", "é")
	f.Fuzz(func(t *testing.T, user, answer, arguments, result string) {
		tools := []string{"grep"}
		messages := []Message{{Role: "user", Content: user}}
		prompt := Render(tools, messages, true)
		calls := []ToolCall{{ID: "c", Type: "function", Function: Function{Name: "grep", Arguments: arguments}}}
		sampled := append(appendAnswer(slices.Clone(prompt), answer, calls), tokenEnd)
		messages = append(messages, Message{Role: "assistant", Content: answer, ToolCalls: calls},
			Message{Role: "tool", ToolCallID: "c", Content: result})
		next := Render(tools, messages, true)
		if len(next) < len(sampled) || !slices.Equal(next[:len(sampled)], sampled) {
			t.Fatal("the next prompt does not extend what was sampled")
		}
		_, parsed, err := parse(next[:len(next)-1])
		if err != nil {
			t.Fatal(err)
		}
		back := []Message{parsed[0].Message, parsed[1].Message, parsed[2].Message}
		if !reflect.DeepEqual(back, messages) {
			t.Fatalf("%+v came back as %+v", messages, back)
		}
	})
}

// FuzzReplay: tokens of any origin are folded or refused, never a panic, and every
// replayed decision has its token.
func FuzzReplay(f *testing.F) {
	t := &testing.T{}
	for n, y := range toys() {
		sample := y.play(t, NewModel(), uint64(n), 2).sample
		data := make([]byte, 0, 3*len(sample.Tokens))
		for _, token := range sample.Tokens {
			data = append(data, byte(token>>16), byte(token>>8), byte(token))
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		tokens := make([]int32, min(len(data), 9000)/3)
		mine := make([]bool, len(tokens))
		for i := range tokens {
			tokens[i] = int32(data[3*i])<<16 | int32(data[3*i+1])<<8 | int32(data[3*i+2])
			mine[i] = tokens[i] >= ActionBase
		}
		decisions, _, err := replay(tokens, mine)
		if err != nil {
			return
		}
		for _, d := range decisions {
			if actionToken(d.candidates[d.chosen].text) != tokens[d.token] {
				t.Fatal("a decision without its token")
			}
		}
	})
}

func TestTokenText(t *testing.T) {
	for token, want := range map[int32]string{'a': "a", 0xc3: `\xc3`, tokenEnd: "<|end|>", tokenSystem: "<|system|>",
		ActionBase + 0xab: "<|action:000ab|>", 300: "<|300|>", -1: "<|-1|>"} {
		if got := TokenText(token); got != want || !utf8.ValidString(got) {
			t.Errorf("token %d: %q, want %q", token, got, want)
		}
	}
}
