package export

import (
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/storage"
)

func TestPairCalls(t *testing.T) {
	call := func(id string) events.ToolCall { return events.ToolCall{ID: id, Name: "t"} }
	answer := func(id, text string) storage.Message { return storage.Message{ToolCallID: id, Content: text} }
	for name, c := range map[string]struct {
		calls   []events.ToolCall
		answers []storage.Message
		want    string
		left    int
	}{
		"in order": {[]events.ToolCall{call("a"), call("b")},
			[]storage.Message{answer("a", "1"), answer("b", "2")}, "1 2", 0},
		"out of order": {[]events.ToolCall{call("a"), call("b")},
			[]storage.Message{answer("b", "2"), answer("a", "1")}, "1 2", 0},
		"same id twice": {[]events.ToolCall{call("a"), call("a")},
			[]storage.Message{answer("a", "1"), answer("a", "2")}, "1 2", 0},
		"one is missing": {[]events.ToolCall{call("a"), call("b")}, []storage.Message{answer("b", "2")}, "- 2", 0},
		"no ids": {[]events.ToolCall{call(""), call("")},
			[]storage.Message{answer("", "1"), answer("", "2")}, "1 2", 0},
		"ids of calls only": {[]events.ToolCall{call("a"), call("b")},
			[]storage.Message{answer("", "1"), answer("", "2")}, "1 2", 0},
		"of nothing": {[]events.ToolCall{call("a")},
			[]storage.Message{answer("z", "9"), answer("a", "1")}, "1", 1},
	} {
		paired, left := PairCalls(c.calls, c.answers, nil)
		var got []string
		for _, p := range paired {
			text := "-"
			if p.Answer != nil {
				text = p.Answer.Content
			}
			got = append(got, text)
		}
		if strings.Join(got, " ") != c.want || len(left) != c.left {
			t.Errorf("%s: %v, %d left", name, got, len(left))
		}
	}
}

func TestSplitReasoning(t *testing.T) {
	for in, want := range map[string][2]string{
		"<think>\nhm\n</think>\n\nDone.": {"hm", "Done."}, "hm</think>Done.": {"hm", "Done."}, "Done.": {"", "Done."},
		"<think>hm":    {"hm", ""},
		"I <think> so": {"", "I <think> so"}, "": {"", ""},
	} {
		if reasoning, said := splitReasoning(in); reasoning != want[0] || said != want[1] {
			t.Errorf("%q: %q, %q", in, reasoning, said)
		}
	}
}
