package generator

import (
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
)

// TestNextIn: an environment answers each turn, also the last one that the limits allow,
// before anything else follows.
func TestNextIn(t *testing.T) {
	cfg := runfile.RunConfig{Environment: &runfile.Environment{Name: "e"},
		Limits: runfile.Limits{Turns: 2, Tokens: 100, Timeout: runfile.Duration(time.Minute)}}
	opening, answer := events.RolloutObserved{Turn: -1}, events.RolloutObserved{Turn: 0}
	turn, long := events.TurnSampled{}, events.TurnSampled{PromptTokens: 90, CompletionTokens: 10}
	for name, c := range map[string]struct {
		turns    []events.TurnSampled
		observed []events.RolloutObserved
		step     action
		stop     string
	}{
		"not opened": {nil, nil, nothing, ""},
		"opened":     {nil, []events.RolloutObserved{opening}, sample, ""},
		"asked":      {[]events.TurnSampled{turn}, []events.RolloutObserved{opening}, nothing, ""},
		"answered":   {[]events.TurnSampled{turn}, []events.RolloutObserved{opening, answer}, sample, ""},
		"done": {[]events.TurnSampled{turn}, []events.RolloutObserved{opening, {Done: true}},
			finish, events.StopFinished},
		"over at once": {nil, []events.RolloutObserved{{Turn: -1, Done: true}}, finish, events.StopFinished},
		"failed":       {nil, []events.RolloutObserved{{Turn: -1, Failed: "why"}}, endLost, "why"},
		"last turn asked": {[]events.TurnSampled{turn, {Turn: 1}},
			[]events.RolloutObserved{opening, answer}, nothing, ""},
		"turns used up": {[]events.TurnSampled{turn, {Turn: 1}},
			[]events.RolloutObserved{opening, answer, {Turn: 1}}, finish, events.StopMaxTurns},
		"done at the limit": {[]events.TurnSampled{turn, {Turn: 1}},
			[]events.RolloutObserved{opening, answer, {Turn: 1, Done: true}}, finish, events.StopFinished},
		"agent's time over": {[]events.TurnSampled{{LatencyMS: 60_000}}, []events.RolloutObserved{opening, answer},
			finish, events.StopTimeout},
		"tokens used up": {[]events.TurnSampled{long}, []events.RolloutObserved{opening, answer},
			finish, events.StopMaxTokens},
	} {
		t.Run(name, func(t *testing.T) {
			r := events.Rollout{Turns: c.turns, Observed: c.observed}
			if step, stop := nextIn(cfg, &r, runfile.TaskSpec{AgentTimeout: runfile.Duration(
				time.Minute)}); step != c.step || stop != c.stop {
				t.Errorf("%d %q, want %d %q", step, stop, c.step, c.stop)
			}
		})
	}
}

// TestEnvironmentsMessages: its opening takes the place of the instruction, and its words follow
// the answers to the calls.
func TestEnvironmentsMessages(t *testing.T) {
	user := func(turn int, text string) events.RolloutObserved {
		return events.RolloutObserved{Turn: turn, Messages: []events.Observation{{Role: "user", Content: text}}}
	}
	answer := user(0, "Go on.")
	answer.Messages = append([]events.Observation{{Role: "tool", Content: "5", ToolCallID: "c"}}, answer.Messages...)
	var links []events.Event
	for _, l := range []struct {
		t    events.Type
		data any
	}{
		{events.RolloutStartedType, events.RolloutStarted{Task: "a"}},
		{events.RolloutObservedType, user(-1, "Begin.")},
		{events.TurnSampledType, events.TurnSampled{ToolCalls: []events.ToolCall{{ID: "c", Name: "add",
			Arguments: "{}"}}}},
		{events.RolloutObservedType, answer},
		{events.TurnSampledType, events.TurnSampled{Turn: 1, Content: "Done."}},
	} {
		e, err := events.New("r", l.t, "g000001-0", events.Ordinal(len(links)), l.data)
		if err != nil {
			t.Fatal(err)
		}
		links = append(links, e)
	}
	r, err := events.FoldRollout(links)
	if err != nil {
		t.Fatal(err)
	}
	cfg, task := runfile.RunConfig{Environment: &runfile.Environment{Name: "e"}},
		runfile.TaskSpec{Name: "a", Instruction: "Never read."}
	messages, _ := conversation(cfg, task, &r)
	var said []string
	for _, m := range messages {
		said = append(said, m.Role+" "+m.Content)
	}
	want := []string{"user Begin.", "assistant ", "tool 5", "user Go on.", "assistant Done."}
	equal(t, "the conversation", said, want)
	file, err := trajectory(cfg, task, &r, events.StopFinished)
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for _, m := range file.Messages {
		rows = append(rows, m.Role+" "+m.Content)
	}
	equal(t, "the trajectory", rows, want)
}
