package pipeline

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/topology"
)

// take copies a recorded event, or states what takes its place.
func (w *rerun) take(e events.Event) error {
	switch {
	case w.again[e.Type], e.Type == eventlog.Unreadable:
		return nil
	case e.Type == events.LogPurgedType:
		return nil // of the recorded run's stream
	case strings.HasPrefix(e.Source, stuckSource) && e.Type != events.StageWaitedType:
		return nil // who was stuck decides again
	case e.Type == events.RunOpenedType:
		return w.opened(e)
	case w.Outcome != nil && (e.Type == events.RolloutScoredType || e.Type == events.RolloutFailedType):
		return w.outcome(e)
	case e.Type == events.BatchConsumedType:
		return w.trainerTakes(e)
	case e.Type.Kind() == events.BatchConsumedType.Kind():
		return nil // checkpoints are the recorded trainer's own
	case e.Type == events.RunClosedType:
		w.closed = true
	}
	w.result.Copied++
	return w.copy(e)
}

// outcome states what takes the place of a recorded outcome.
func (w *rerun) outcome(e events.Event) error {
	fact, err := w.Outcome(w.ctx, e)
	if err != nil {
		return err
	}
	if fact == nil {
		w.result.Copied++
		return w.copy(e)
	}
	fact.Source, fact.Time, fact.TraceParent = topology.Scorer, e.Time, e.TraceParent
	stored, err := w.append(*fact)
	w.result.Decided[string(stored.Type)]++
	return err
}

func (w *rerun) copy(e events.Event) error {
	id, ok := strings.CutPrefix(e.ID, e.Run+"/")
	if !ok {
		return fmt.Errorf("its id is not of run %s", e.Run)
	}
	entity, data, err := e.Entity, e.Data, error(nil)
	if e.Type == events.WeightsPublishedType {
		data, err = w.published(e)
	}
	if err != nil {
		return err
	}
	if e.Type.Kind() == events.RunOpenedType.Kind() { // a run's facts are about the run of their name
		entity = w.To
		id = strings.Replace(id, "."+w.From+"/", "."+w.To+"/", 1)
	}
	_, err = w.append(events.Event{
		ID: w.To + "/" + id, Run: w.To, Type: e.Type, Entity: entity, Route: e.Route, Source: copiedSource + e.Source,
		Time: e.Time, TraceParent: e.TraceParent, Data: data,
	})
	return err
}

// published is what is said of weights. Those of the recorded run are the new run's own: by them
// its feeder tells which of its steps weights cover.
func (w *rerun) published(e events.Event) ([]byte, error) {
	published, err := events.Data[events.WeightsPublished](e)
	if err != nil || published.Run != w.From {
		return e.Data, err
	}
	published.Run = w.To
	return json.Marshal(published)
}

func (w *rerun) opened(e events.Event) error {
	recorded, err := events.Data[events.RunOpened](e)
	if err != nil {
		return err
	}
	again := slices.Collect(maps.Keys(w.Deciders))
	if w.Outcome != nil {
		again = append(again, topology.Scorer)
	}
	slices.Sort(again)
	fact, err := events.New(w.To, events.RunOpenedType, w.To, "0", events.RunOpened{
		Config: w.Config, PolicyVersion: recorded.PolicyVersion,
		Replays: &events.Replayed{Run: w.From, Until: w.Until, Decided: again}, Continues: recorded.Continues,
	})
	if err != nil {
		return err
	}
	fact.Source, fact.Time = copiedSource+e.Source, e.Time
	stored, err := w.append(fact)
	var other *eventlog.Conflict
	if errors.As(err, &other) || err == nil && string(stored.Data) != string(fact.Data) {
		return fmt.Errorf("%w: %s", ErrRunExists, w.To)
	}
	return err
}
