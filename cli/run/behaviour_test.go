package run

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/evaluation/behaviour"
)

// tableOf is what the table looks like: versions that think more and more, and one of
// which nothing is scored.
const tableOf = `
behaviour of the scored rollouts, by policy version at dispatch: means, with medians in parentheses
VERSION  SCORED  FAILED  IN FLIGHT  REWARD  EFFORT          LENGTH  TURNS    TOKENS      THINKING  THOUGHTS  CALLS/TURN  PARALLEL  BEFORE EDIT  ERRORS  SAMPLES  NEW SAMPLES          STOPPED
0-3          30       2          0   0.250  0.310 (-0.155)  -0.021  4.2 (4)  1204 (980)        0%  0.0 (0)         1.50       20%  3.1 (2)         12%  1.2 (1)  thoughts 5, drift 1  finished 28, max_turns 2
4             8       0          4   0.500  0.200 (-0.100)       –  2.5 (2)  –                62%  840 (12)        1.00        0%  –                0%  –        –                    fin�ished 8
5             0       0          1       –  –                    –  –        –                  –  –                  –         –  –                 –  –        –                    –
`

func TestBehaviourTable(t *testing.T) {
	figure := func(mean float64, median int64) *behaviour.Figure {
		return &behaviour.Figure{Rollouts: 8, Mean: mean, Median: median, P90: median}
	}
	rows := []behaviour.Row{
		{FirstVersion: 0, LastVersion: 3, Started: 32, Scored: 30, Failed: 2, Reward: new(0.25),
			Effort: &behaviour.Effort{Mean: 0.31, RewardChange: -0.155}, LengthPenalty: new(-0.021),
			Turns: figure(4.2, 4), SampledTokens: figure(1204, 980), ReasoningTurnShare: new(0.0),
			ReasoningCharacters: figure(0, 0), CallsPerTurn: new(1.5), ParallelTurnShare: new(0.2),
			CallsBeforeEdit: figure(3.1, 2), FailedCallShare: new(0.12), Samples: figure(1.2, 1),
			NewSamples:  map[string]int{"drift": 1, "thoughts": 5},
			StopReasons: map[string]int{"finished": 28, "max_turns": 2}},
		{FirstVersion: 4, LastVersion: 4, Started: 12, Scored: 8, InFlight: 4, Reward: new(0.5),
			Effort: &behaviour.Effort{Mean: 0.2, RewardChange: -0.1}, Turns: figure(2.5, 2),
			ReasoningTurnShare: new(0.624), ReasoningCharacters: figure(840, 12), CallsPerTurn: new(1.0),
			ParallelTurnShare: new(0.0), FailedCallShare: new(0.0),
			StopReasons: map[string]int{"fin\x1bished": 8}},
		{FirstVersion: 5, LastVersion: 5, Started: 1, InFlight: 1},
	}
	var b strings.Builder
	if err := printBehaviour(&b, rows); err != nil || b.String() != tableOf {
		t.Errorf("%v\n%s\nwant\n%s", err, b.String(), tableOf)
	}
}

// TestBehaviourIsShown: of a run that is under way and of an archived one, and
// in JSON of every version.
func TestBehaviourIsShown(t *testing.T) {
	t.Parallel()
	r := clitest.NewRecorded(t)
	show := func(args ...string) string {
		t.Helper()
		output, err := clitest.Run(t, New, append([]string{"run", "show", "first", "--dir", r.Dir}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		return output
	}
	if output := show("--behaviour"); !strings.Contains(output,
		"\nno rollout has started: there is no behaviour to show\n") {
		t.Errorf("before the first rollout: %s", output)
	}
	for version := range int64(2*shownVersions + 1) {
		_, ids := r.Group(version+1, "fix-a", 2, version)
		if version < 2 {
			r.Score(ids[0], "fix-a", version, float64(version))
		}
	}
	output := show("--behaviour")
	_, table, found := strings.Cut(output, "VERSION ")
	if lines := strings.Split(strings.TrimSpace(table), "\n"); !found || len(lines) != 1+14 ||
		!strings.HasPrefix(lines[1], "0-2  ") || !strings.HasPrefix(lines[14], "39-40  ") {
		t.Errorf("a table of %d lines: %s", len(lines), output)
	}
	if output := show(); strings.Contains(output, "VERSION") {
		t.Errorf("without the flag: %s", output)
	}
	var s struct {
		Behaviour []map[string]json.RawMessage `json:"behaviour"`
	}
	if err := json.Unmarshal([]byte(show("--json")), &s); err != nil || len(s.Behaviour) != 2*shownVersions+1 {
		t.Fatalf("%d versions, %v", len(s.Behaviour), err)
	}
	second := s.Behaviour[1]
	for name, want := range map[string]string{
		"first_version": "1", "last_version": "1", "started": "2", "scored": "1", "failed": "0", "in_flight": "1",
		"reward": "1", "failed_call_share": "1", "calls_per_turn": "1",
		"reasoning_turn_share": "", "reasoning_characters": "", "calls_before_edit": "", "effort": "",
		"length_penalty": "", "new_samples": "",
	} {
		if got := string(second[name]); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	var turns behaviour.Figure
	if err := json.Unmarshal(second["turns"], &turns); err != nil ||
		turns != (behaviour.Figure{Rollouts: 1, Mean: 2, Median: 2, P90: 2}) {
		t.Errorf("turns %s: %v", second["turns"], err)
	}
	if _, err := r.Log.Appender.Seal(t.Context(), "first", true); err != nil {
		t.Fatal(err)
	}
	if err := r.Log.Streams.DeleteRun(t.Context(), "first"); err != nil {
		t.Fatal(err)
	}
	if archived := show("--behaviour"); !strings.Contains(archived, "is lost") || !strings.HasSuffix(archived, table) {
		t.Errorf("of its archive: %s", archived)
	}
}
