package events

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events/runfile"
)

// links makes a rollout's chain of payloads.
func links(t *testing.T, steps ...any) []Event {
	t.Helper()
	var chain []Event
	for i, step := range steps {
		var typ Type
		switch step.(type) {
		case RolloutStarted:
			typ = RolloutStartedType
		case TurnSampled:
			typ = TurnSampledType
		case ToolsCompleted:
			typ = ToolsCompletedType
		case RolloutFinished:
			typ = RolloutFinishedType
		case RolloutScored:
			typ = RolloutScoredType
		case RolloutFailed:
			typ = RolloutFailedType
		case RolloutRetried:
			typ = RolloutRetriedType
		case RolloutInvalidated:
			typ = RolloutInvalidatedType
		case RolloutAnnotated:
			typ = RolloutAnnotatedType
		default:
			typ = "rollout.teleported"
		}
		e, err := New("r", typ, "g000001-2", Ordinal(i), step)
		if err != nil {
			t.Fatal(err)
		}
		e.Seq = uint64(10 * (i + 1))
		if i > 0 {
			e.Prev = chain[i-1].Seq
		}
		chain = append(chain, e)
	}
	return chain
}

func TestFoldRollout(t *testing.T) {
	started := RolloutStarted{Group: "g000001", Member: 2, Task: "task"}
	asks := func(turn int) TurnSampled {
		return TurnSampled{Turn: turn, ToolCalls: []ToolCall{{ID: "c", Name: "grep"}}}
	}
	answers := func(turn int, runner string) ToolsCompleted { return ToolsCompleted{Turn: turn, Runner: runner} }
	type facts struct {
		turns, tries  int
		over, awaits  bool
		runner        string // of the last answer
		lastTurn      int
		finished      bool
		scored, ended string
	}
	for name, c := range map[string]struct {
		steps []any
		want  facts
	}{
		"just started":   {[]any{started}, facts{lastTurn: -1}},
		"asks for tools": {[]any{started, asks(0)}, facts{turns: 1, awaits: true}},
		"has its answer": {[]any{started, asks(0), answers(0, "a")}, facts{turns: 1, runner: "a"}},
		"asks again": {[]any{started, asks(0), answers(0, "a"), asks(1)},
			facts{turns: 2, awaits: true, runner: "a", lastTurn: 1}},
		"has the second answer": {[]any{started, asks(0), answers(0, "a"), asks(1), answers(1, "b")},
			facts{turns: 2, runner: "b", lastTurn: 1}},
		"says its last word": {[]any{started, TurnSampled{Turn: 0}}, facts{turns: 1}},
		"is finished": {[]any{started, TurnSampled{Turn: 0}, RolloutFinished{}},
			facts{turns: 1, finished: true}},
		"is scored": {[]any{started, TurnSampled{Turn: 0}, RolloutFinished{}, RolloutScored{Reward: 1}},
			facts{turns: 1, finished: true, over: true, scored: "1"}},
		"failed": {[]any{started, RolloutFailed{Class: ClassDeadline}},
			facts{over: true, lastTurn: -1, ended: ClassDeadline}},
		"two tries": {[]any{started, RolloutRetried{Try: 1}, RolloutRetried{Try: 2}},
			facts{tries: 2, lastTurn: -1}},
		"progress forgets tries": {[]any{started, RolloutRetried{Try: 1}, asks(0)}, facts{turns: 1, awaits: true}},
		"a remark is no progress": {[]any{started, asks(0), RolloutRetried{Try: 1}, RolloutAnnotated{Text: "hm"},
			RolloutInvalidated{Reason: "x"}, map[string]int{}}, facts{turns: 1, tries: 1, awaits: true}},
	} {
		t.Run(name, func(t *testing.T) {
			chain := links(t, c.steps...)
			r, err := FoldRollout(chain)
			if err != nil {
				t.Fatal(err)
			}
			got := facts{turns: len(r.Turns), tries: r.Tries, over: r.Over(), awaits: r.AwaitsTools(),
				finished: r.Finished != nil, lastTurn: -1}
			if last := r.LastTurn(); last != nil {
				got.lastTurn = last.Turn
			}
			if last := r.LastTools(); last != nil {
				got.runner = last.Runner
			}
			if r.Scored != nil {
				got.scored = fmt.Sprint(r.Scored.Reward)
			}
			if r.Failed != nil {
				got.ended = r.Failed.Class
			}
			if got != c.want {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
			if r.Run != "r" || r.ID != "g000001-2" || !reflect.DeepEqual(r.Started, started) ||
				r.Tail != chain[len(chain)-1].Seq {
				t.Errorf("run %s, rollout %s, started %+v, tail %d", r.Run, r.ID, r.Started, r.Tail)
			}
		})
	}
}

func TestFoldRolloutRefuses(t *testing.T) {
	if _, err := FoldRollout(links(t, TurnSampled{})); !errors.Is(err, ErrMalformed) {
		t.Errorf("a chain without its beginning: %v", err)
	}
	chain := links(t, RolloutStarted{}, TurnSampled{})
	chain[1].Data = []byte(`{"turn":"first"}`)
	if _, err := FoldRollout(chain); err == nil || !strings.Contains(err.Error(), chain[1].ID) {
		t.Errorf("an event that cannot be read: %v", err)
	}
}

func TestNextLinks(t *testing.T) {
	r, err := FoldRollout(links(t, RolloutStarted{}, TurnSampled{}))
	if err != nil {
		t.Fatal(err)
	}
	e, err := r.Next(RolloutFinishedType, "0", RolloutFinished{})
	if err != nil || e.Prev != 20 || e.ID != "r/rollout.g000001-2/finished/0" || e.Run != "r" {
		t.Errorf("next %+v, %v", e, err)
	}
	limits := runfile.Limits{Tries: 3}
	seen := map[string]bool{}
	for try := 1; try <= 3; try++ {
		e, final, err := r.Retry(limits, StageScorer, ClassVerifier, errors.New(strings.Repeat("x", 10000)))
		if err != nil || final != (try == 3) || seen[e.ID] {
			t.Fatalf("try %d: %s, final %v, %v", try, e.ID, final, err)
		}
		seen[e.ID] = true
		if len(e.Data) > 3000 {
			t.Errorf("try %d: the error's text takes %d bytes", try, len(e.Data))
		}
		if final {
			failed, err := Data[RolloutFailed](e)
			if e.Type != RolloutFailedType || err != nil || failed.Stage != StageScorer ||
				failed.Class != ClassVerifier {
				t.Errorf("final %s: %+v, %v", e.Type, failed, err)
			}
			continue
		}
		retried, err := Data[RolloutRetried](e)
		if err != nil || retried.Try != try || e.Type != RolloutRetriedType {
			t.Errorf("try %d: %+v, %v", try, retried, err)
		}
		e.Seq = 100 + uint64(try)
		if err := r.apply(e); err != nil {
			t.Fatal(err)
		}
	}
	// The tries of another turn have identities of their own.
	if err := r.apply(links(t, RolloutStarted{}, TurnSampled{Turn: 1})[1]); err != nil {
		t.Fatal(err)
	}
	if e, _, err := r.Retry(limits, StageScorer, ClassVerifier, errors.New("x")); err != nil || seen[e.ID] {
		t.Errorf("the first try after progress is %s again, %v", e.ID, err)
	}
}

// A cut text must still be text.
func TestClip(t *testing.T) {
	for _, s := range []string{"short", strings.Repeat("x", 5000), strings.Repeat("日本", 2000),
		strings.Repeat("é", 1000) + "x"} {
		got := clip(s)
		if len(got) > 2010 || strings.ContainsRune(got, '\uFFFD') ||
			!strings.HasPrefix(s, strings.TrimSuffix(got, "…")) {
			t.Errorf("%d bytes become %d: %.30q…", len(s), len(got), got)
		}
	}
}
