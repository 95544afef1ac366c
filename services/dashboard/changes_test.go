package dashboard

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
)

// tree stores files as a snapshot, or as a change that brings them.
func (d *desk) tree(files map[string]string) *storage.Ref {
	d.Helper()
	fsys := fstest.MapFS{}
	for name, text := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(text), Mode: 0o644}
	}
	var b bytes.Buffer
	if err := sandbox.PackTo(&b, fsys); err != nil {
		d.Fatal(err)
	}
	ref := servicetest.Blob(d, d.log.Store(), b.Bytes())
	return &ref
}

// turns opens a run with a snapshot, and lets a rollout's turns leave workspaces.
func (d *desk) turns(snapshot *storage.Ref, workspaces ...*storage.Ref) {
	d.Helper()
	cfg := servicetest.Config("fix")
	cfg.Tasks[0].Snapshot = *snapshot
	servicetest.OpenRun(d, d.log, "live", cfg)
	d.state(events.GroupOpenedType, "g000001", "0", events.GroupOpened{Task: "fix", Size: 1})
	servicetest.StartRollout(d, d.log, "live", "g000001-0", "fix")
	for i, workspace := range workspaces {
		call := []events.ToolCall{{ID: "a", Name: "edit", Arguments: "{}"}}
		d.state(events.TurnSampledType, "g000001-0", events.Ordinal(i),
			events.TurnSampled{Turn: i, ToolCalls: call, TokenIDs: []int32{1},
				Logprobs: []float32{-1}, NewSegment: i == 0})
		d.state(events.ToolsCompletedType, "g000001-0", events.Ordinal(i),
			events.ToolsCompleted{Turn: i, Workspace: workspace, Runner: "r",
				Isolation: "namespaces", Filesystem: "overlay",
				Results: []events.ToolResult{{CallID: "a", Name: "edit", Content: "ok"}}})
	}
}

// TestChangesOfTurns: each turn shows what it changed itself, and the rollout what all of them did.
// A turn that changed nothing leads nowhere.
func TestChangesOfTurns(t *testing.T) {
	d := newDesk(t)
	first := d.tree(map[string]string{"main.go": "one\n2\n"})
	d.turns(d.tree(map[string]string{"main.go": "one\ntwo\n"}), first, first,
		d.tree(map[string]string{"main.go": "one\n2\n3\n", "new.txt": "x\n"}))
	here := "/runs/live/rollouts/g000001-0"
	if page := d.show(here); strings.Count(page, "/changes") != 3 || !strings.Contains(page, here+"/turns/2/changes") ||
		strings.Contains(page, here+"/turns/1/changes") {
		t.Errorf("the rollout leads elsewhere:\n%s", page)
	}
	d.has(here+"/turns/0/changes", `class="gone">-two`, `class="came">&#43;2`, "main.go")
	if page := d.show(here + "/turns/2/changes"); strings.Contains(page, "-two") || !strings.Contains(page, "3\n") ||
		!strings.Contains(page, "new.txt") {
		t.Errorf("turn 2:\n%s", page)
	}
	d.has(here+"/turns/1/changes", "Nothing differs")
	d.has(here+"/changes", `class="gone">-two`, "new.txt")
	last := d.count()
	if page := d.show(here + "/changes?at=5"); strings.Contains(page, "new.txt") || last < 8 {
		t.Errorf("the past has what came later:\n%s", page)
	}
	for _, path := range []string{"/turns/3/changes", "/turns/x/changes", "/turns/-1/changes"} {
		if w := d.ask(here + path); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
}

// TestHostileChanges: whatever files an agent leaves, and whatever their names, the page has the
// elements and links of a harmless one.
func TestHostileChanges(t *testing.T) {
	shape := func(says string) (string, string) {
		d := newDesk(t)
		name := strings.Map(func(r rune) rune {
			if r == '/' || r == 0 {
				return '_'
			}
			return r
		}, "n"+says)
		d.turns(d.tree(map[string]string{"a": "a\n"}),
			d.tree(map[string]string{name: strings.ReplaceAll(says, "\x00", "") + "\n"}))
		page := d.show("/runs/live/rollouts/g000001-0/turns/0/changes")
		return shapeOf(t, page), page
	}
	want, _ := shape("harmless")
	for _, evil := range evils {
		t.Run(evil, func(t *testing.T) {
			got, page := shape(evil)
			if got != want {
				t.Errorf("the page is another one:\n%s\nthan:\n%s", got, want)
			}
			if strings.ContainsAny(page, "\x1b\x07\u202e\u009b") {
				t.Error("the page has control characters")
			}
		})
	}
}

// TestChangesAreBounded: a page of a large change is a bounded one, and
// says how much it leaves out.
func TestChangesAreBounded(t *testing.T) {
	d := newDesk(t)
	files := map[string]string{"huge": strings.Repeat("x", 1<<20)}
	for i := range 100 {
		files[events.GroupID(int64(i))] = strings.Repeat(strings.Repeat("<", 100)+"\n", 1000)
	}
	d.turns(d.tree(map[string]string{"a": "a\n"}), d.tree(files))
	page := d.show("/runs/live/rollouts/g000001-0/turns/0/changes")
	if len(page) > 8*maxChanged {
		t.Errorf("the page has %d bytes", len(page))
	}
	if !strings.Contains(page, "lines more") || !strings.Contains(page, "files more differ") {
		t.Error("the page does not say that it leaves something out")
	}
}
