package index

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/cli/indexing"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/cli/service"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// indexed is a folder with code, and the flags that keep all of its index in a place of its own.
type indexed struct {
	t   *testing.T
	dir string
	// where are the flags that name the plane.
	where []string
}

func newIndexed(t *testing.T) *indexed {
	t.Helper()
	home := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(home, "config"))
	t.Setenv("XDG_CACHE_HOME", filepath.Join(home, "cache"))
	x := &indexed{t: t, dir: filepath.Join(t.TempDir(), "shop"),
		where: []string{"--dir", filepath.Join(t.TempDir(), "plane")}}
	clitest.Write(t, filepath.Join(x.dir, "lib/session.go"),
		"package lib\n\n// removeExpired removes expired sessions.\nfunc removeExpired(sessions map[string]int) {\n\tclear(sessions)\n}\n")
	clitest.Write(t, filepath.Join(x.dir, "price.go"),
		"package shop\n\n// total adds up the prices of a basket.\nfunc total(prices []int) int {\n\treturn len(prices)\n}\n")
	return x
}

func (x *indexed) run(args ...string) (string, error) {
	return clitest.Run(x.t, New, slices.Concat([]string{"index", "--quiet"}, x.where, args)...)
}

// json runs an index command and decodes its answer.
func (x *indexed) json(v any, args ...string) {
	x.t.Helper()
	out, err := x.run(append([]string{"--json"}, args...)...)
	if err != nil {
		x.t.Fatalf("%q: %v", args, err)
	}
	if err := json.Unmarshal([]byte(out), v); err != nil {
		x.t.Fatalf("%q: %v in %q", args, err, out)
	}
}

// fails runs an index command that must say something.
func (x *indexed) fails(words string, args ...string) {
	x.t.Helper()
	if out, err := x.run(args...); err == nil || !strings.Contains(err.Error(), words) {
		x.t.Errorf("%q: %v, want %q; %s", args, err, words, out)
	}
}

func TestIndexCommands(t *testing.T) {
	x := newIndexed(t)
	x.fails("rondo index sync", "search", x.dir, "where?")
	x.fails("no such file", "sync", x.dir+"x")
	x.fails("is no folder", "sync", filepath.Join(x.dir, "price.go"))
	x.fails("--embedder", "sync", x.dir, "--embedder", "crystal ball")
	x.fails("--repo", "sync", x.dir, "--repo", "a/b")
	var synced syncReport
	x.json(&synced, "sync", x.dir)
	if !synced.Changed || synced.Told || synced.Files != 2 || synced.Added != 2 || synced.Repo != "shop" ||
		synced.Generation == 0 {
		t.Errorf("first sync: %+v", synced)
	}
	key, err := os.Stat(filepath.Join(indexing.ConfigFolder(), "shop.key"))
	if err != nil || key.Mode().Perm() != 0o600 {
		t.Errorf("the key: %v, %v", key, err)
	}
	root := synced.Root
	synced = syncReport{}
	if x.json(&synced, "sync", x.dir); synced.Changed || synced.Root != root {
		t.Errorf("second sync: %+v", synced)
	}

	const question = "where are expired sessions removed?"
	var answer searchAnswer
	x.json(&answer, "search", x.dir, question)
	if len(answer.Hits) == 0 || answer.Hits[0].Path != "lib/session.go" || answer.Hits[0].Changed ||
		!strings.Contains(answer.Hits[0].Text, "func removeExpired") || answer.Stale || answer.Root != root {
		t.Errorf("search: %+v", answer)
	}
	if x.json(&answer, "search", x.dir, question, "--in", "lib/", "--limit", "5"); len(answer.Hits) != 1 {
		t.Errorf("search in lib: %+v", answer)
	}
	x.fails("--limit 0", "search", x.dir, question, "--limit", "0")
	x.fails("QUESTION", "search", x.dir, " ")

	clitest.Write(t, filepath.Join(x.dir, "lib/session.go"), "package lib\n")
	var status folderStatus
	if x.json(&status, "status", x.dir); !status.Indexed || !status.Stale ||
		status.Store.Chunks != 2 || status.Root != root {
		t.Errorf("status of a folder that has changed: %+v", status)
	}
	if x.json(&answer, "search", x.dir, question); !answer.Stale || !answer.Hits[0].Changed {
		t.Errorf("search in a folder that has changed: %+v", answer)
	}
	out, err := x.run("search", x.dir, question)
	if err != nil || !strings.Contains(out, "lib/session.go:") ||
		!strings.Contains(out, "has changed since it was indexed: rondo index sync "+x.dir) {
		t.Errorf("in words: %v, %s", err, out)
	}
	if x.json(&synced, "sync", x.dir); !synced.Changed || synced.Base != root {
		t.Errorf("third sync: %+v", synced)
	}
	// Under another key there is nothing.
	other := clitest.Write(t, filepath.Join(t.TempDir(), "other.key"), strings.Repeat("0a", 32))
	x.fails("no index of shop under this key", "search", x.dir, question, "--key", other)
	if x.json(&status, "status", x.dir, "--key", other); status.Indexed {
		t.Errorf("status under another key: %+v", status)
	}
}

// TestIndexAnewAndForgotten: a damaged index is made anew, and one that nobody
// needs any more is taken away.
func TestIndexAnewAndForgotten(t *testing.T) {
	x := newIndexed(t)
	store := filepath.Join(t.TempDir(), "objects")
	x.where = []string{"--store", store}
	x.fails("rondo index sync", "forget", x.dir)
	var synced syncReport
	x.json(&synced, "sync", x.dir)
	pointers, err := filepath.Glob(filepath.Join(store, "index/*/repos/*"))
	if err != nil || len(pointers) != 1 {
		t.Fatalf("pointers %q, %v", pointers, err)
	}
	clitest.Write(t, pointers[0], "damaged")
	x.fails("rondo index sync --anew", "sync", x.dir)
	if x.json(&synced, "sync", x.dir, "--anew"); !synced.Changed || synced.Added != 2 {
		t.Errorf("anew: %+v", synced)
	}
	out, err := x.run("forget", "shop")
	if key := filepath.Join(indexing.ConfigFolder(), "shop.key"); err != nil || !strings.Contains(out, key) {
		t.Errorf("forget: %s, %v", out, err)
	}
	x.fails("no index of shop", "forget", x.dir)
	clitest.Write(t, filepath.Join(x.dir, "price.go"), "package shop\n") // a tree that was never indexed
	x.fails("no index of shop", "search", x.dir, "where?")
}

// TestIndexWatch: what changes while sync watches is indexed.
func TestIndexWatch(t *testing.T) {
	x := newIndexed(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	reader, writer := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		root := app.New(New)
		root.SetArgs(slices.Concat([]string{"index", "--quiet", "--json"}, x.where,
			[]string{"sync", x.dir, "--watch", "--every", "10ms"}))
		root.SetOut(writer)
		ended <- errors.Join(root.ExecuteContext(ctx), writer.Close())
	}()
	reports := json.NewDecoder(reader)
	next := func() (r syncReport) {
		t.Helper()
		if err := reports.Decode(&r); err != nil {
			t.Fatalf("no report: %v", err)
		}
		return r
	}
	first := next()
	clitest.Write(t, filepath.Join(x.dir, "stock.go"),
		"package shop\n\n// stock counts what is left.\nfunc stock() int { return 3 }\n")
	if second := next(); !second.Changed || second.Files != 3 || second.Base != first.Root {
		t.Errorf("after a file more: %+v", second)
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("stopped: %v", err)
	}
}

// TestIndexIsTold: a plane that runs hears of what a client has brought to its store, and lists it.
func TestIndexIsTold(t *testing.T) {
	x := newIndexed(t)
	dir := t.TempDir()
	p, err := plane.Hold(t.Context(), dir, plane.HoldOptions{Listen: true})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	x.where = []string{"--nats", p.URL, "--store", filepath.Join(dir, "objects")}
	servicetest.Start(t, func(ctx context.Context) error {
		return service.RunParts(ctx, []string{topology.Intake, topology.IndexUpdater}, p.Log, p.Dir,
			servicetest.Env(t, p.Log).Logger, prometheus.NewRegistry(), service.DefaultSettings())
	})
	var synced syncReport
	if x.json(&synced, "sync", x.dir); !synced.Told || !synced.Changed {
		t.Errorf("sync: %+v", synced)
	}
	updated := servicetest.WaitData[events.IndexUpdated](t, p.Log, events.Catalogue, events.IndexUpdatedType, "shop")
	if updated.Root != synced.Root || updated.Repo != "shop" {
		t.Errorf("the catalogue says %+v", updated)
	}
	if x.json(&synced, "sync", x.dir); !synced.Told || synced.Changed {
		t.Errorf("sync again: %+v", synced)
	}
	var listed []repoStatus
	if x.json(&listed, "status"); len(listed) != 1 || listed[0].Root != synced.Root {
		t.Errorf("listed: %+v", listed)
	}
}
