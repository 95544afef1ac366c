package tools

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/rondo-rl/rondo/sandbox/toolset"
)

// counting is Sets that counts what it compiles.
func counting() (sets *Sets, compiled *int) {
	sets, compiled = NewSets(), new(int)
	sets.compile = func(settings toolset.Settings) (*Set, error) {
		*compiled++
		return NewSet(settings)
	}
	return sets, compiled
}

// withTool adds a tool to the basic set.
func withTool(name string) toolset.Settings {
	return toolset.Settings{Tools: toolset.Tooling{Add: []toolset.Added{{
		Name: name, Description: "Says hello.", Command: []string{"/bin/hello"},
		Parameters: map[string]any{"type": "object",
			"properties": map[string]any{"to": map[string]any{"type": "string"}}},
	}}}}
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

// refused calls an added tool with arguments that its schema refuses, so that the schema is
// compiled and nothing is run.
func refused(t *testing.T, set *Set, name string) bool {
	o, err := set.lookup(name).run(t.Context(), nil, `{"to":1}`)
	if err != nil {
		t.Error(err)
	}
	return o.failed
}

// TestSetsDiffer: other settings make another set, and equal ones the same.
func TestSetsDiffer(t *testing.T) {
	sets, compiled := counting()
	base := withTool("greet")
	search, composer, reads := withTool("greet"), withTool("greet"), withTool("greet")
	search.Search = true
	composer.Tools.Set = toolset.Composer
	reads.Tools.Add[0].ReadOnly = true
	for _, settings := range []toolset.Settings{base, search, composer, reads, withTool("greet")} {
		got, err := sets.Set(settings)
		if err != nil {
			t.Fatal(err)
		}
		want, err := NewSet(settings)
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
