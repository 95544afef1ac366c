package e2e

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/advantage"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/storage"
)

// sameAsOnTheCommandLine compares the advantages of a run, which is named after its estimator, with
// what `rondo advantage` makes of its rewards: group by group, all groups of a task in their order,
// or batch by batch, as the estimator looks at them.
func sameAsOnTheCommandLine(t *testing.T, dir, estimator string) {
	t.Helper()
	e, err := advantage.New(estimator, nil)
	if err != nil {
		t.Fatal(err)
	}
	groups := completed(t, dir, estimator)
	compared := 0
	if _, whole := advantage.Batchwise(estimator, nil); whole {
		for _, ready := range facts[events.BatchReady](t, dir, estimator, events.BatchReadyType) {
			compared += sameInBatch(t, dir, estimator, ready, groups)
		}
	} else if e.Remembers() {
		byTask := map[string][]events.GroupCompleted{}
		for _, g := range groups {
			byTask[g.Task] = append(byTask[g.Task], g)
		}
		for _, groups := range byTask {
			compared += sameInGroups(t, estimator, groups)
		}
	} else {
		compared = sameInGroups(t, estimator, groups)
	}
	if compared == 0 {
		t.Errorf("%s: no advantage other than 0 was compared", estimator)
	}
}

// sameInGroups compares what group.completed says. It counts the advantages other than 0.
func sameInGroups(t *testing.T, estimator string, groups []events.GroupCompleted) (compared int) {
	t.Helper()
	for i, want := range onTheCommandLine(t, estimator, groups, nil) {
		for k, m := range groups[i].Members {
			if m.Failed != (want[k] == nil) || !m.Failed && math.Abs(m.Advantage-*want[k]) > 1e-12 {
				t.Errorf("%s: %s has %g", estimator, m.Rollout, m.Advantage)
			}
			if m.Advantage != 0 {
				compared++
			}
		}
	}
	return compared
}

// sameInBatch compares what the trainer reads: every sampled token has the
// advantage of its rollout.
func sameInBatch(t *testing.T, dir, estimator string, ready events.BatchReady,
	completed []events.GroupCompleted) (compared int) {
	t.Helper()
	samples, sampled := map[string][]storage.Sample{}, map[string]int{}
	for _, file := range ready.Files {
		data, err := os.ReadFile(filepath.Join(dir, "objects", string(file.Key)))
		if err != nil {
			t.Fatal(err)
		}
		batch, err := storage.DecodeBatch(data)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range batch.Samples {
			samples[s.Rollout] = append(samples[s.Rollout], s)
			for _, own := range s.LossMask {
				if own {
					sampled[s.Rollout]++
				}
			}
		}
	}
	var groups []events.GroupCompleted
	var tokens [][]int
	for _, id := range ready.Groups {
		at := slices.IndexFunc(completed, func(g events.GroupCompleted) bool {
			return events.GroupOf(
				g.Members[0].Rollout) == id
		})
		if at < 0 {
			t.Fatalf("step %d: group %s is not complete", ready.Step, id)
		}
		var own []int
		for _, m := range completed[at].Members {
			own = append(own, sampled[m.Rollout])
		}
		groups, tokens = append(groups, completed[at]), append(tokens, own)
	}
	for i, want := range onTheCommandLine(t, estimator, groups, tokens) {
		for k, m := range groups[i].Members {
			for _, s := range samples[m.Rollout] {
				for at, own := range s.LossMask {
					if own && math.Abs(float64(s.Advantages[at])-*want[k]) > 1e-6 {
						t.Fatalf("%s: step %d: %s has %g, want %g", estimator, ready.Step, m.Rollout,
							s.Advantages[at], *want[k])
					}
					if own && s.Advantages[at] != 0 {
						compared++
					}
				}
			}
		}
	}
	return compared
}

// onTheCommandLine asks `rondo advantage`.
func onTheCommandLine(t *testing.T, estimator string, groups []events.GroupCompleted, tokens [][]int) [][]*float64 {
	t.Helper()
	in := struct {
		Groups [][]*float64 `json:"groups"`
		Tokens [][]int      `json:"tokens,omitempty"`
	}{Tokens: tokens}
	for _, g := range groups {
		rewards := make([]*float64, len(g.Members))
		for k := range g.Members {
			if m := &g.Members[k]; !m.Failed {
				rewards[k] = &m.Reward
			}
		}
		in.Groups = append(in.Groups, rewards)
	}
	text, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), rondo, "advantage", "--estimator", estimator)
	cmd.Stdin = bytes.NewReader(text)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	in.Groups = nil
	if err := json.Unmarshal(out, &in); err != nil || len(in.Groups) != len(groups) {
		t.Fatalf("%d groups instead of %d: %v\n%s", len(in.Groups), len(groups), err, out)
	}
	return in.Groups
}

// completed reads a run's completed groups.
func completed(t *testing.T, dir, name string) []events.GroupCompleted {
	t.Helper()
	return facts[events.GroupCompleted](t, dir, name, events.GroupCompletedType)
}

// facts reads a run's facts of a type, in their order.
func facts[T any](t *testing.T, dir, name string, typ events.Type) (list []T) {
	t.Helper()
	for line := range strings.Lines(said(t, "events", "tail", name, "--type", string(typ), "--json", "--dir", dir)) {
		var e struct {
			Data T `json:"data"`
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		list = append(list, e.Data)
	}
	return list
}
