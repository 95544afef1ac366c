package events

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"testing"
)

// TestToolAnswers: in whatever order answers come, each turn has its last one, and who has the
// answers from before keeps them as they were.
func TestToolAnswers(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		want := map[int]int{}
		var answers ToolAnswers
		var before, then []ToolAnswers // as they were handed out, and copies
		for n := range 12 {
			turn := random.IntN(8)
			if random.IntN(2) == 0 {
				turn = n // as a rule they come in order
			}
			answers = answers.Add(ToolsCompleted{Turn: turn, Runner: strconv.Itoa(n)})
			want[turn] = n
			before, then = append(before, slices.Clip(answers)), append(then, slices.Clone(answers))
			for turn := -1; turn < 13; turn++ {
				n, there := want[turn]
				got, ok := answers.Get(turn)
				if ok != there || there && got.Runner != strconv.Itoa(n) ||
					!reflect.DeepEqual(answers.Answer(turn), got) {
					t.Fatalf("seed %d: turn %d has %+v %t, want answer %d %t", seed, turn, got, ok, n, there)
				}
			}
		}
		if len(answers) != len(want) || !reflect.DeepEqual(before, then) {
			t.Fatalf("seed %d: %d answers, want %d; those from before are %v, were %v", seed, len(answers),
				len(want), before, then)
		}
	}
}

// TestSharedAnswersPart: two who share a fold's answers and go on by themselves
// do not see each other's.
func TestSharedAnswersPart(t *testing.T) {
	chain := links(t, RolloutStarted{}, ToolsCompleted{}, ToolsCompleted{Turn: 1}, ToolsCompleted{Turn: 2},
		ToolsCompleted{Turn: 3, Runner: "fold"})
	r, err := FoldRollout(chain[:4]) // three answers, in a list with room for four
	if err != nil {
		t.Fatal(err)
	}
	one, two := r.Share(), r.Share()
	one.Begin(RolloutCopied{Tools: []ToolsCompleted{{Turn: 3, Runner: "one"}}})
	two.Begin(RolloutCopied{Tools: []ToolsCompleted{{Turn: 3, Runner: "two"}}})
	if err := r.Extend(chain[4:]); err != nil {
		t.Fatal(err)
	}
	for want, r := range map[string]*Rollout{"fold": &r, "one": &one, "two": &two} {
		if got := r.Tools.Answer(3).Runner; len(r.Tools) != 4 || got != want {
			t.Errorf("%s has %d answers, the last one of %q", want, len(r.Tools), got)
		}
	}
}
