package eventlog_test

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/topology"
)

// TestGapsOfTheCatalogue: dead letters expire, so a sequence that no link follows may be missing;
// one that is followed is damage.
func TestGapsOfTheCatalogue(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t)
	if err := log.JetStream().DeleteStream(t.Context(), events.CatalogueStream); err != nil {
		t.Fatal(err)
	}
	stream, err := log.JetStream().CreateStream(t.Context(),
		jetstream.StreamConfig{Name: events.CatalogueStream,
			Subjects: topology.Stream(events.CatalogueStream).Subjects, AllowDirect: true})
	if err != nil {
		t.Fatal(err)
	}
	state := func(typ events.Type, entity, ordinal string, data any) uint64 {
		e, err := events.New(events.Catalogue, typ, entity, ordinal, data)
		if err != nil {
			t.Fatal(err)
		}
		e.Source = "test"
		stored, _, err := log.Appender.AppendLast(t.Context(), e, func(*events.Event) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		return stored.Seq
	}
	reach := func() error {
		_, err := log.Archive.Reach(t.Context(), events.Catalogue, 1, func(string) error { return nil })
		return err
	}
	first := state(events.WeightsActivatedType, "small", "1", events.WeightsActivated{Version: 1, Replica: "a"})
	for _, entity := range []string{"RONDO_IN-1", "RONDO_IN-2"} {
		letter := state(events.DeadLetteredType, entity, "0", events.DeadLettered{Reason: "no"})
		state(events.WeightsActivatedType, "small", entity, events.WeightsActivated{Version: 1, Replica: "a"})
		if err := stream.DeleteMsg(t.Context(), letter); err != nil {
			t.Fatal(err)
		}
	}
	if err := reach(); err != nil {
		t.Errorf("without the letters: %v", err)
	}
	last := state(events.DeadLetteredType, "RONDO_IN-3", "0", events.DeadLettered{Reason: "no"})
	if err := stream.DeleteMsg(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	if err := reach(); err != nil {
		t.Errorf("without the last letter: %v", err)
	}
	if err := stream.DeleteMsg(t.Context(), first+2); err != nil { // a link in the middle of a chain
		t.Fatal(err)
	}
	if err := reach(); !errors.Is(err, eventlog.ErrGap) {
		t.Errorf("a link is missing: %v", err)
	}
}
