package generator

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
)

// TestTurnCostsItsOwn: what a turn allocates beside its request and the answer does not grow with
// the turns before it: folding its links, sharing the fold, writing its messages and comparing the
// prompt's ids. It counts bytes, which do not depend on the load of the machine.
func TestTurnCostsItsOwn(t *testing.T) {
	task := runfile.TaskSpec{Name: "a", Instruction: "Do it.", Workdir: "/app"}
	cfg := runfile.DefaultRunConfig()
	link := func(typ events.Type, turn int, payload any) events.Event {
		e, err := events.New("r", typ, "g000001-0", events.Ordinal(turn), payload)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	r, err := events.FoldRollout([]events.Event{link(events.RolloutStartedType, 0, events.RolloutStarted{Task: "a"})})
	if err != nil {
		t.Fatal(err)
	}
	const most, window, perTurn = 1000, 100, 128
	var tokens []int32 // all so far
	var took [most]uint64
	for turn := range most {
		prompt := append(slices.Clip(tokens), make([]int32, 60)...) // the answer's
		sampled := events.TurnSampled{
			Turn: turn, Content: strings.Repeat("word ", perTurn), TokenIDs: make([]int32, perTurn),
			Logprobs: make([]float32, perTurn), PromptDelta: prompt[len(tokens):], NewSegment: turn == 0,
			ToolCalls: []events.ToolCall{{ID: fmt.Sprint(turn), Name: "read_file",
				Arguments: `{"target_file":"main.go"}`}},
		}
		done := events.ToolsCompleted{Turn: turn, Runner: "tester",
			Results: []events.ToolResult{{CallID: fmt.Sprint(turn), Content: strings.Repeat("line\n", 20)}}}
		links := []events.Event{link(events.TurnSampledType, turn, sampled),
			link(events.ToolsCompletedType, turn, done)}

		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		now := r.Share()
		asked := turnPrompt(cfg, task, &now)
		added, anew := delta(&now, prompt)
		err := r.Extend(links[:1])
		toolrunner := r.Share()
		if err == nil {
			err = r.Extend(links[1:])
		}
		runtime.ReadMemStats(&after)
		took[turn] = after.TotalAlloc - before.TotalAlloc

		if err != nil || len(added) != 60 || anew != (turn == 0) || len(asked.messages) != 2+2*turn ||
			asked.written.Messages != len(asked.messages) || len(toolrunner.Turns) != turn+1 {
			t.Fatalf("turn %d: %d ids are added, anew %t, to %d messages: %v", turn, len(added), anew,
				len(asked.messages), err)
		}
		tokens = append(prompt, sampled.TokenIDs...)
	}
	mean := func(turns []uint64) (n uint64) {
		for _, bytes := range turns {
			n += bytes
		}
		return n / uint64(len(turns))
	}
	early, late := mean(took[:window]), mean(took[most-window:])
	t.Logf("bytes of a turn: %d among the first %d, %d among the last of %d", early, window, late, most)
	if late > 2*early { // lists that grow are copied now and then
		t.Errorf("a turn behind %d others allocates %d bytes, one of the first %d only %d", most-window, late, window,
			early)
	}
}
