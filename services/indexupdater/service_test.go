package indexupdater

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/index"
	"github.com/rondo-rl/rondo/index/embed"
	"github.com/rondo-rl/rondo/index/seal"
	"github.com/rondo-rl/rondo/index/update"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
)

// folder is a new working tree with one file, and its index in the log's store.
func folder(t *testing.T, log *eventlog.Log, repo string) *update.Folder {
	t.Helper()
	f := &update.Folder{
		Index: update.Index{Store: log.Store(), Keys: seal.New(seal.Key{1}), Repo: repo, Embedder: embed.Static()},
		Dir:   t.TempDir(), StateFile: filepath.Join(t.TempDir(), "state"),
	}
	write(t, f, "a.go", "package a\n\nfunc First() {}\n")
	return f
}

func write(t *testing.T, f *update.Folder, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(f.Dir, name), []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// start runs a service that keeps folders.
func start(t *testing.T, log *eventlog.Log, every time.Duration, folders ...*update.Folder) {
	t.Helper()
	opts := Options{Folders: map[string]*update.Folder{}, Every: every}
	for _, f := range folders {
		opts.Folders[f.Repo] = f
	}
	env := servicetest.Env(t, log)
	servicetest.Start(t, func(ctx context.Context) error { return Run(ctx, env, opts) })
}

// openRun opens a run that uses repositories.
func openRun(t *testing.T, log *eventlog.Log, run string, repos ...string) {
	t.Helper()
	cfg := servicetest.Config("a")
	cfg.Repositories = repos
	servicetest.OpenRun(t, log, run, cfg)
}

// told waits for the n-th update of a repository in a run or the catalogue.
func told(t *testing.T, log *eventlog.Log, run, repo string, n int) events.IndexUpdated {
	t.Helper()
	all := servicetest.Wait(t, log, run, events.IndexUpdatedType, repo, n)
	return servicetest.Data[events.IndexUpdated](t, all[n-1])
}

// changed states at the catalogue, as the intake does, that a repository changed.
func changed(t *testing.T, log *eventlog.Log, repo, id string, index *index.State) {
	t.Helper()
	servicetest.Append(t, log, servicetest.Event(t, events.Catalogue, events.RepoChangedType, repo, id,
		events.RepoChanged{Index: index}))
}

func TestRunsAreTold(t *testing.T) {
	log := natstest.Log(t)
	f := folder(t, log, "code")
	openRun(t, log, "uses", "code")
	openRun(t, log, "other", "else")
	start(t, log, time.Hour, f)
	first := told(t, log, events.Catalogue, "code", 1)
	if first.Files != 1 || first.Added != 1 || first.Repo != "code" {
		t.Errorf("first: %+v", first)
	}
	if got := told(t, log, "uses", "code", 1); got.Root != first.Root {
		t.Errorf("the run was told of %+v", got)
	}
	write(t, f, "b.go", "package a\n\nfunc Second() {}\n")
	changed(t, log, "code", "x", nil)
	second := told(t, log, "uses", "code", 2)
	if second.Generation != first.Generation+1 || second.Base != first.Root || second.Added != 1 {
		t.Errorf("second: %+v", second)
	}
	openRun(t, log, "late", "else", "code")
	if got := told(t, log, "late", "code", 1); got.Root != second.Root {
		t.Errorf("a run that was opened later was told of %+v", got)
	}
	changed(t, log, "code", "y", nil) // nothing changed
	changed(t, log, "unknown", "z", nil)
	write(t, f, "c.go", "package a\n\nfunc Third() {}\n")
	changed(t, log, "code", "w", nil)
	told(t, log, "uses", "code", 3)
	for run, n := range map[string]int{events.Catalogue: 3, "uses": 3, "late": 2, "other": 0} {
		if got := servicetest.All(t, log, run, events.IndexUpdatedType); len(got) != n {
			t.Errorf("%s was told %q, want %d", run, servicetest.IDs(got), n)
		}
	}
}

// TestTimer: a change of which nobody speaks is found, too.
func TestTimer(t *testing.T) {
	log := natstest.Log(t)
	f := folder(t, log, "code")
	start(t, log, 10*time.Millisecond, f)
	told(t, log, events.Catalogue, "code", 1)
	write(t, f, "b.go", "package a\n\nfunc Second() {}\n")
	told(t, log, events.Catalogue, "code", 2)
}

// TestWhatACrashKeptFromBeingStated is stated when the service is there again, though
// nothing has changed since.
func TestWhatACrashKeptFromBeingStated(t *testing.T) {
	log := natstest.Log(t)
	f := folder(t, log, "code")
	state, err := f.Sync(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	start(t, log, time.Hour, f)
	if got := told(t, log, events.Catalogue, "code", 1); got.Root != state.Root || got.Generation != state.Generation {
		t.Errorf("told of %+v, want %+v", got, state)
	}
}

// TestClientsIndex: what a client has brought to the store is stated, if all of it is there.
func TestClientsIndex(t *testing.T) {
	log := natstest.Log(t)
	openRun(t, log, "uses", "code")
	start(t, log, time.Hour)
	f := folder(t, log, "code")
	state, err := f.Sync(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	refused := func(what string, index index.State) {
		t.Helper()
		e := servicetest.Event(t, events.Catalogue, events.RepoChangedType, "code", what,
			events.RepoChanged{Index: &index})
		facts, err := newService(servicetest.Env(t, log),
			Options{}).Handle(t.Context(), pipeline.Message{Log: log.Reader, Event: e})
		if !errors.Is(err, storage.ErrNotFound) || len(facts) > 0 {
			t.Errorf("%s: %v, %v", what, facts, err)
		}
	}
	absent := state
	absent.Root = strings.Repeat("0", 32)
	refused("absent", absent)
	changed(t, log, "code", "good", &state)
	changed(t, log, "code", "again", &state)
	if got := told(t, log, "uses", "code", 1); got.Root != state.Root {
		t.Errorf("told of %+v", got)
	}
	for o, err := range log.Store().List(t.Context(), "index/"+state.Space+"/segments/") {
		if err == nil {
			err = log.Store().Delete(t.Context(), o.Key)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	state.Generation++
	refused("torn", state)
	if all := servicetest.All(t, log, events.Catalogue, events.IndexUpdatedType); len(all) != 1 {
		t.Errorf("stated %q", servicetest.IDs(all))
	}
}
