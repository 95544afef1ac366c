package generator

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference"
)

// TestDialogueGoesOn: what is kept beside a fold from turn to turn is what is made of all of its
// turns at once: messages, the request's JSON and the segment's tokens. Who has read the rollout
// before the last turns gets what was then.
func TestDialogueGoesOn(t *testing.T) {
	task := runfile.TaskSpec{Name: "a", Instruction: "Do it.", Workdir: "/app",
		Steps: []runfile.StepSpec{{Name: "one", Instruction: "First <b>."}, {Name: "two", Instruction: "Then."}}}
	cfg := runfile.DefaultRunConfig()
	seq := uint64(0)
	var r events.Rollout
	fold := func(typ events.Type, ordinal int, payload any) {
		t.Helper()
		seq++
		e, err := events.New("r", typ, "g000001-0", events.Ordinal(ordinal), payload)
		if err != nil {
			t.Fatal(err)
		}
		if e.Seq = seq; seq == 1 {
			r, err = events.FoldRollout([]events.Event{e})
		} else {
			err = r.Extend([]events.Event{e})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	fold(events.RolloutStartedType, 0, events.RolloutStarted{Task: "a"})
	var reads []events.Rollout
	for turn := range 40 {
		sampled := events.TurnSampled{
			Turn: turn, Content: fmt.Sprintf("answer <%d>", turn), PromptDelta: []int32{int32(turn), 1},
			TokenIDs: []int32{int32(turn), 2}, Logprobs: []float32{-1, -2},
			NewSegment: turn%11 == 0, TextOnly: turn >= 25 && turn < 28,
		}
		if turn == 12 || turn == 33 {
			sampled.Summary = &events.Summary{}
		} else {
			sampled.ToolCalls = []events.ToolCall{{ID: fmt.Sprint(turn), Name: "read_file", Arguments: `{"n":1}`}}
		}
		fold(events.TurnSampledType, turn, sampled)
		if sampled.Summary == nil {
			fold(events.ToolsCompletedType, turn, events.ToolsCompleted{Turn: turn,
				Results: []events.ToolResult{{CallID: fmt.Sprint(turn), Content: "found &"}}})
		}
		if turn == 20 {
			fold(events.StepFinishedType, 0, events.StepFinished{Turns: turn + 1})
			fold(events.StepScoredType, 0, events.StepScored{})
		}
		reads = append(reads, r.Share())
		holdToAll(t, cfg, task, &reads[turn])
		if turn%7 == 0 {
			holdToAll(t, cfg, task, &reads[turn/2])
		}
	}
	for i := range reads {
		holdToAll(t, cfg, task, &reads[i])
	}
}

// holdToAll holds what is kept beside a rollout to what is made of all its turns.
func holdToAll(t *testing.T, cfg runfile.RunConfig, task runfile.TaskSpec, r *events.Rollout) {
	t.Helper()
	// nothing is kept beside it
	all := &events.Rollout{Run: r.Run, ID: r.ID, Started: r.Started, Turns: r.Turns, Tools: r.Tools, Steps: r.Steps}
	messages, written := conversation(cfg, task, r)
	want, _ := conversation(cfg, task, all)
	if !reflect.DeepEqual(messages, want) {
		t.Fatalf("of %d turns there are %d messages, want %d", len(r.Turns), len(messages), len(want))
	}
	body, err := json.Marshal(inference.Request{Model: "m", Messages: messages, Written: written})
	wantBody, err2 := json.Marshal(inference.Request{Model: "m", Messages: want})
	if err != nil || err2 != nil || string(body) != string(wantBody) || written.Messages == 0 {
		t.Fatalf("of %d turns, %d messages of it written:\n%s, %v\nwant\n%s, %v", len(r.Turns), written.Messages,
			body, err, wantBody, err2)
	}
	ids, samples, ok := segmentTokens(r)
	wantIDs, wantSamples, wantOK := segmentTokens(all)
	if ok != wantOK || !slices.Equal(ids, wantIDs) || !slices.Equal(samples, wantSamples) {
		t.Fatalf("of %d turns the segment has %v %v %v, want %v %v %v", len(r.Turns), ids, samples, ok,
			wantIDs, wantSamples, wantOK)
	}
}
