package gc

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
)

// before is a time at which objects are old enough to be collected.
var before = time.Now().Add(-48 * time.Hour)

// collect makes all objects old, and collects what nothing needs of them. Then
// it looks which are there.
func collect(t *testing.T, r *clitest.Recorded, c *Collector, there map[string]bool) {
	t.Helper()
	store := r.Log.Store()
	for info, err := range store.List(t.Context(), "") {
		if err == nil {
			err = os.Chtimes(filepath.Join(r.Dir, "objects", info.Key), before, before)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	c.Log, c.Store, c.Cutoff = r.Log.Archive, store, time.Now().Add(-time.Hour)
	if _, err := c.Run(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	for key, want := range there {
		_, err := store.Stat(t.Context(), key)
		if found := !errors.Is(err, storage.ErrNotFound); found != want || found && err != nil {
			t.Errorf("%s: there %t, want %t; %v", key, found, want, err)
		}
	}
}

// TestGCWhileThingsHappen: what becomes reachable, or is put again, between its
// discovery and its deletion stays.
func TestGCWhileThingsHappen(t *testing.T) {
	r := clitest.NewRecorded(t)
	store := r.Log.Store()
	named, again := servicetest.Blob(t, store, []byte("named")), servicetest.Blob(t, store, []byte("again"))
	opened, gone := servicetest.Blob(t, store, []byte("opened")), servicetest.Blob(t, store, []byte("gone"))
	c := &Collector{Found: func(s Candidate) {
		switch s.Key {
		case named.Key:
			r.State(events.RolloutFinishedType, "g000001-0", "0", events.RolloutFinished{Trajectory: named})
		case again.Key: // by a writer that finds it there
			servicetest.Blob(t, store, []byte("again"))
		case opened.Key:
			cfg := servicetest.Config("fix-a")
			cfg.Tasks[0].Snapshot = opened
			servicetest.OpenRun(t, r.Log, "second", cfg)
		}
	}}
	temps := filepath.Join(r.Dir, "objects", ".rondo", "tmp")
	for _, name := range []string{"killed", "at-it"} {
		if err := os.WriteFile(filepath.Join(temps, name), []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chtimes(filepath.Join(temps, "killed"), before, before); err != nil {
		t.Fatal(err)
	}
	collect(t, r, c, map[string]bool{named.Key: true, again.Key: true, opened.Key: true, gone.Key: false})
	if c.Unfinished != 1 {
		t.Errorf("%d unfinished uploads removed, want the old one", c.Unfinished)
	}
}
