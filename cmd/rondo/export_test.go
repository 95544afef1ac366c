package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/parquet/file"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
)

func rewarded(rollout string, reward float64) trajectoryLine {
	return trajectoryLine{Rollout: rollout, Reward: &reward}
}

func TestExtremes(t *testing.T) {
	got := extremes([]trajectoryLine{
		rewarded("g000001-0", 0.5), rewarded("g000001-1", 1), rewarded("g000001-2", 0), rewarded("g000001-3", 1), rewarded("g000001-4", 0),
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
	got, err := conversation(trajectory)
	want := []chatMessage{
		{Role: "system", Content: "be kind"}, {Role: "user", Content: "mend it"},
		{Role: "assistant", ToolCalls: []chatCall{{ID: "c1", Type: "function", Function: chatFunction{Name: "read_file", Arguments: `{"path":"a"}`}}}},
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
	if _, err := conversation(trajectory); err == nil {
		t.Error("malformed tool calls were taken")
	}
}

func TestBestOfGroups(t *testing.T) {
	got := bestOfGroups([]trajectoryLine{rewarded("g000001-0", 0.5), rewarded("g000001-1", 1), rewarded("g000001-2", 1), rewarded("g000002-0", 0), rewarded("xmine-0", -1), rewarded("xmine-1", -0.5)})
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
	r := newRecorded(t)
	r.whole(1, "fix-a", 0, 0.5, 1, 1)
	r.whole(2, "fix-b", 0, 0, 0.25)
	servicetest.OpenRun(t, r.log, "second", servicetest.Config("fix-a"))
	started := servicetest.StartRollout(t, r.log, "second", "g000001-0", "fix-a")
	finished := servicetest.Finished(t, r.log.Store(), "second", started.Entity, servicetest.Trajectory("second", started.Entity, "fix-a"))
	servicetest.Append(t, r.log, servicetest.Event(t, "second", events.RolloutFinishedType, started.Entity, "0", finished))
	servicetest.Append(t, r.log, servicetest.Event(t, "second", events.RolloutScoredType, started.Entity, "0", events.RolloutScored{Reward: 1, Trajectory: finished.Trajectory}))
	out := t.TempDir()
	export := func(args ...string) string {
		t.Helper()
		output, err := rondo(t, append([]string{"trajectories", "export", "--dir", r.dir, "--quiet"}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		return output
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
	export("first", "--out", filepath.Join(out, "arrow"))
	if got := files("arrow"); len(got) != 5 || got[0] != "g000001-0.arrow" {
		t.Errorf("%v", got)
	}
	export("first", "second", "--format", "atif", "--out", filepath.Join(out, "atif"))
	if got := files("atif"); len(got) != 6 || got[0] != "first/g000001-0.json" || got[5] != "second/g000001-0.json" {
		t.Errorf("%v", got)
	}
	contains(t, export("first", "--format", "chat", "--min-reward", "0.3", "--best", "--out", filepath.Join(out, "sft.jsonl")), "1 written")
	text, err := os.ReadFile(filepath.Join(out, "sft.jsonl"))
	if err != nil || !strings.Contains(string(text), `"rollout":"g000001-1"`) {
		t.Errorf("%v: %s", err, text)
	}
	export("first", "second", "--format", "parquet", "--out", filepath.Join(out, "all.parquet"))
	export("first", "second", "--format", "parquet", "--rows", "samples", "--out", filepath.Join(out, "tables")+"/")
	if got := files("tables"); !reflect.DeepEqual(got, []string{"first.parquet", "second.parquet"}) {
		t.Errorf("%v", got)
	}
	for path, want := range map[string]int64{"all.parquet": 12, "tables/first.parquet": 5, "tables/second.parquet": 1} {
		reader, err := file.OpenParquetFile(filepath.Join(out, path), false)
		if err != nil {
			t.Fatal(err)
		}
		if reader.NumRows() != want {
			t.Errorf("%s: %d rows, want %d", path, reader.NumRows(), want)
		}
		reader.Close()
	}
	for _, c := range []struct{ args, want string }{{"--format xml", `"xml"`}, {"--format parquet --rows turns", `"turns"`}, {"--format pairs --best", "--best"}} {
		if output, err := rondo(t, append([]string{"trajectories", "export", "first", "--dir", r.dir, "--out", out}, strings.Fields(c.args)...)...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v\n%s", c.args, err, output)
		}
	}
}

// A sample of an export has its rollout's reward, and its group's advantage where the model sampled.
func TestRewardedSamples(t *testing.T) {
	reward := 0.5
	samples := rewardedSamples(talkative(), trajectoryLine{run: "first", Rollout: "g000001-0", Reward: &reward, advantage: -1, temperature: 0.7, components: map[string]float64{"tests": 2}})
	if len(samples) != 2 || !reflect.DeepEqual(samples[0].Advantages, []float32{0, 0, 0, -1, -1, 0, -1}) || !reflect.DeepEqual(samples[1].Advantages, []float32{0, 0, -1, -1, -1}) {
		t.Fatalf("%+v", samples)
	}
	if s := samples[1]; s.Reward != 0.5 || s.Temperature != 0.7 || s.Run != "first" || s.Group != "g000001" || s.RewardComponents["tests"] != 2 || s.MicroBatch != -1 || s.RolloutSampled != 6 {
		t.Errorf("%+v", s)
	}
}

// A file of lines is there whole or not at all, and an older one stays.
func TestWriteLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lines.jsonl")
	n, err := writeLines(path, func(write func(any) error) error { return errors.Join(write("a<b"), write(2)) })
	if text, readErr := os.ReadFile(path); err != nil || readErr != nil || n != 2 || string(text) != "\"a<b\"\n2\n" {
		t.Fatalf("%d lines, %v: %q", n, errors.Join(err, readErr), text)
	}
	if _, err := writeLines(path, func(write func(any) error) error { return errors.Join(write("c"), os.ErrClosed) }); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the error was lost: %v", err)
	}
	entries, _ := os.ReadDir(filepath.Dir(path))
	if text, _ := os.ReadFile(path); len(entries) != 1 || string(text) != "\"a<b\"\n2\n" {
		t.Errorf("%d files, %q", len(entries), text)
	}
}
