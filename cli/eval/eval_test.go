package eval

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/evaluation"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/services/servicetest"
)

func TestEvalRefusals(t *testing.T) {
	dir := clitest.FilledPlane(t, nil)
	for flags, want := range map[string]string{
		"":                                          "say what to evaluate",
		"--policy a --from b":                       "say what to evaluate",
		"--policy a@b":                              "the version is a number",
		"--policy a --k 0":                          "--k 0",
		"--policy a --k 1,x":                        "x",
		"--policy a --k 8 --attempts 4":             "--attempts 4: pass@8 needs as many",
		"--policy a --attempts 10001":               "at most 10000",
		"--policy a --min-pass 1.1":                 "--min-pass 1.1",
		"--policy a --min-pass NaN":                 "--min-pass NaN",
		"--policy a --since 3":                      "--since is for --follow",
		"--policy a --logprobs x":                   "--logprobs is for --from",
		"--policy a --follow --against b":           "--against is for one evaluation",
		"--policy a@3 --follow":                     "--follow evaluates all versions",
		"--policy a@0 --temperature 11":             "sampling.temperature 11",
		"--policy a --endpoint ftp://x":             "endpoint",
		"--policy a --file nothing.yaml":            "nothing.yaml",
		"--from first --turns 3":                    "--turns is for --policy",
		"--from first --against a@3":                "another RUN",
		"--from first --set sampling.temperature=2": "can change how they are scored",
		"--from first":                              "there is no run",
	} {
		_, err := clitest.Run(t, New, append([]string{"eval", "--dir", dir, "--quiet"}, strings.Fields(flags)...)...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", flags, err, want)
		}
	}
}

// judged is a recorded plane whose rollouts are evaluated.
type judged struct{ *clitest.Recorded }

// verdict states what the scorer would have, with two components.
func (r *judged) verdict(id string, reward, style float64) {
	r.T.Helper()
	finished := servicetest.Finished(r.T, r.Log.Store(), "first", id, servicetest.Trajectory("first", id, "fix-a"))
	r.State(events.RolloutFinishedType, id, "0", finished)
	e := servicetest.Event(r.T, "first", events.RolloutScoredType, id, "0", events.RolloutScored{
		Reward: reward, Components: map[string]float64{"reward": reward, "style": style},
		Trajectory: finished.Trajectory,
	})
	e.Source = topology.Scorer
	servicetest.Append(r.T, r.Log, e)
}

func (r *judged) eval(args ...string) (report evaluation.Report, err error) {
	r.T.Helper()
	out, err := clitest.Run(r.T, New, append([]string{"eval", "--from", "first", "--dir", r.Dir, "--quiet", "--json"},
		args...)...)
	if out != "" {
		if err := json.Unmarshal([]byte(out), &report); err != nil {
			r.T.Fatalf("%s: %v", out, err)
		}
	}
	return report, err
}

// What is invalidated or under way does not count, what failed has no reward, and other
// weights give other rewards.
func TestEvalOfRecordedRollouts(t *testing.T) {
	r := &judged{clitest.NewRecorded(t)}
	_, ids := r.Group(1, "fix-a", 6, 3)
	r.verdict(ids[0], 1, 0.5)
	r.verdict(ids[1], 0, 1)
	r.verdict(ids[2], 1, 0)
	r.State(events.RolloutInvalidatedType, ids[2], "0", events.RolloutInvalidated{Reason: "leak"})
	r.State(events.RolloutFailedType, ids[3], "0", events.RolloutFailed{Stage: events.StageTools,
		Class: events.ClassSandbox})
	r.Score(ids[4], "fix-a", 3, 0.25) // by an outsider, who reports no components
	report, err := r.eval()
	if err != nil {
		t.Fatal(err)
	}
	s := report.Summaries[0]
	if s.Attempts != 4 || s.Failed != 1 || s.PassAt[0].Estimate.Value != 1./3 ||
		s.Reward.Value != 1.25/3 || report.Run != "first" {
		t.Errorf("as recorded: %+v", s)
	}
	if notes := strings.Join(s.Notes, "\n"); !strings.Contains(notes, "1 invalidated") ||
		!strings.Contains(notes, "1 rollouts have no outcome") {
		t.Errorf("notes %s", notes)
	}
	a := s.ByTask[0].Attempts[3]
	if a.Rollout != ids[4] || a.ToolCalls != 1 || a.ToolFailures != 1 || a.Turns != 2 || a.Sampled != 3 ||
		a.Version != 3 || a.Trajectory == "" {
		t.Errorf("attempt %+v", a)
	}

	report, err = r.eval("--set", "scorer.weights.style=1", "--pass-at", "0.5", "--against", "first")
	if err != nil || report.Summaries[0].PassAt[0].Estimate.Value != 2./3 ||
		report.Summaries[0].Reward.Value != 1.75/3 || report.Summaries[1].Reward.Value != 1.25/3 {
		t.Errorf("by style: %v: %+v", err, report.Summaries)
	}
	if _, err = r.eval("--set", "scorer.weights.speed=1"); err == nil || !strings.Contains(err.Error(), "speed") {
		t.Errorf("of a component that nobody reported: %v", err)
	}
	var e *app.ExitError
	if _, err = r.eval("--min-pass", "0.34"); !errors.As(err, &e) || e.Code != app.ExitFindings {
		t.Errorf("below the gate: %v", err)
	}
	if _, err = r.eval("--min-pass", "0.33"); err != nil {
		t.Errorf("above the gate: %v", err)
	}
}

// TestBehaviourOfBothSides: the report has the behaviour of what is compared beside each other,
// without rollouts that do not count.
func TestBehaviourOfBothSides(t *testing.T) {
	r := &judged{clitest.NewRecorded(t)}
	_, ids := r.Group(1, "fix-a", 2, 3)
	r.Score(ids[0], "fix-a", 3, 1)
	r.State(events.TurnSampledType, ids[1], "0", events.TurnSampled{CompletionTokens: 90000})
	r.verdict(ids[1], 0, 0)
	r.State(events.RolloutInvalidatedType, ids[1], "0", events.RolloutInvalidated{Reason: "leak"})
	report, err := r.eval("--against", "first")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range report.Summaries {
		if got := s.Behaviour; got == nil || got.FirstVersion != 3 || got.Started != 1 || got.Scored != 1 ||
			got.SampledTokens.Mean != 4 || got.Turns.Mean != 2 || *got.FailedCallShare != 1 {
			t.Errorf("%s: %+v", s.Name, got)
		}
	}
	out, err := clitest.Run(t, New, "eval", "--from", "first", "--against", "first", "--dir", r.Dir, "--quiet")
	if err != nil || !strings.Contains(out, `
behaviour: means for each scored attempt, with medians in parentheses

                                                     first    first (first)
turns                                                2.0 (2)  2.0 (2)
sampled tokens                                       4.0 (4)  4.0 (4)
tool calls in a turn that has any                    1.00     1.00
of these turns, those with several calls             0%       0%
failed tool calls                                    100%     100%
training samples                                     1.0 (1)  1.0 (1)
of the sampled tokens, those that can be trained on  75%      75%
`) {
		t.Errorf("%v\n%s", err, out)
	}
}

// An evaluation that was closed early lacks what was cancelled and what was never begun.
func TestMissingAttempts(t *testing.T) {
	dir := clitest.FilledPlane(t, func(log *eventlog.Log) {
		cfg := servicetest.Config("a", "b")
		cfg.Feeds, cfg.Epochs, cfg.GroupSize = nil, 1, 2
		servicetest.OpenRun(t, log, "early", cfg)
		state := func(typ events.Type, entity string, data any) {
			servicetest.Append(t, log, servicetest.Event(t, "early", typ, entity, "0", data))
		}
		for _, id := range []string{"g000001-0", "g000001-1"} {
			servicetest.StartRollout(t, log, "early", id, "a")
		}
		state(events.RolloutFailedType, "g000001-0", events.RolloutFailed{Stage: events.StageTools,
			Class: events.ClassSandbox})
		state(events.RunClosedType, "early", events.RunClosed{Reason: "enough"})
		state(events.RolloutFailedType, "g000001-1", events.RolloutFailed{Stage: events.StageSampler,
			Class: events.ClassCancelled})
		f, err := evaluation.ReadRecorded(t.Context(), log.Reader, "early")
		if err != nil || f.Missing() != "the run was closed before 3 of 4 attempts were made: enough" {
			t.Errorf("%q, %v", f.Missing(), err)
		}
	})
	if _, err := clitest.Run(t, New, "eval", "--from", "early", "--dir", dir); err == nil ||
		!strings.Contains(err.Error(), "no attempt was scored") {
		t.Errorf("without any reward: %v", err)
	}
}
