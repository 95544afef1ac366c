package scorer

import (
	"maps"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
)

func TestMeasure(t *testing.T) {
	s := runfile.Scoring{
		Weights: map[string]float64{"reward": 1, "effort": -0.1, runfile.HygieneLitter: -0.1,
			runfile.HygieneWhitespace: -0.1},
		Effort: &runfile.Effort{Turns: 1, Tokens: 0.01, ToolSeconds: 1, Half: 10},
	}
	r := &events.Rollout{ // a fork with one turn of its origin, of which an answer was known
		Turns: []events.TurnSampled{{Turn: 0, CompletionTokens: 9000}, {Turn: 1, CompletionTokens: 300},
			{Turn: 2, CompletionTokens: 200}}, Copied: 1,
		Tools: events.ToolAnswers{
			{Results: []events.ToolResult{{DurationMS: 9000}}},
			{Turn: 1, Results: []events.ToolResult{{DurationMS: 1, OriginalMS: 2500}, {DurationMS: 500}}},
		},
	}
	snapshot := sandboxtest.Pack(t, map[string]string{"a.py": "if x:\n    y()\nz()\n",
		"b.py": "same\n", "kept.orig": "x"})
	for name, c := range map[string]struct {
		change map[string]string
		want   map[string]float64
	}{
		"nothing": {nil, map[string]float64{runfile.HygieneLines: 0, runfile.HygieneWhitespace: 0,
			runfile.HygieneLitter: 0}},
		"one line": {map[string]string{"a.py": "if x:\n    y()\nzz()\n"},
			map[string]float64{runfile.HygieneLines: 2, runfile.HygieneWhitespace: 0, runfile.HygieneLitter: 0}},
		"indentation": {map[string]string{"a.py": "if x:\n\ty()\nzz()\n"},
			map[string]float64{runfile.HygieneLines: 4, runfile.HygieneWhitespace: 0.5, runfile.HygieneLitter: 0}},
		"a blank line": {map[string]string{"b.py": "same\n\n"},
			map[string]float64{runfile.HygieneLines: 1, runfile.HygieneWhitespace: 1, runfile.HygieneLitter: 0}},
		"litter": {map[string]string{"a.py.orig": "x\n", "kept.orig": "y", "tmp/x.swp": "\x00",
			"core": "\x00", "score.py": "x\n"},
			map[string]float64{runfile.HygieneLines: 4, runfile.HygieneWhitespace: 0, runfile.HygieneLitter: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			var change []byte
			if c.change != nil {
				change = sandboxtest.Pack(t, c.change)
			}
			got, err := measure(s, r, work{snapshot: sandbox.Bytes(snapshot), change: sandbox.Bytes(change)},
				map[string]float64{"reward": 1})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			want := map[string]float64{"reward": 1, "effort": 0.5, runfile.EffortTurns: 2, runfile.EffortTokens: 500,
				runfile.EffortToolSeconds: 3}
			maps.Copy(want, c.want)
			if !maps.Equal(got, want) {
				t.Errorf("%s:\n got %v\nwant %v", name, got, want)
			}
		})
	}
	plain, err := measure(runfile.Scoring{}, r, work{snapshot: sandbox.Bytes(snapshot)},
		map[string]float64{"reward": 1})
	if err != nil || len(plain) != 1 {
		t.Errorf("without a wish for more: %v, %v", plain, err)
	}
}

// TestMeasureStepFiles: what the steps of a task bring into the workspace is no work of the
// agent's, and what it makes of that is.
func TestMeasureStepFiles(t *testing.T) {
	s := runfile.Scoring{Weights: map[string]float64{"reward": 1, runfile.HygieneLines: -0.1}}
	pack := func(files map[string]string) sandbox.Source { return sandbox.Bytes(sandboxtest.Pack(t, files)) }
	snapshot := pack(map[string]string{"a.py": "a\n", "b.py": "b\n"})
	left := pack(map[string]string{"a.py": "mine\n"})
	laid := pack(map[string]string{"a.py": "mine\n", "b.py": "brought\n", "new/c.py": "brought\n",
		"kept.orig": "brought\n"})
	w := work{snapshot: snapshot, brought: map[string]originalFile{}}
	if err := compareApplied(snapshot, left, laid, w.brought); err != nil {
		t.Fatal(err)
	}
	w.change = pack(map[string]string{"a.py": "mine\n", "b.py": "brought\n", "new/c.py": "brought\nmine\n",
		"kept.orig": "brought\n", "my.tmp": "mine\n"})
	got, err := measure(s, &events.Rollout{}, w, map[string]float64{"reward": 1})
	// Two lines of a.py, one of new/c.py, one of my.tmp.
	if err != nil || got[runfile.HygieneLines] != 4 || got[runfile.HygieneLitter] != 1 {
		t.Errorf("%v, %v", got, err)
	}
}
