package faults

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/storage"
)

// decisions are what the deciding services have stated of a run.
type decisions struct {
	order   []string          // of ids, as they are on the log
	facts   map[string]string // id → content, without deadlines
	steps   []step
	trained map[string]string // sample → its row, without what its age makes
	dropped int               // groups
	failed  int               // rollouts
}

// step is a batch: its groups in their order, its content, and its samples in
// the order of their names.
type step struct {
	groups []string
	stated string
	sorted string
}

// kept says which decisions follow from the run alone: the order of all of them, policy versions,
// and the groups of a step.
type kept struct{ order, versions, steps bool }

// decided reads a run that has ended.
func decided(t *testing.T, log *eventlog.Log) *decisions {
	t.Helper()
	d := &decisions{facts: map[string]string{}, trained: map[string]string{}}
	for e, err := range log.All(t.Context(), run, 1) {
		if err != nil {
			t.Fatal(err)
		}
		switch e.Type {
		case events.GroupDroppedType:
			d.dropped++
			d.add(e.ID, e.Data)
		case events.RolloutFailedType:
			d.failed++
			d.facts[e.ID] = string(e.Data)
		case events.GroupOpenedType, events.GroupCompletedType, events.RunPausedType:
			d.add(e.ID, e.Data)
		case events.RolloutStartedType:
			started, err := events.Data[events.RolloutStarted](e)
			if err != nil {
				t.Fatal(err)
			}
			started.Deadline = time.Time{}
			d.add(e.ID, marshal(t, started))
		case events.BatchReadyType:
			d.order = append(d.order, e.ID)
			d.batch(t, log, e)
		}
	}
	return d
}

func (d *decisions) add(id string, data []byte) {
	d.order = append(d.order, id)
	d.facts[id] = string(data)
}

// batch reads a batch and its file.
func (d *decisions) batch(t *testing.T, log *eventlog.Log, e events.Event) {
	t.Helper()
	ready, err := events.Data[events.BatchReady](e)
	if err != nil {
		t.Fatal(err)
	}
	data, err := storage.GetBlob(t.Context(), log.Store(), ready.Files[0])
	if err != nil {
		t.Fatal(err)
	}
	batch, err := storage.DecodeBatch(data)
	if err != nil {
		t.Fatal(err)
	}
	s := step{groups: ready.Groups, stated: fmt.Sprintf("%s %x", e.Data, sha256.Sum256(data))}
	slices.SortFunc(batch.Samples, func(a, b storage.Sample) int { return strings.Compare(a.Rollout, b.Rollout) })
	s.sorted = string(encode(t, *batch))
	d.steps = append(d.steps, s)
	for _, sample := range batch.Samples {
		sample.Staleness, sample.DispatchVersion = 0, 0
		for i := range sample.PolicyVersions {
			sample.PolicyVersions[i].Version = 0
		}
		one := []storage.Sample{sample}
		d.trained[fmt.Sprintf("%s, sample %d", sample.Rollout,
			sample.SampleIndex)] += string(encode(t, storage.Batch{Run: run, Feed: batch.Feed, Ranks: 1,
			Whole: storage.Count(one), Samples: one}))
	}
}

// compare says where another run has decided differently, "" where it has not. same collects the
// batches whose groups were complete in the same order.
func (d *decisions) compare(other *decisions, kept kept, same map[string]string) string {
	mine, theirs := d.facts, other.facts
	if !kept.versions {
		mine, theirs = withoutVersions(mine), withoutVersions(theirs)
	}
	switch {
	case kept.order && !slices.Equal(d.order, other.order):
		return fmt.Sprintf("decisions in another order:\n%s\n%s", d.order, other.order)
	case len(d.steps) != len(other.steps):
		return fmt.Sprintf("%d steps instead of %d", len(other.steps), len(d.steps))
	}
	if id := differs(mine, theirs); id != "" {
		return fmt.Sprintf("%s was %q, and is %q", id, mine[id], theirs[id])
	}
	if rollout := differs(d.trained, other.trained); rollout != "" {
		return fmt.Sprintf("%s is trained otherwise: %d bytes instead of %d", rollout, len(other.trained[rollout]),
			len(d.trained[rollout]))
	}
	if !kept.steps {
		return ""
	}
	for _, steps := range [][]step{d.steps, other.steps} {
		for i, s := range steps {
			key := fmt.Sprint(i, s.groups)
			if before, ok := same[key]; ok && before != s.stated {
				return fmt.Sprintf("step %d is of the groups %s in two runs, in this order: once %s, and once %s", i+1,
					s.groups, before, s.stated)
			}
			same[key] = s.stated
		}
	}
	for i := range d.steps {
		if d.steps[i].sorted != other.steps[i].sorted {
			return fmt.Sprintf("step %d trains other samples: groups %s, and were %s", i+1,
				other.steps[i].groups, d.steps[i].groups)
		}
	}
	return ""
}

// differs is the first key, in alphabetical order, under which two maps differ;
// "" where they are equal.
func differs(a, b map[string]string) string {
	keys := slices.Sorted(maps.Keys(a))
	keys = append(keys, slices.Sorted(maps.Keys(b))...)
	for _, key := range keys {
		in, ok := b[key]
		if was, there := a[key]; !ok || !there || in != was {
			return key
		}
	}
	return ""
}

// withoutVersions is without what the policy version of a group changes.
func withoutVersions(facts map[string]string) map[string]string {
	plain := map[string]string{}
	for id, data := range facts {
		plain[id] = version.ReplaceAllString(data, "")
	}
	return plain
}

var version = regexp.MustCompile(`"policy_version":[0-9]+,?`)

func encode(t *testing.T, b storage.Batch) []byte {
	t.Helper()
	data, err := storage.EncodeBatch(&b)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func marshal(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
