package export

import (
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/dir"
)

func rewarded(rollout string, reward float64) Rollout {
	return Rollout{Rollout: rollout, Reward: &reward}
}

func TestExtremes(t *testing.T) {
	got := extremes([]Rollout{
		rewarded("g000001-0", 0.5), rewarded("g000001-1", 1), rewarded("g000001-2", 0), rewarded("g000001-3", 1),
		rewarded("g000001-4", 0),
		rewarded("g000002-0", 0.3), rewarded("g000002-1", 0.3), // all equal: nothing is better
		rewarded("g000003-0", 1), // alone
		rewarded("xmine-0", -1), rewarded("xmine-1", -0.5),
	})
	var names [][2]string
	for _, pair := range got {
		names = append(names, [2]string{pair[0].Rollout, pair[1].Rollout})
	}
	if want := [][2]string{{"g000001-1", "g000001-2"}, {"xmine-1", "xmine-0"}}; !reflect.DeepEqual(names, want) {
		t.Errorf("got %v, want %v", names, want)
	}
}

func TestConversation(t *testing.T) {
	trajectory := &storage.Trajectory{Rollout: "g000001-0", Messages: []storage.Message{
		{Role: "system", Content: "be kind"}, {Role: "user", Content: "mend it"},
		{Role: "assistant", ToolCalls: `[{"id":"c1","name":"read_file","arguments":"{\"path\":\"a\"}"}]`},
		{Role: "tool", Content: "text", Name: "read_file", ToolCallID: "c1"},
		{Role: "prompt"}, // tokens alone
		{Role: "assistant", Content: "done"},
	}}
	got, err := conversation(trajectory.Rollout, trajectory.Messages)
	want := []chatMessage{
		{Role: "system", Content: "be kind"}, {Role: "user", Content: "mend it"},
		{Role: "assistant", Content: "", ToolCalls: []chatCall{{ID: "c1", Type: "function",
			Function: chatFunction{Name: "read_file", Arguments: `{"path":"a"}`}}}},
		{Role: "tool", Content: "text", Name: "read_file", ToolCallID: "c1"}, {Role: "assistant", Content: "done"},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v: got %+v", err, got)
	}
	other := append([]chatMessage{}, want[:2]...)
	if n := commonPrompt(want, append(other, chatMessage{Role: "assistant", Content: "no"})); n != 2 {
		t.Errorf("the prompt has %d messages", n)
	}
	if n := commonPrompt(want, want); n != 2 {
		t.Errorf("what the model said counts as prompt: %d messages", n)
	}
	trajectory.Messages[2].ToolCalls = "[1]"
	if _, err := conversation(trajectory.Rollout, trajectory.Messages); err == nil {
		t.Error("malformed tool calls were taken")
	}
}

// TestExportedImages: an exported message has its images in their places,
// and its texts between them.
func TestExportedImages(t *testing.T) {
	store, err := dir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	ref, err := storage.PutBlob(t.Context(), store, []byte("pixels"))
	if err != nil {
		t.Fatal(err)
	}
	image := storage.Image{Ref: ref, MediaType: "image/png", Width: 3, Height: 2}
	m := storage.Message{Role: "user", Content: image.Name() + " and " + image.Name() + "?",
		Images: []storage.Image{image, image}}
	m.Images[1].At = len(image.Name() + " and ")
	x := &Exporter{Store: store}
	got, err := x.conversation(t.Context(), "g000001-0",
		[]storage.Message{{Role: "prompt"}, m, {Role: "assistant", Content: "ok"}})
	text, _ := json.Marshal(got)
	url := `{"image_url":{"url":"data:image/png;base64,cGl4ZWxz"},"type":"image_url"}`
	want := `[{"role":"user","content":[` + url + `,{"text":" and ","type":"text"},` + url +
		`,{"text":"?","type":"text"}]},{"role":"assistant","content":"ok"}]`
	if err != nil || string(text) != want {
		t.Errorf("%v: got %s, want %s", err, text, want)
	}
	m.Images[0].Key = storage.BlobKey(storage.Digest(nil))
	if _, err := x.conversation(t.Context(), "g000001-0", []storage.Message{m}); err == nil {
		t.Error("an image that is not there is left out in silence")
	}
}

func TestBestOfGroups(t *testing.T) {
	got := bestOfGroups([]Rollout{rewarded("g000001-0", 0.5), rewarded("g000001-1", 1), rewarded("g000001-2", 1),
		rewarded("g000002-0", 0), rewarded("xmine-0", -1), rewarded("xmine-1", -0.5)})
	var names []string
	for _, t := range got {
		names = append(names, t.Rollout)
	}
	if want := []string{"g000001-1", "g000002-0", "xmine-1"}; !reflect.DeepEqual(names, want) {
		t.Errorf("%v, want %v", names, want)
	}
}

// TestExports writes each form of a run's rollouts, and of two runs'.
func TestExports(t *testing.T) {
	r := clitest.NewRecorded(t)
	r.Whole(1, "fix-a", 0, 0.5, 1, 1)
	r.Whole(2, "fix-b", 0, 0, 0.25)
	servicetest.OpenRun(t, r.Log, "second", servicetest.Config("fix-a"))
	started := servicetest.StartRollout(t, r.Log, "second", "g000001-0", "fix-a")
	finished := servicetest.Finished(t, r.Log.Store(), "second", started.Entity,
		servicetest.Trajectory("second", started.Entity, "fix-a"))
	servicetest.Append(t, r.Log, servicetest.Event(t, "second", events.RolloutFinishedType,
		started.Entity, "0", finished))
	servicetest.Append(t, r.Log, servicetest.Event(t, "second", events.RolloutScoredType, started.Entity,
		"0", events.RolloutScored{Reward: 1, Trajectory: finished.Trajectory}))
	out := t.TempDir()
	export := func(form, to string, s Selection, runs ...string) int {
		t.Helper()
		list, err := Select(t.Context(), r.Log.Reader, runs, s)
		if err != nil {
			t.Fatal(err)
		}
		read := 0
		x := &Exporter{Store: r.Log.Store(), Out: filepath.Join(out, to), ByRun: len(runs) > 1,
			Progress: func(n int) { read = n }}
		n, err := x.Write(t.Context(), form, list)
		if err != nil || read == 0 {
			t.Fatalf("%d read: %v", read, err)
		}
		return n
	}
	files := func(dir string) (names []string) {
		filepath.WalkDir(filepath.Join(out, dir), func(path string, entry fs.DirEntry, err error) error {
			if err == nil && !entry.IsDir() {
				name, _ := filepath.Rel(filepath.Join(out, dir), path)
				names = append(names, name)
			}
			return err
		})
		return names
	}
	all := Selection{MinReward: math.Inf(-1)}
	export(Arrow, "arrow", all, "first")
	if got := files("arrow"); len(got) != 5 || got[0] != "g000001-0.arrow" {
		t.Errorf("%v", got)
	}
	export(ATIF, "atif", all, "first", "second")
	if got := files("atif"); len(got) != 6 || got[0] != "first/g000001-0.json" || got[5] != "second/g000001-0.json" {
		t.Errorf("%v", got)
	}
	for _, name := range files("atif") {
		document, err := os.ReadFile(filepath.Join(out, "atif", name))
		if err != nil {
			t.Fatal(err)
		}
		validATIF(t, document)
	}
	if n := export(Chat, "sft.jsonl", Selection{MinReward: 0.3, Best: true}, "first"); n != 1 {
		t.Errorf("%d conversations written", n)
	}
	if n := export(Pairs, "pairs.jsonl", all, "first"); n != 2 {
		t.Errorf("%d pairs written", n)
	}
	if _, err := (&Exporter{}).Write(t.Context(), "xml", nil); err == nil || IsForm("xml") || !IsForm(Chat) {
		t.Errorf("an unknown form: %v", err)
	}
}

// A file of lines is there whole or not at all, and an older one stays.
func TestWriteLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lines.jsonl")
	n, err := writeLines(path, func(write func(any) error) error { return errors.Join(write("a<b"), write(2)) })
	if text, readErr := os.ReadFile(path); err != nil || readErr != nil || n != 2 || string(text) != "\"a<b\"\n2\n" {
		t.Fatalf("%d lines, %v: %q", n, errors.Join(err, readErr), text)
	}
	if _, err := writeLines(path, func(write func(any) error) error {
		return errors.Join(write("c"),
			os.ErrClosed)
	}); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the error was lost: %v", err)
	}
	entries, _ := os.ReadDir(filepath.Dir(path))
	if text, _ := os.ReadFile(path); len(entries) != 1 || string(text) != "\"a<b\"\n2\n" {
		t.Errorf("%d files, %q", len(entries), text)
	}
}
