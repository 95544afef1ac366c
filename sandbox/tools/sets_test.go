package tools

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/rondo-rl/rondo/events/runfile"
)

// counting is Sets that counts what it compiles.
func counting() (sets *Sets, compiled *int) {
	sets, compiled = NewSets(), new(int)
	sets.compile = func(cfg runfile.RunConfig) (*Set, error) {
		*compiled++
		return NewSet(cfg)
	}
	return sets, compiled
}

// withTool is the configuration of a run with a tool of its own.
func withTool(name string) runfile.RunConfig {
	cfg := runfile.DefaultRunConfig()
	cfg.Tools.Add = []runfile.AddedTool{{
		Name: name, Description: "Says hello.", Command: []string{"/bin/hello"},
		Parameters: map[string]any{"type": "object", "properties": map[string]any{"to": map[string]any{"type": "string"}}},
	}}
	return cfg
}

func TestSetsAreCompiledOnce(t *testing.T) {
	sets, compiled := counting()
	var turns sync.WaitGroup
	for range 100 {
		turns.Go(func() {
			for _, name := range []string{"greet", "wave"} {
				set, err := sets.Set(withTool(name))
				if err != nil {
					t.Error(err)
					return
				}
				if list := set.Definitions(); list[len(list)-1].Name != name {
					t.Errorf("the run with %s has %s", name, list[len(list)-1].Name)
				}
				if !refused(t, set, name) {
					t.Error("a number was taken for a text")
				}
			}
		})
	}
	turns.Wait()
	if *compiled != 2 {
		t.Errorf("the tools of 2 runs were compiled %d times", *compiled)
	}
}

// refused calls an added tool with arguments that its schema refuses, so that the schema is compiled and nothing is run.
func refused(t *testing.T, set *Set, name string) bool {
	o, err := set.lookup(name).run(t.Context(), nil, `{"to":1}`)
	if err != nil {
		t.Error(err)
	}
	return o.failed
}

// TestSetsDiffer: what makes another set is another set, and what does not, such as the tasks, is the same one.
func TestSetsDiffer(t *testing.T) {
	sets, compiled := counting()
	base := withTool("greet")
	search, composer, reads := withTool("greet"), withTool("greet"), withTool("greet")
	search.Features = append(search.Features, runfile.FeatureCodebaseSearch)
	composer.Tools.Set = runfile.ToolsComposer
	reads.Tools.Add[0].ReadOnly = true
	tasks := withTool("greet")
	tasks.Tasks, tasks.Seed = []runfile.TaskSpec{{Name: "another"}}, 7
	for _, cfg := range []runfile.RunConfig{base, search, composer, reads, tasks} {
		got, err := sets.Set(cfg)
		if err != nil {
			t.Fatal(err)
		}
		want, err := NewSet(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(names(got), names(want)) {
			t.Errorf("got %v, want %v", names(got), names(want))
		}
	}
	if *compiled != 4 {
		t.Errorf("4 sets were compiled %d times", *compiled)
	}
}

func names(s *Set) (list []string) {
	for _, d := range s.Definitions() {
		list = append(list, fmt.Sprint(d.Name, d.ReadOnly))
	}
	return list
}

func TestSetsAreBounded(t *testing.T) {
	sets, compiled := counting()
	for i := range 3 * rememberedSets {
		if _, err := sets.Set(withTool(fmt.Sprintf("tool%d", i))); err != nil {
			t.Fatal(err)
		}
	}
	if n := sets.made.Len(); n != rememberedSets {
		t.Errorf("%d sets are remembered, want %d", n, rememberedSets)
	}
	if _, err := sets.Set(withTool("tool0")); err != nil || *compiled != 3*rememberedSets+1 {
		t.Errorf("a set that was forgotten: %v, %d compiled", err, *compiled)
	}
}
