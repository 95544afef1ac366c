package behaviour

import (
	"fmt"
	"math"
	"reflect"
	"testing"

	"github.com/rondo-rl/rondo/books"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/storage"
)

// written are the events of a run that a test makes by hand.
type written struct {
	testing.TB
	list []events.Event
	n    int
}

func (w *written) event(typ events.Type, entity string, data any) {
	w.Helper()
	w.n++
	e, err := events.New("r", typ, entity, events.Ordinal(w.n), data)
	if err != nil {
		w.Fatal(err)
	}
	e.Seq = uint64(w.n)
	w.list = append(w.list, e)
}

func (w *written) open(change func(*runfile.RunConfig)) {
	w.Helper()
	cfg := runfile.DefaultRunConfig()
	if change != nil {
		change(&cfg)
	}
	w.event(events.RunOpenedType, "r", events.RunOpened{Config: cfg})
}

func (w *written) start(id string, version int64) {
	w.Helper()
	w.event(events.RolloutStartedType, id, events.RolloutStarted{Group: events.GroupOf(id), Task: "fix",
		PolicyVersion: version})
}

// turn samples tokens and asks for tools by their names.
func (w *written) turn(id string, tokens int, names ...string) {
	w.Helper()
	w.sampled(id, events.TurnSampled{CompletionTokens: tokens, ToolCalls: calls(names)})
}

func (w *written) sampled(id string, turn events.TurnSampled) {
	w.Helper()
	w.event(events.TurnSampledType, id, turn)
}

// answer answers calls of tools by their names, "!grep" for one that failed; workspace is the
// change after it, "" for none.
func (w *written) answer(id, workspace string, names ...string) {
	w.Helper()
	done := events.ToolsCompleted{Workspace: change(workspace)}
	for _, name := range names {
		failed := name[0] == '!'
		if failed {
			name = name[1:]
		}
		done.Results = append(done.Results, events.ToolResult{Name: name, Error: failed})
	}
	w.event(events.ToolsCompletedType, id, done)
}

// score ends a rollout with one sample, for the reason "finished".
func (w *written) score(id string, reward float64) {
	w.Helper()
	w.event(events.RolloutFinishedType, id, events.RolloutFinished{StopReason: events.StopFinished, Samples: 1})
	w.event(events.RolloutScoredType, id, events.RolloutScored{Reward: reward})
}

func change(workspace string) *storage.Ref {
	if workspace == "" {
		return nil
	}
	return &storage.Ref{Key: "blobs/" + workspace, SHA256: workspace}
}

func calls(names []string) (list []events.ToolCall) {
	for i, name := range names {
		list = append(list, events.ToolCall{ID: fmt.Sprint("c", i), Name: name})
	}
	return list
}

// fold folds the events.
func (w *written) fold() *Fold {
	w.Helper()
	return folded(w, w.list)
}

func folded(t testing.TB, list []events.Event) *Fold {
	t.Helper()
	run := books.NewRollouts()
	f := New(&run)
	for _, e := range list {
		if err := apply(f, e); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// apply folds an event into the books, and then into the fold beside them.
func apply(f *Fold, e events.Event) error {
	if err := f.rollouts.run.Apply(e); err != nil {
		return err
	}
	return f.Apply(e)
}

// row is the only one.
func (w *written) row() Row {
	w.Helper()
	rows := w.fold().Rows()
	if len(rows) != 1 {
		w.Fatalf("%d rows: %+v", len(rows), rows)
	}
	return rows[0]
}

func same(t testing.TB, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %s, want %s", what, spelled(got), spelled(want))
	}
}

// spelled shows what pointers point at.
func spelled(v any) string {
	if at := reflect.ValueOf(v); at.Kind() == reflect.Pointer && !at.IsNil() {
		return fmt.Sprintf("%+v", at.Elem().Interface())
	}
	return fmt.Sprintf("%+v", v)
}

func near(v *float64, want float64) bool { return v != nil && math.Abs(*v-want) < 1e-12 }
