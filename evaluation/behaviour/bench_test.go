package behaviour

import (
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
)

// BenchmarkFold folds rollouts of ten turns with 500 sampled tokens each, by event.
func BenchmarkFold(b *testing.B) {
	w := &written{TB: b}
	w.open(nil)
	opened := w.list[0]
	w.list = nil
	w.start("g000001-0", 0)
	for range 10 {
		w.sampled("g000001-0", events.TurnSampled{
			CompletionTokens: 500, TokenIDs: make([]int32, 500), PromptDelta: make([]int32, 800),
			Logprobs: make([]float32, 500), ToolCalls: calls([]string{"grep", "read_file"}),
			Content: strings.Repeat("word ", 200), Reasoning: &events.Reasoning{Text: strings.Repeat("thought ", 100)},
		})
		w.event(events.ToolsCompletedType, "g000001-0",
			events.ToolsCompleted{Results: []events.ToolResult{{Name: "grep", Content: strings.Repeat("line\n", 200)},
				{Name: "read_file", Content: strings.Repeat("line\n", 400)}}})
	}
	w.score("g000001-0", 1)
	f := folded(b, []events.Event{opened})
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		if err := apply(f, w.list[n%len(w.list)]); err != nil {
			b.Fatal(err)
		}
		if n++; n%len(w.list) == 0 {
			f.rollouts.run.Forget("g000001-0")
		}
	}
}
