package intake

import (
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
)

// sampledTurn is a turn that a harness elsewhere got from its model.
func sampledTurn(n int, change func(*events.TurnSampled)) events.TurnSampled {
	t := events.TurnSampled{
		Turn: n, Content: "Done.", TokenIDs: []int32{3}, Logprobs: []float32{-1},
		PromptDelta: []int32{1, 2}, NewSegment: true,
		Prompt: []events.PromptMessage{{Role: "user", Content: "Do it."}}, FinishReason: "stop",
	}
	if n > 0 {
		after := n - 1
		t.After, t.NewSegment = &after, false
	}
	if change != nil {
		change(&t)
	}
	return t
}

// TestSampledTurns: turns of an outsider's rollout follow each other, each once, and
// nobody runs their tools.
func TestSampledTurns(t *testing.T) {
	log := house(t)
	start(t, log)
	o := outsider{t, log, "r"}
	o.must(events.GroupOpenedType, "x1", o.opened())
	o.must(events.RolloutStartedType, "x1-0", o.started(0))
	for n := range 3 {
		o.must(events.TurnSampledType, "x1-0", sampledTurn(n, nil))
	}
	for n := range 3 {
		o.must(events.TurnSampledType, "x1-0", sampledTurn(n, nil)) // who lost the answer asks again
	}
	turns := servicetest.All(t, log, "r", events.TurnSampledType)
	if len(turns) != 4 { // one is the house's
		t.Errorf("there are %v", servicetest.IDs(turns))
	}
	if last := turns[3]; last.ID != "r/rollout.x1-0/turn_sampled/2" || last.Route != runfile.RouteFinal {
		t.Errorf("the last turn is %s on %s", last.ID, last.Subject())
	}
	for name, c := range map[string]struct {
		entity string
		turn   events.TurnSampled
		want   string
	}{
		"of our own rollout": {"g000001-0", sampledTurn(1, nil), "only Rondo's own services"},
		"of nobody":          {"x1-1", sampledTurn(0, nil), `"x1-1"`},
		"as another": {"x1-0", sampledTurn(1, func(s *events.TurnSampled) { s.Content = "No." }),
			"x1-0"},
		"too early": {"x1-0", sampledTurn(4, nil), "3 turns"},
		"below 0":   {"x1-0", sampledTurn(-1, nil), "turn"},
		"after itself": {"x1-0", sampledTurn(3, func(s *events.TurnSampled) { s.After = new(3) }),
			"after 3"},
		"after nothing": {"x1-0", sampledTurn(3, func(s *events.TurnSampled) { s.After = nil }),
			"new_segment"},
		"without a prompt": {"x1-0", sampledTurn(3,
			func(s *events.TurnSampled) { s.NewSegment, s.PromptDelta = true, nil }), "prompt_delta"},
		"with a positive": {"x1-0", sampledTurn(3, func(s *events.TurnSampled) { s.Logprobs[0] = 0.5 }),
			"0.5"},
		"with a missing": {"x1-0", sampledTurn(3, func(s *events.TurnSampled) { s.Logprobs = nil }),
			"0 log-probabilities"},
		"with none": {"x1-0", sampledTurn(3, func(s *events.TurnSampled) { s.Logprobs[0] = -9999 }),
			"logprobs: token 0 has -9999"},
		"with a token below 0": {"x1-0", sampledTurn(3, func(s *events.TurnSampled) { s.PromptDelta[1] = -7 }),
			"-7"},
		"text with tokens": {"x1-0", sampledTurn(3, func(s *events.TurnSampled) { s.TextOnly = true }),
			"text_only"},
		"of weights to come": {"x1-0", sampledTurn(3, func(s *events.TurnSampled) { s.PolicyVersion = 9 }),
			"policy_version 9"},
		"with a gap of versions": {"x1-0", sampledTurn(3,
			func(s *events.TurnSampled) { s.VersionSpans = []events.VersionSpan{{Start: 1, End: 2}} }),
			"version_spans"},
		"with versions of no tokens": {"x1-0", sampledTurn(3,
			func(s *events.TurnSampled) { s.VersionSpans = []events.VersionSpan{{Start: 0, End: 2}} }), "token 2 of 1"},
		"that is not its oldest": {"x1-0", sampledTurn(3, func(s *events.TurnSampled) {
			s.PolicyVersion, s.VersionSpans = 0, []events.VersionSpan{{Version: -1, Start: 0, End: 1}}
		}), "oldest"},
		"with weights to come": {"x1-0", sampledTurn(3, func(s *events.TurnSampled) {
			s.TokenIDs, s.Logprobs = []int32{3, 4}, []float32{-1, -1}
			s.VersionSpans = []events.VersionSpan{{Start: 0, End: 1}, {Version: 9, Start: 1, End: 2}}
		}), "policy_version 9"},
		"with a summary": {"x1-0", sampledTurn(3, func(s *events.TurnSampled) { s.Summary = &events.Summary{} }),
			"summary: turns that were sampled elsewhere have none"},
		"told of its room": {"x1-0", sampledTurn(3, func(s *events.TurnSampled) { s.RoomTold = "[room]" }),
			"room_told"},
		"behind a summary": {"x1-0", sampledTurn(3, func(
			s *events.TurnSampled) {
			s.SegmentCause = events.CauseSummary
		}),
			"summary: turns that were sampled elsewhere have none"},
		"masked by no rule": {"x1-0", sampledTurn(3, func(s *events.TurnSampled) {
			s.Conversation = &events.Conversation{Tree: runfile.TreeMain}
		}), "the run's file has no conversations"},
		"with an odd role": {"x1-0", sampledTurn(3, func(s *events.TurnSampled) { s.Prompt[0].Role = "root" }),
			"root"},
		"with endless calls": {"x1-0", sampledTurn(3,
			func(s *events.TurnSampled) { s.ToolCalls = make([]events.ToolCall, 65) }), "65"},
		"with a long name": {"x1-0", sampledTurn(3,
			func(s *events.TurnSampled) { s.Prompt[0].Name = strings.Repeat("n", 200) }), "128"},
		"with a long reason": {"x1-0", sampledTurn(3,
			func(s *events.TurnSampled) { s.FinishReason = strings.Repeat("n", 200) }), "finish_reason"},
		"with negative tokens": {"x1-0", sampledTurn(3, func(s *events.TurnSampled) { s.PromptTokens = -1 }), "-1"},
	} {
		if refused := o.state(events.TurnSampledType, c.entity, c.turn); !strings.Contains(refused, c.want) {
			t.Errorf("a turn %s: %q does not say %q", name, refused, c.want)
		}
	}
	if refused := o.state(events.RolloutFinishedType, "x1-0", o.finished("x1-0", nil)); !strings.Contains(refused,
		"the log has 3 turns") {
		t.Errorf("an end with fewer turns than the log has: %q", refused)
	}
	ended := o.finished("x1-0", func(tr *storage.Trajectory) { tr.Messages[1].Turn = 2 })
	masked := ended
	masked.Masked = map[string]int{"titles": 1}
	if refused := o.state(events.RolloutFinishedType, "x1-0", masked); !strings.Contains(refused,
		"masked: the rollout's turns have map[]") {
		t.Errorf("an end that masks what no turn masks: %q", refused)
	}
	o.must(events.RolloutFinishedType, "x1-0", ended)
	o.must(events.TurnSampledType, "x1-0", sampledTurn(2, nil)) // it stands
	if refused := o.state(events.TurnSampledType, "x1-0",
		sampledTurn(3, nil)); !strings.Contains(refused, "finished already") {
		t.Errorf("a turn after the end: %q", refused)
	}
	if n := len(servicetest.All(t, log, "r", events.TurnSampledType)); n != 4 {
		t.Errorf("%d turns now", n)
	}

	short := servicetest.Config("a")
	short.Limits.Turns = 1
	servicetest.OpenRun(t, log, "short", short)
	o.run = "short"
	o.must(events.GroupOpenedType, "x1", o.opened())
	o.must(events.RolloutStartedType, "x1-0", o.started(0))
	o.must(events.TurnSampledType, "x1-0", sampledTurn(0, nil))
	if refused := o.state(events.TurnSampledType, "x1-0",
		sampledTurn(1, nil)); !strings.Contains(refused, "at most 1 turns") {
		t.Errorf("a turn too many: %q", refused)
	}
}

// TestColumnsOfOutsiders: a turn has the token columns that its run asks for, with an object that
// holds them, and nothing else; a trajectory has those of its turns.
func TestColumnsOfOutsiders(t *testing.T) {
	log := house(t)
	cfg := servicetest.Config("a")
	cfg.TokenColumns = &runfile.TokenColumns{RoutedExperts: &runfile.RoutedExperts{Layers: 1, TopK: 2, Experts: 8}}
	servicetest.OpenRun(t, log, "experts", cfg)
	start(t, log)
	header := "\x93NUMPY\x01\x00\x76\x00" + "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 1, 2), }"
	file := header + strings.Repeat(" ", 127-len(header)) + "\n" + "\x01\x02\x03\x07"
	good := servicetest.Blob(t, log.Store(), []byte(file))
	column := storage.TokenColumn{Name: runfile.ColumnRoutedExperts, Start: 0, Length: 2, Object: good}
	columned := func(change func(*storage.TokenColumn)) events.TurnSampled {
		return sampledTurn(0, func(s *events.TurnSampled) {
			c := column
			if s.PromptTokens = 2; change != nil {
				change(&c)
			}
			s.Columns = []storage.TokenColumn{c}
		})
	}
	o := outsider{t, log, "experts"}
	o.must(events.GroupOpenedType, "x1", o.opened())
	o.must(events.RolloutStartedType, "x1-0", o.started(0))
	plain := outsider{t, log, "r"}
	plain.must(events.GroupOpenedType, "x1", plain.opened())
	plain.must(events.RolloutStartedType, "x1-0", plain.started(0))
	if refused := plain.state(events.TurnSampledType, "x1-0",
		columned(nil)); !strings.Contains(refused, "token_columns") {
		t.Errorf("columns for which the run does not ask: %q", refused)
	}
	wrong := []byte(file)
	wrong[len(wrong)-1] = 8
	ninth, other := servicetest.Blob(t, log.Store(), wrong), good
	other.Size++
	for name, change := range map[string]func(*storage.TokenColumn){
		"of another name":            func(c *storage.TokenColumn) { c.Name = runfile.ColumnTopLogprobs },
		"of tokens behind its last":  func(c *storage.TokenColumn) { c.Start = 2 },
		"of rows that there are not": func(c *storage.TokenColumn) { c.Row = 1 },
		"with an expert too many":    func(c *storage.TokenColumn) { c.Object = ninth },
		"with no object":             func(c *storage.TokenColumn) { c.Object = other },
		"with an object of something": func(c *storage.TokenColumn) {
			c.Object = servicetest.Blob(t,
				log.Store(), []byte("something"))
		},
		"with a trajectory for one": func(
			c *storage.TokenColumn) {
			c.Object.Key = "runs/experts/trajectories/x1-0.arrow"
		},
	} {
		if refused := o.state(events.TurnSampledType, "x1-0", columned(change)); refused == "" {
			t.Errorf("columns %s are on the log", name)
		}
	}
	o.must(events.TurnSampledType, "x1-0", columned(nil))
	with := func(columns []storage.TokenColumn) func(*storage.Trajectory) {
		return func(tr *storage.Trajectory) { tr.Messages[1].Columns = columns }
	}
	shorter := column
	shorter.Length = 1
	if refused := o.state(events.RolloutFinishedType, "x1-0",
		o.finished("x1-0", with([]storage.TokenColumn{shorter}))); !strings.Contains(refused, "other token columns") {
		t.Errorf("a trajectory with other columns: %q", refused)
	}
	o.must(events.RolloutFinishedType, "x1-0", o.finished("x1-0", with([]storage.TokenColumn{column})))
}
