package toolrunner

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/demo/packs"
	"github.com/rondo-rl/rondo/demo/policy"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
	"github.com/rondo-rl/rondo/sandbox/tools"
	"github.com/rondo-rl/rondo/sandbox/toolset"
	"github.com/rondo-rl/rondo/sandbox/verifier"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/dir"
	"github.com/rondo-rl/rondo/tasks"
	"github.com/rondo-rl/rondo/tests/nightly"
)

const (
	turnsOfTheDemo = 8 // of a rollout of `rondo demo`
	trials         = 5 // rollouts of each task
)

// TestLargeTasksNeedSearch: the built-in policy, with nothing learnt, reads the faulty file
// of each task of the large pack when it may search; when it may not, it never comes to
// these files, and solves none.
func TestLargeTasksNeedSearch(t *testing.T) {
	sandboxtest.Require(t)
	store, err := dir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s, err := newSearcher(store)
	if err != nil {
		t.Fatal(err)
	}
	large, err := tasks.LoadPack(packs.Large())
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range large[:nightly.Count(1, len(large))] {
		t.Run(task.Name, func(t *testing.T) {
			y := newTrial(t, task, s, store)
			solved, saw := y.rollouts(t, true, trials)
			t.Logf("of %d rollouts with search %d read the faulty file, %d solved the task", trials, saw, solved)
			if saw == 0 {
				t.Error("the faulty file was not read with search")
			}
			if solved, saw := y.rollouts(t, false, trials); solved > 0 || saw > 0 {
				t.Errorf("without search %d rollouts read the faulty file, %d solved the task", saw, solved)
			}
		})
	}
}

// trial plays rollouts of a task in one sandbox. A rollout's edits are kept in memory and
// stand in the sandbox only while a call that they matter to is made; what a call was answered
// once, it is answered again.
type trial struct {
	task            *tasks.Task
	snapshot, tests []byte
	search          tools.Search
	sb              *sandbox.Sandbox
	edited          map[string]string // path -> text that is not the snapshot's
	idle            map[string]bool   // files that test.sh does not come to
	answers         map[string]string
	faulty          string // the file that the solution changes
	saw             bool   // the rollout asked to read it
}

func newTrial(t *testing.T, task *tasks.Task, s *searcher, store storage.Store) *trial {
	t.Helper()
	y := &trial{task: task, answers: map[string]string{}}
	var err error
	if y.snapshot, err = sandbox.Pack(task.Snapshot); err != nil {
		t.Fatal(err)
	}
	if y.tests, err = sandbox.Pack(task.Tests); err != nil {
		t.Fatal(err)
	}
	y.search = s.search(runfile.TaskSpec{Name: task.Name, Snapshot: servicetest.Blob(t, store, y.snapshot)})
	y.sb = sandboxtest.New(t, sandbox.Spec{Name: "trial", Workdir: task.Workdir})
	if err := y.sb.Unpack(t.Context(), y.sb.Workdir(), y.snapshot); err != nil {
		t.Fatal(err)
	}
	if err := y.sb.SetBase(t.Context()); err != nil {
		t.Fatal(err)
	}
	y.idle = y.unused(t)
	solution, err := fs.ReadFile(task.Solution, "solve.sh")
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Fields(string(solution))
	y.faulty = words[len(words)-1]
	y.original(t, y.faulty)
	return y
}

func (y *trial) original(t *testing.T, name string) string {
	t.Helper()
	data, err := fs.ReadFile(y.task.Snapshot, name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

var number = regexp.MustCompile(`\d{4}`)

// unused are the numbered files that no list holds which test.sh names: it comes to
// files through lists alone.
func (y *trial) unused(t *testing.T) map[string]bool {
	t.Helper()
	test, listed, files := y.original(t, "test.sh"), map[string]bool{}, map[string]bool{}
	err := fs.WalkDir(y.task.Snapshot, ".", func(name string, d fs.DirEntry, err error) error {
		switch base := path.Base(name); {
		case err != nil || d.IsDir():
		case path.Ext(base) == ".txt" && strings.Contains(test, strings.TrimSuffix(base, ".txt")):
			for _, n := range number.FindAllString(y.original(t, name), -1) {
				listed[n] = true
			}
		case number.MatchString(base):
			files[name] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(files, func(name string, _ bool) bool { return listed[number.FindString(path.Base(name))] })
	return files
}

// rollouts plays some, and counts those that have a reward and those that read the faulty file.
func (y *trial) rollouts(t *testing.T, search bool, n int) (solved, saw int) {
	t.Helper()
	for seed := range n {
		y.saw = false
		if y.play(t, uint64(seed), search) == 1 {
			solved++
		}
		if y.saw {
			saw++
		}
	}
	return solved, saw
}

func (y *trial) play(t *testing.T, seed uint64, search bool) float64 {
	t.Helper()
	y.edited = map[string]string{}
	p := policy.Prompt{Messages: []policy.Message{{Role: "user", Content: y.task.Instruction}},
		Temperature: 1, Seed: seed}
	for _, d := range toolsOf(t, search).Definitions() {
		p.Tools = append(p.Tools, d.Name)
	}
	for range turnsOfTheDemo {
		a, err := policy.NewModel().Generate(p)
		if err != nil {
			t.Fatal(err)
		}
		if len(a.ToolCalls) == 0 {
			break
		}
		p.Messages = append(p.Messages, policy.Message{Role: "assistant", Content: a.Content, ToolCalls: a.ToolCalls})
		for _, call := range a.ToolCalls {
			p.Messages = append(p.Messages, policy.Message{Role: "tool", ToolCallID: call.ID,
				Content: y.answer(t, call.Function, search)})
		}
	}
	return y.score(t)
}

func toolsOf(t *testing.T, search bool) *tools.Set {
	t.Helper()
	cfg := runfile.DefaultRunConfig()
	if search {
		cfg.Features = []string{runfile.FeatureCodebaseSearch}
	}
	set, err := tools.NewSet(cfg.ToolSettings())
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func (y *trial) answer(t *testing.T, call policy.Function, search bool) string {
	t.Helper()
	var a struct {
		TargetFile string `json:"target_file"`
		FilePath   string `json:"file_path"`
		OldString  string `json:"old_string"`
		NewString  string `json:"new_string"`
		Command    string `json:"command"`
	}
	if err := json.Unmarshal([]byte(call.Arguments), &a); err != nil {
		t.Fatal(err)
	}
	if call.Name == "search_replace" {
		return y.edit(t, a.FilePath, a.OldString, a.NewString)
	}
	y.saw = y.saw || call.Name == "read_file" && a.TargetFile == y.faulty
	key := call.Name + call.Arguments
	for _, name := range slices.Sorted(maps.Keys(y.edited)) {
		other := call.Name == "read_file" && name != a.TargetFile
		if !other && (a.Command != "timeout 2 sh test.sh" || !y.idle[name] || y.programEdited()) {
			key += "\x00" + name + "\x00" + y.edited[name]
		}
	}
	if known, ok := y.answers[key]; ok {
		return known
	}
	var finder tools.Search
	if search {
		finder = y.search
	}
	y.materialise(t, func(name string) string { return y.edited[name] })
	results, err := toolsOf(t, search).Run(t.Context(),
		tools.Work{Sandbox: y.sb, Search: finder, State: &toolset.State{}},
		[]tools.Call{{ID: "c", Name: call.Name, Arguments: call.Arguments}})
	if err != nil {
		t.Fatal(err)
	}
	y.materialise(t, func(name string) string { return y.original(t, name) })
	y.answers[key] = results[0].Content
	return results[0].Content
}

// programEdited: what comes to the numbered files is not the snapshot's any more.
func (y *trial) programEdited() bool {
	for name := range y.edited {
		if !number.MatchString(path.Base(name)) {
			return true
		}
	}
	return false
}

func (y *trial) edit(t *testing.T, name, old, replacement string) string {
	t.Helper()
	text, ok := y.edited[name]
	if !ok {
		text = y.original(t, name)
	}
	if n := strings.Count(text, old); n != 1 {
		return fmt.Sprintf("error: old_string occurs %d times", n)
	}
	text = strings.Replace(text, old, replacement, 1)
	if y.edited[name] = text; text == y.original(t, name) {
		delete(y.edited, name)
	}
	return "Replaced."
}

// materialise writes the edited files into the sandbox.
func (y *trial) materialise(t *testing.T, text func(name string) string) {
	t.Helper()
	for name := range y.edited {
		if err := y.sb.WriteFile(t.Context(), path.Join(y.sb.Workdir(), name), []byte(text(name)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// score is what the task's verifier says in a fresh sandbox. It does not run where nothing is
// changed: TestOurTasksAreSound shows that this scores 0.
func (y *trial) score(t *testing.T) float64 {
	t.Helper()
	if len(y.edited) == 0 {
		return 0
	}
	y.materialise(t, func(name string) string { return y.edited[name] })
	changes, err := y.sb.Changes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	y.materialise(t, func(name string) string { return y.original(t, name) })
	outcome, err := verifier.Run(t.Context(), verifier.Spec{
		Name: "trial", Workdir: y.task.Workdir, Snapshot: sandbox.Bytes(y.snapshot), Changes: sandbox.Bytes(changes),
		Tests: y.tests, Timeout: y.task.VerifierTimeout,
	})
	if err != nil {
		t.Fatal(err)
	}
	return outcome.Reward
}
