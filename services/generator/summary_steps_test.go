package generator

import (
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestSummaryInSteps: within a step its own instruction begins the next segment. Between two, the
// next one's does, and the summary's prompt does not have it yet.
func TestSummaryInSteps(t *testing.T) {
	log := natstest.Log(t)
	start(t, log, nil)
	for name, c := range map[string]struct {
		first int // requests of the first step
		shape string
		asked string // begins the second segment
	}{
		"within":  {8, "ttttts|ttff", "One."},
		"between": {4, "ttttfs|f", "Two."},
	} {
		s := newSpeaker(t, 100, func(request int, sum bool) inference.Message {
			if !sum && request >= 9 {
				return saying("Done with both.")
			}
			return working(c.first)(request, sum)
		})
		open(t, log, name, s.URL, summarising(func(cfg *runfile.RunConfig) {
			cfg.Tasks[0].Steps = []runfile.StepSpec{{Name: "one", Instruction: "One."},
				{Name: "two", Instruction: "Two."}}
		}))
		passed := func(step int) {
			servicetest.Wait(t, log, name, events.StepFinishedType, rollout, step+1)
			servicetest.Append(t, log, servicetest.Event(t, name, events.StepScoredType, rollout, events.Ordinal(step),
				events.StepScored{Step: step, Components: map[string]float64{"reward": 1}}))
		}
		for i := range c.first {
			if name == "within" && i >= 5 {
				i++ // the summary
			}
			if last := turns(t, log, name, i+1)[i]; len(last.ToolCalls) > 0 {
				answerTools(t, log, name, last)
			}
		}
		passed(0)
		passed(1)
		f, trajectory, r := play(t, log, name, "x")
		requests, sampled := s.seen()
		if shape(r) != c.shape || f.StopReason != events.StopFinished || f.Steps != 2 || f.Samples != 2 {
			t.Errorf("%s: %s, finished as %+v", name, shape(r), f)
			continue
		}
		checkSegments(t, name, r, trajectory, sampled)
		at := strings.Index(c.shape, "|")
		if asked := requests[at]; len(asked) != 2 ||
			asked[1].Content != c.asked+behindInstruction+r.Turns[at-1].Content {
			t.Errorf("%s: behind the summary it was asked %+v", name, asked)
		}
		instructions := 0
		for _, m := range requests[at-1] {
			instructions += strings.Count(m.Content, "Two.")
		}
		if asked := requests[at-1]; instructions != 0 || asked[len(asked)-1].Content != sumUp {
			t.Errorf("%s: for the summary it was asked %+v", name, asked)
		}
		if name == "within" { // the second step's words stand behind the first one's, in the second segment
			if asked := requests[at+3]; asked[len(asked)-1].Content != "Two." {
				t.Errorf("%s: the second step was asked %+v", name, asked)
			}
		}
	}
}

// TestStepBehindAnEmptySummary: a step of which there is nothing but a summary that
// says nothing is not begun.
func TestStepBehindAnEmptySummary(t *testing.T) {
	task := runfile.TaskSpec{Steps: []runfile.StepSpec{{Name: "one"}, {Name: "two"}}}
	limits := runfile.Limits{Turns: 10, Tokens: 100}
	ended := events.EndedStep{StepFinished: events.StepFinished{Turns: 1, StopReason: events.StopFinished},
		Verdict: &events.StepScored{}}
	for name, c := range map[string]struct {
		rollout events.Rollout
		step    action
		stop    string
	}{
		"between": {events.Rollout{Turns: []events.TurnSampled{{}, {Turn: 1, Summary: &events.Summary{}}},
			Steps: []events.EndedStep{ended}}, finish, events.StopContext},
		"within": {events.Rollout{Turns: []events.TurnSampled{{}, {Turn: 1, Summary: &events.Summary{}}}},
			endStep, events.StopContext},
		"good": {events.Rollout{Turns: []events.TurnSampled{{},
			{Turn: 1, Content: "so far", Summary: &events.Summary{}}}, Steps: []events.EndedStep{ended}}, sample, ""},
	} {
		if what, stop := next(&c.rollout, task, limits); what != c.step || stop != c.stop {
			t.Errorf("%s: step %d with %q, want %d with %q", name, what, stop, c.step, c.stop)
		}
	}
}

// TestMaySummarise: not before the first turn, not twice in a row, not without a turn left behind
// it, and not more often than the run allows.
func TestMaySummarise(t *testing.T) {
	turn, sum := events.TurnSampled{ToolCalls: []events.ToolCall{{ID: "c"}}},
		events.TurnSampled{Content: "so far", Summary: &events.Summary{}}
	for name, c := range map[string]struct {
		limits runfile.Limits
		turns  []events.TurnSampled
		want   bool
	}{
		"truncated": {runfile.Limits{Turns: 9}, []events.TurnSampled{turn}, false},
		"behind a turn": {runfile.Limits{Turns: 9, ContextFull: runfile.ContextSummarise},
			[]events.TurnSampled{turn}, true},
		"at the begin": {runfile.Limits{Turns: 9, ContextFull: runfile.ContextSummarise}, nil, false},
		"twice in a row": {runfile.Limits{Turns: 9, ContextFull: runfile.ContextSummarise},
			[]events.TurnSampled{turn, sum}, false},
		"two turns left": {runfile.Limits{Turns: 3, ContextFull: runfile.ContextSummarise},
			[]events.TurnSampled{turn}, true},
		"one turn left": {runfile.Limits{Turns: 2, ContextFull: runfile.ContextSummarise},
			[]events.TurnSampled{turn}, false},
		"once more": {runfile.Limits{Turns: 9, ContextFull: runfile.ContextSummarise, Summaries: 2},
			[]events.TurnSampled{turn, sum, turn}, true},
		"used up": {runfile.Limits{Turns: 9, ContextFull: runfile.ContextSummarise, Summaries: 1},
			[]events.TurnSampled{turn, sum, turn}, false},
		"four by default": {runfile.Limits{Turns: 99, ContextFull: runfile.ContextSummarise},
			[]events.TurnSampled{turn, sum, turn, sum, turn, sum, turn, sum, turn}, false},
	} {
		if got := maySummarise(runfile.RunConfig{Limits: c.limits}, &events.Rollout{Turns: c.turns}); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestForkBehindASummary: a fork may begin with a summary. It is asked with the task and the
// summary, and its file begins there.
func TestForkBehindASummary(t *testing.T) {
	log := natstest.Log(t)
	s := newSpeaker(t, 100, working(7))
	open(t, log, "r", s.URL, summarising(nil))
	stop := start(t, log, nil)
	_, _, origin := play(t, log, "r", "x")
	stop()
	if shape(origin) != "ttttts|tf" {
		t.Fatal(shape(origin))
	}
	for name, c := range map[string]struct {
		turn           int
		copied, tokens int // of its file: rows without a loss, and all tokens
	}{"g000002-0": {5, 2, 30}, "g000003-0": {6, 4, 42}} {
		servicetest.Append(t, log, servicetest.Event(t, "r", events.RolloutStartedType, name,
			"0", events.RolloutStarted{
				Group: events.GroupOf(name), Task: "a", Deadline: time.Now().Add(time.Hour),
				Origin: &events.Origin{Rollout: rollout, Turn: c.turn},
			}))
		stop := start(t, log, nil)
		f := servicetest.WaitData[events.RolloutFinished](t, log, "r", events.RolloutFinishedType, name)
		stop()
		r, err := log.Rollout(t.Context(), "r", name)
		if err != nil || r.Copied != c.turn+1 || f.Samples != 1 || f.Sampled != 10 ||
			f.Tokens != c.tokens || f.Turns != c.turn+2 {
			t.Errorf("%s: finished as %+v, with %d turns copied: %v", name, f, r.Copied, err)
			continue
		}
		requests, _ := s.seen()
		if asked := requests[len(requests)-1]; !strings.HasSuffix(asked[1].Content,
			behindInstruction+origin.Turns[5].Content) || len(asked) != c.copied {
			t.Errorf("%s was asked %+v", name, asked)
		}
		// What was said before the summary is in the origin's file.
		if rows := fileOf(t, log, f).Messages; len(rows) != c.copied+1 {
			t.Errorf("%s: the file has %d rows, want the prompt of %d messages and the answer", name, len(rows),
				c.copied)
		}
	}
}

// TestSummaryWithoutTokens: a rollout whose server gives no tokens cannot be trained on. Its file
// keeps the conversations apart.
func TestSummaryWithoutTokens(t *testing.T) {
	say := func(turn int, text string, sum bool) events.TurnSampled {
		s := events.TurnSampled{Turn: turn, Content: text, TextOnly: true}
		if sum {
			s.Summary = &events.Summary{}
		}
		return s
	}
	r := &events.Rollout{Run: "r", ID: rollout, Turns: []events.TurnSampled{say(0, "first", false),
		say(1, "so far", true), say(2, "done", false)}}
	tr, err := trajectory(runfile.RunConfig{SystemPrompt: "Mend."},
		runfile.TaskSpec{Name: "a", Instruction: "Do."}, r, events.StopFinished)
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for _, m := range tr.Messages {
		rows = append(rows, events.Ordinal(m.Segment)+m.Role)
	}
	if got, want := strings.Join(rows, " "),
		"0system 0user 0assistant 0user 0assistant 1system 1user 1assistant"; got != want || !tr.TextOnly {
		t.Errorf("rows %s, want %s", got, want)
	}
	if last := tr.Messages[6].Content; last != "Do."+behindInstruction+"so far" {
		t.Errorf("behind the summary it was asked %q", last)
	}
}
