package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/tests/program"
)

// about is a fact with the entity that it is about.
type about[T any] struct {
	Entity string `json:"entity"`
	AsOf   uint64 `json:"as_of"`
	Data   T      `json:"data"`
}

// factsAbout reads a run's facts of a type, in their order.
func factsAbout[T any](t *testing.T, dir, name string, typ events.Type) (list []about[T]) {
	t.Helper()
	for line := range strings.Lines(said(t, "events", "tail", name, "--type", string(typ), "--json", "--dir", dir)) {
		var e about[T]
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		list = append(list, e)
	}
	return list
}

// tree is everything that a workspace holds after a turn.
const tree = `find . ! -name . -exec stat -c '%n %F %a %s' {} + | sort; find . -type f -exec sha256sum {} + | sort; find . -type l -exec readlink {} +`

func workspace(t *testing.T, dir, rollout string, turn int) string {
	t.Helper()
	var opened struct {
		ExitCode int `json:"exit_code"`
		Stdout   string
	}
	mustRun(t, &opened, "sandbox", "open", rollout, "--turn", strconv.Itoa(turn), "--dir", dir,
		"--json", "--", "sh", "-c", tree)
	if opened.ExitCode != 0 || opened.Stdout == "" {
		t.Fatalf("workspace of %s after turn %d: %+v", rollout, turn, opened)
	}
	return opened.Stdout
}

// TestFork forks a rollout of a running plane half way. The forks begin with its conversation and
// workspace, go on by themselves, and are scored, compared and trained on like others.
func TestFork(t *testing.T) {
	t.Parallel()
	program.NeedSandbox(t)
	const run, count = "branchy", 3
	dir := t.TempDir()
	up := start(t, "up", "--dir", dir)
	program.Eventually(t, func() error {
		return runCommand(t, nil, "run", "open", run, "--file", smallRun(t, 40), "--tasks", smallPack(t), "--dir", dir)
	})
	origin, turn := changedHalfWay(t, dir, run)
	fork := func(args ...string) error {
		return runCommand(t, nil, append([]string{"fork", "--dir", dir, "--count", strconv.Itoa(count)}, args...)...)
	}
	var forked struct {
		Run, Group string
		Sequence   uint64
	}
	mustRun(t, &forked, "fork", origin, "--turn", strconv.Itoa(turn), "--count", strconv.Itoa(count), "--wait",
		"2m", "--dir", dir, "--json")
	if forked.Run != run || forked.Group == "" || forked.Sequence == 0 {
		t.Fatalf("%+v", forked)
	}
	for want, args := range map[string][]string{
		"no run has a rollout":      {"g999999-0", "--turn", "0"},
		"counted from 0":            {origin, "--turn", "5000"},
		"none is left behind it":    {origin, "--turn", strconv.Itoa(lastTurn(t, dir, run, origin))},
		"has no rollout g999999-0":  {"g999999-0", "--turn", "0", "--run", run},
		"there is no run \"other\"": {origin, "--turn", "0", "--run", "other"},
	} {
		t.Run(want, func(t *testing.T) {
			err := fork(args...)
			if want == "none is left behind it" && err != nil &&
				strings.Contains(err.Error(), "nothing to go on with") {
				return // the model ended it
			}
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("fork %v: %v; want %q", args, err, want)
			}
		})
	}
	program.Eventually(t, func() error {
		for _, g := range factsAbout[events.GroupCompleted](t, dir, run, events.GroupCompletedType) {
			if g.Entity == forked.Group {
				return nil
			}
		}
		return errors.New("the forks' group is not complete\n" + up.String())
	})
	mustRun(t, nil, "run", "close", run, "--dir", dir)
	settle(t, run, dir, up)
	if err := fork(origin, "--turn", strconv.Itoa(turn)); err == nil ||
		!strings.Contains(err.Error(), "run branchy is closed") {
		t.Errorf("a fork of a closed run: %v", err)
	}
	up.Stop(t)

	begun := workspace(t, dir, origin, turn)
	var members []string
	for i := range count {
		id := events.RolloutID(forked.Group, i)
		members = append(members, id)
		if got := workspace(t, dir, id, turn); got != begun {
			t.Errorf("%s has another workspace after turn %d than %s:\n%s\nand\n%s", id, turn, origin, got, begun)
		}
		checkFork(t, dir, run, id, origin, turn)
	}
	verify(t, run, "--dir", dir)
	var again toolsReplayed
	mustRun(t, &again, "replay", run, "--tools", "--rollouts", strings.Join(members, ","), "--dir", dir, "--json")
	if again.Rollouts != count || again.Verified != count || again.Differences+len(again.Errors) > 0 {
		t.Errorf("%+v", again)
	}
}

func runCommand(t *testing.T, into any, args ...string) error {
	t.Helper()
	return run(t.Context(), into, args...)
}

// changedHalfWay waits for a rollout with a turn that changed the workspace,
// behind which it went on.
func changedHalfWay(t *testing.T, dir, run string) (rollout string, turn int) {
	t.Helper()
	program.Eventually(t, func() error {
		over := map[string]bool{}
		for _, f := range factsAbout[events.RolloutScored](t, dir, run, events.RolloutScoredType) {
			over[f.Entity] = true
		}
		for _, done := range factsAbout[events.ToolsCompleted](t, dir, run, events.ToolsCompletedType) {
			if done.Data.Workspace != nil && done.Data.Turn < 4 && over[done.Entity] {
				rollout, turn = done.Entity, done.Data.Turn
				return nil
			}
		}
		return errors.New("no rollout has changed its workspace")
	})
	return rollout, turn
}

func lastTurn(t *testing.T, dir, run, rollout string) int {
	t.Helper()
	var shown storage.Trajectory
	mustRun(t, &shown, "trajectories", "show", run, rollout, "--dir", dir, "--json")
	return int(shown.Messages[len(shown.Messages)-1].Turn)
}

// checkFork reads a fork's trajectory: the origin's turns first, without loss, then its own.
func checkFork(t *testing.T, dir, run, id, origin string, turn int) {
	t.Helper()
	var of, from storage.Trajectory
	mustRun(t, &of, "trajectories", "show", run, id, "--dir", dir, "--json")
	mustRun(t, &from, "trajectories", "show", run, origin, "--dir", dir, "--json")
	said := func(t storage.Trajectory) (list []string) {
		for _, m := range t.Messages {
			if m.Role != events.RolePrompt && int(m.Turn) <= turn {
				list = append(list, fmt.Sprint(m.Role, m.Content, m.ToolCalls))
			}
		}
		return list
	}
	if !slices.Equal(said(of), said(from)) {
		t.Errorf("%s does not begin as %s", id, origin)
	}
	own := 0
	for _, m := range of.Messages {
		sampled := slices.Contains(m.LossMask, true)
		if m.Role != "assistant" {
			continue
		}
		if mine := int(m.Turn) > turn; sampled != mine || mine != (m.PolicyVersion >= 0) {
			t.Errorf("turn %d of %s: trained on %v, version %d", m.Turn, id, sampled, m.PolicyVersion)
		} else if mine {
			own++
		}
	}
	if own == 0 {
		t.Errorf("%s did nothing itself", id)
	}
}
