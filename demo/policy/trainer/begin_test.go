package trainer

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/rondo-rl/rondo/demo/policy"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/weights"
)

// TestBeginsAtThePublishedVersion: the trainer of a run whose policy has versions, as one that
// continues another run, trains on from them, and its first version follows the last. A trainer
// with a checkpoint, and one of a new policy, begin as they did.
func TestBeginsAtThePublishedVersion(t *testing.T) {
	log := natstest.Log(t)
	trained, err := policy.NewTrainer(policy.DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	file, err := trained.Weights()
	if err != nil {
		t.Fatal(err)
	}
	file = bytes.Clone(file)
	file[len(file)-3] ^= 1 // the published version is not the initial policy
	if _, err := weights.Publish(t.Context(), log.Store(), "p", 7,
		weights.Content{Name: modelFile, Data: file}); err != nil {
		t.Fatal(err)
	}
	open := func(run string, opened events.RunOpened) *trainer {
		t.Helper()
		opened.Config = servicetest.Config("a")
		if err := log.Streams.EnsureRun(t.Context(), run); err != nil {
			t.Fatal(err)
		}
		servicetest.Append(t, log, servicetest.Event(t, run, events.RunOpenedType, run, "0", opened))
		tr, err := open(Config{Log: log, Run: run, Feed: "main", Policy: "p", Dir: t.TempDir(),
			Options: policy.DefaultOptions(), Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		return tr
	}
	for name, opened := range map[string]events.RunOpened{"later": {PolicyVersion: 7},
		"continued": {Continues: &events.Continued{Run: "later", Until: 1, PolicyVersion: 7}}} {
		tr := open(name, opened)
		if err := tr.begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, err := tr.learner.Weights(); err != nil || !bytes.Equal(got, file) {
			t.Errorf("%s: it begins with other weights (%v)", name, err)
		}
		tr.checkpoint.trained(ready(1, "a"))
		if wish, err := tr.upload(t.Context(), file); err != nil || wish.Version != 8 || wish.ThroughStep != 1 {
			t.Errorf("%s: its first version is %+v, %v", name, wish, err)
		}
	}
	if tr := open("first", events.RunOpened{}); tr.begin(t.Context()) != nil || tr.checkpoint.Version != 0 {
		t.Errorf("a new policy begins at %d", tr.checkpoint.Version)
	}
	kept := open("kept", events.RunOpened{PolicyVersion: 7})
	kept.checkpoint.trained(ready(1, "a"))
	if kept.begin(t.Context()) != nil || kept.checkpoint.Version != 1 {
		t.Errorf("with a checkpoint it begins at %d", kept.checkpoint.Version)
	}
	gone := open("gone", events.RunOpened{PolicyVersion: 9})
	if err := gone.begin(t.Context()); err == nil {
		t.Error("a version that is not there is begun at")
	}
}
