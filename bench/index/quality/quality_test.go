package quality

import (
	"context"
	"os/exec"
	"slices"
	"testing"

	"github.com/rondo-rl/rondo/bench/index/quality/functions"
	"github.com/rondo-rl/rondo/index/embed"
	"github.com/rondo-rl/rondo/storage/dir"
)

// TestVectorsHelp holds the built-in table to what it is for: with it answers are found that words
// alone do not find. A table with rows in the wrong places, or of other words, does not come near.
func TestVectorsHelp(t *testing.T) {
	for _, c := range []struct {
		name    string
		command string
		read    func(context.Context) ([]functions.Function, error)
		least   float64 // of the fusion's recall at ten beside that of BM25
	}{
		{"Go", "go", Go, 1.13},
		{"Python", "python3", Python, 1.08},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := exec.LookPath(c.command); err != nil {
				t.Skip(err)
			}
			list, err := c.read(t.Context())
			if err != nil {
				t.Skip(err)
			}
			set := New(every(list, 5), 200)
			if len(set.Questions) != 200 {
				t.Fatalf("%d questions about %d functions", len(set.Questions), len(list))
			}
			store, err := dir.Open(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			index, err := set.Index(t.Context(), store, embed.Static(), nil)
			if err != nil {
				t.Fatal(err)
			}
			score := func(rank Ranking) Score {
				s, err := set.Score(t.Context(), rank, nil)
				if err != nil {
					t.Fatal(err)
				}
				return s
			}
			byWords, byVectors, byBoth := score(index.ByWords), score(index.ByVectors), score(index.ByBoth)
			t.Logf("of %d functions: by words %+v, by vectors %+v, by both %+v", len(set.Functions),
				byWords, byVectors, byBoth)
			if byBoth.Recall10 < c.least*byWords.Recall10 {
				t.Errorf("by both %.3f are found, by words alone %.3f: want %.2f times as many", byBoth.Recall10,
					byWords.Recall10, c.least)
			}
			if byVectors.Recall10 < byWords.Recall10*0.8 {
				t.Errorf("by vectors alone %.3f are found, by words %.3f", byVectors.Recall10, byWords.Recall10)
			}
		})
	}
}

// every keeps one function of a few, so that the test is quick: `rondo-bench index` takes them all.
func every(list []functions.Function, n int) (kept []functions.Function) {
	for i := 0; i < len(list); i += n {
		kept = append(kept, list[i])
	}
	return kept
}

func TestScore(t *testing.T) {
	set := &Set{Questions: []Question{{"a", 1}, {"b", 2}, {"c", 3}, {"d", 4}}}
	s, err := set.Score(t.Context(), func(_ context.Context, q string) ([]int, error) {
		return map[string][]int{"a": {1, 2}, "b": {1, 2}, "c": append(slices.Repeat([]int{0}, 10), 3), "d": nil}[q], nil
	}, nil)
	if want := (Score{Recall1: 0.25, Recall10: 0.5, MRR: (1 + 0.5 + 1.0/11) / 4}); err != nil || s != want {
		t.Errorf("score %+v, want %+v; %v", s, want, err)
	}
}

func TestNew(t *testing.T) {
	f := func(name, sentence string) functions.Function {
		return functions.Function{Path: "a.go", Symbol: name, Name: name, Sentence: sentence}
	}
	list := []functions.Function{
		f("A", "A opens the file."), f("B", "B closes the file."), f("C", "C closes the files."), f("D", "D runs."),
		f("E", "Deprecated: use another one."),
	}
	set := New(list, 10)
	if len(set.Questions) != 1 || set.Questions[0] != (Question{"opens the file.", 0}) {
		t.Errorf("questions %+v: want one that is about one function, and says something", set.Questions)
	}
	if again := New(list, 0); len(again.Questions) != 0 {
		t.Errorf("%d questions, want none", len(again.Questions))
	}
}
