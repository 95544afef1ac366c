package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/books"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/tests/program"
)

// toolsReplayed is what the tests read of `rondo replay --tools --json`.
type toolsReplayed struct {
	Rollouts, Turns, Calls, Verified, Different, Differences int
	Details                                                  []struct {
		Rollout, Call, Tool, Field, Recorded, Again string
		Turn                                        *int
	}
	Errors []string
}

// TestReplayTools: what agents and verifiers did to their sandboxes comes out the same again, and
// what is drawn or told by the clock is found.
func TestReplayTools(t *testing.T) {
	t.Parallel()
	program.NeedSandbox(t)
	dir := t.TempDir()
	demo := func(pack, seed string) {
		mustRun(t, nil, "demo", "--tasks", pack, "--steps", "1", "--groups-per-batch", "2", "--group-size", "3",
			"--seed", seed, "--quiet", "--dir", dir, "--json")
	}
	demo(smallPack(t), "5")
	var same toolsReplayed
	mustRun(t, &same, "replay", "demo-5", "--tools", "--slots", "2", "--dir", dir, "--json")
	if same.Rollouts < 6 || same.Verified != same.Rollouts || same.Turns < 6 || same.Calls < same.Turns ||
		same.Differences+len(same.Errors) > 0 {
		t.Errorf("%+v", same)
	}
	var one toolsReplayed
	mustRun(t, &one, "replay", "demo-5", "--tools", "--rollouts", "g000002-0,g000001-1", "--dir", dir, "--json")
	if one.Rollouts != 2 || one.Verified != 2 {
		t.Errorf("%+v", one)
	}

	pack := smallPack(t)
	for _, task := range []string{"add", "max"} { // the policy runs check.sh, and the verifier does not
		writeFile(t, filepath.Join(pack, task, "environment/repo/check.sh"),
			"od -An -N8 -tx1 /dev/urandom; date +%s%N > now; echo FAIL; exit 1\n")
	}
	demo(pack, "6")
	cmd := exec.CommandContext(t.Context(), rondo, "replay", "demo-6", "--tools", "--dir", dir, "--json")
	out, err := cmd.Output()
	var drawn toolsReplayed
	if jsonErr := json.Unmarshal(out, &drawn); jsonErr != nil || cmd.ProcessState.ExitCode() != 2 {
		t.Fatalf("%v, %v: %s", err, jsonErr, out)
	}
	fields := map[string]int{}
	for _, d := range drawn.Details { // the policy edits check.sh, too, and draws more or leaves other files
		ofCall := d.Call != "" && d.Tool == "run_terminal_cmd"
		if d.Turn == nil || d.Recorded == d.Again || !strings.HasPrefix(d.Rollout, "g00000") ||
			ofCall == strings.HasPrefix(d.Field, "workspace/") {
			t.Errorf("%+v", d)
		}
		fields[d.Field]++
	}
	if fields["content"] == 0 || fields["workspace/now"] == 0 || drawn.Verified != drawn.Rollouts ||
		drawn.Differences != len(drawn.Details) || drawn.Different == 0 {
		t.Errorf("differences by field: %v; %d of %d verified", fields, drawn.Verified, drawn.Rollouts)
	}
}

// TestReplayScores makes rewards again: of what was recorded, and by verifiers.
func TestReplayScores(t *testing.T) {
	t.Parallel()
	program.NeedSandbox(t)
	dir := t.TempDir()
	replay := func(as string, flags ...string) {
		t.Helper()
		mustRun(t, nil, append([]string{"replay", "demo-9", "--as", as, "--from", "scores", "--quiet", "--dir", dir,
			"--json"}, flags...)...)
		verifyReplay(t, as, dir)
	}
	mustRun(t, nil, "demo", "--tasks", smallPack(t), "--steps", "2", "--groups-per-batch", "2", "--group-size", "4",
		"--seed", "9", "--quiet", "--dir", dir, "--json")
	rewards := func(run string) map[string]float64 {
		t.Helper()
		found := map[string]float64{}
		for _, g := range completed(t, dir, run) {
			for _, m := range g.Members {
				found[g.Task+" "+m.Rollout] = m.Reward
			}
		}
		return found
	}
	before := rewards("demo-9")
	if values := slices.Compact(slices.Sorted(func(yield func(float64) bool) {
		for _, v := range before {
			if !yield(v) {
				return
			}
		}
	})); len(values) != 2 {
		t.Fatalf("rewards are %v: nothing to tell apart", before)
	}
	follows := func(run string, want func(task string, reward float64) float64) {
		t.Helper()
		now := rewards(run)
		for name, reward := range before {
			task, _, _ := strings.Cut(name, " ")
			if got, ok := now[name]; !ok || got != want(task, reward) {
				t.Errorf("%s: %s was %g and is %g", run, name, reward, got)
			}
		}
	}
	asBefore := func(_ string, reward float64) float64 { return reward }

	replay("composed")
	follows("composed", asBefore)
	replay("doubled", "--set", "scorer.weights.reward=2")
	follows("doubled", func(_ string, reward float64) float64 { return 2 * reward })
	replay("lenient", "--set", "scorer.threshold=0")
	follows("lenient", func(string, float64) float64 { return 1 })
	replay("verified", "--rerun-verifiers")
	follows("verified", asBefore)
	var d books.Diff
	mustRun(t, &d, "diff", "demo-9", "verified", "--dir", dir, "--json")
	if d.Changed != 0 || d.Both == 0 || d.TrainedOnlyA+d.TrainedOnlyB != 0 {
		t.Errorf("%+v", d)
	}

	pack := smallPack(t)
	writeFile(t, filepath.Join(pack, "add/tests/test.sh"),
		"r=1; [ \"$(sh add.sh 3 4)\" = 7 ] && r=0\necho \"{\\\"reward\\\": $r, \\\"mended\\\": 3}\" > /logs/verifier/reward.json\n")
	mended := func(task string, reward float64) float64 {
		if task == "add" {
			return 1 - reward
		}
		return reward
	}
	for range 3 { // each goes on where the last one was killed
		p := start(t, "replay", "demo-9", "--as", "mended", "--from", "scores", "--tasks", pack, "--slots", "1",
			"--quiet", "--dir", dir)
		p.KillWithin(500 * time.Millisecond)
	}
	replay("mended", "--tasks", pack, "--slots", "1")
	follows("mended", mended)

	opened, outcomes := openingOf(t.Context(), t, dir, "mended")
	if !slices.Contains(opened.Replays.Decided, topology.Scorer) || opened.Replays.Run != "demo-9" || outcomes == 0 {
		t.Errorf("%+v, %d outcomes of the scorer", opened.Replays, outcomes)
	}
}

// openingOf reads how a run was opened, and how many outcomes its scorer stated.
func openingOf(ctx context.Context, t *testing.T, dir, name string) (opened events.RunOpened, outcomes int) {
	t.Helper()
	out, err := exec.CommandContext(ctx, rondo, "events", "tail", name, "--json", "--dir", dir).Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		var e struct {
			Type, Source string
			Data         json.RawMessage
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(fmt.Errorf("%w: %s", err, line))
		}
		switch {
		case strings.HasSuffix(e.Type, string(events.RunOpenedType)):
			if err := json.Unmarshal(e.Data, &opened); err != nil {
				t.Fatal(err)
			}
		case strings.HasSuffix(e.Type, string(events.RolloutScoredType)) && e.Source == topology.Scorer:
			outcomes++
		}
	}
	return opened, outcomes
}
