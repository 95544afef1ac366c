package eventlog_test

import (
	"errors"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/recovery"
	"github.com/rondo-rl/rondo/events/runfile"
)

// annotated appends n annotations to a run, each of a rollout of its own.
func annotated(t *testing.T, log *eventlog.Log, run string, first, n int) {
	t.Helper()
	for i := range n {
		e, err := events.New(run, events.RolloutAnnotatedType, events.RolloutID(events.GroupID(3), first+i),
			"0", events.RolloutAnnotated{Text: "so far"})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := log.Appender.Append(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
}

// stored makes a segment and leaves it unstated, as a process that is killed in between.
func stored(t *testing.T, log *eventlog.Log, run string) events.SegmentSealed {
	t.Helper()
	in, err := log.Incarnation(t.Context(), run)
	if err != nil {
		t.Fatal(err)
	}
	fact, err := log.Archive.NextSegment(t.Context(), run, in.LastSeq)
	if err != nil || fact == nil {
		t.Fatalf("%v, %v", fact, err)
	}
	segment, err := events.Data[events.SegmentSealed](*fact)
	if err != nil {
		t.Fatal(err)
	}
	return segment
}

// TestArchiverDiesBeforeItStates: a segment that was stored and not stated changes nothing, also
// where the store alone is left.
func TestArchiverDiesBeforeItStates(t *testing.T) {
	log := natstest.Log(t)
	recorded(t, log, "r", 2)
	for round := range 4 {
		annotated(t, log, "r", 10*round+7, 1)
		stored(t, log, "r")
		annotated(t, log, "r", 10*round, 3)
		if round%2 == 1 {
			stored(t, log, "r") // twice
			annotated(t, log, "r", 10*round+5, 1)
		}
		if made, err := log.Appender.Seal(t.Context(), "r", true); err != nil || len(made) != 1 {
			t.Fatalf("%v: %+v", err, made)
		}
	}
	annotated(t, log, "r", 90, 1)
	last := stored(t, log, "r") // it holds more than the catalogue knows of
	want := everything(t, log, "r")
	sealed, err := log.Segments(t.Context(), "r")
	if err != nil || len(sealed) != 4 {
		t.Fatalf("%v: %+v", err, sealed)
	}
	if findings, err := log.Archive.Verify(t.Context(), "r", sealed); err != nil || len(findings) > 0 {
		t.Errorf("%v: %v", err, findings)
	}
	found, err := recovery.Stored(t.Context(), log.Store(), "r")
	if err != nil || len(found) != 5 || found[4].Last != last.Last {
		t.Fatalf("in the store: %v: %+v", err, found)
	}
	for i, s := range sealed {
		if found[i] != s {
			t.Errorf("segment %d is found as %+v, want %+v", i, found[i], s)
		}
	}
	if err := eventlog.CheckSegments("r", found); err != nil {
		t.Error(err)
	}
	empty := elsewhere(t, log)
	if n, err := recovery.Restore(t.Context(), empty, "r", found, nil); err != nil || n != len(want) {
		t.Fatalf("%d events restored of %d: %v", n, len(want), err)
	}
	same(t, "restored", everything(t, empty, "r"), want)
}

// elsewhere is an empty server with the same store.
func elsewhere(t *testing.T, log *eventlog.Log) *eventlog.Log {
	t.Helper()
	empty, err := eventlog.New(natstest.Connect(t, natstest.Server(t)), log.Store())
	if err != nil {
		t.Fatal(err)
	}
	if err := empty.Streams.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	return empty
}

// TestLostDisk: the disk of the log is lost while a run is open. Restored, the run is what was
// archived, goes on behind it, and is archived on.
func TestLostDisk(t *testing.T) {
	log := natstest.Log(t)
	recorded(t, log, "r", 6)
	if _, err := log.Appender.Seal(t.Context(), "r", true); err != nil {
		t.Fatal(err)
	}
	annotated(t, log, "r", 0, 4)
	published, err := events.New("r", events.WeightsPublishedType, "p",
		"3", events.WeightsPublished{Policy: "p", Version: 3})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := log.Appender.Append(t.Context(), published); err != nil {
		t.Fatal(err)
	}
	if _, err := log.Appender.Seal(t.Context(), "r", true); err != nil {
		t.Fatal(err)
	}
	want := everything(t, log, "r")
	annotated(t, log, "r", 50, 3) // these are lost

	empty := elsewhere(t, log)
	found, err := recovery.Stored(t.Context(), empty.Store(), "r")
	if err != nil {
		t.Fatal(err)
	}
	if n, err := recovery.Restore(t.Context(), empty, "r", found, nil); err != nil || n != len(want) {
		t.Fatalf("%d events restored of %d: %v", n, len(want), err)
	}
	same(t, "restored", everything(t, empty, "r"), want)
	turn := events.TurnSampled{VersionSpans: []events.VersionSpan{{Version: 3}, {Start: 1, Version: 4}}}
	if err := empty.MarkVersions(t.Context(), "p", 0, &turn); err != nil || turn.VersionSpans[0].Version != 3 ||
		turn.VersionSpans[1].Version != runfile.UnknownVersion {
		t.Errorf("the catalogue takes the policy's versions 3 and 4 for %v, %v", turn.VersionSpans, err)
	}
	// A late repetition of what is restored is adopted, and what does not follow is refused.
	id := events.RolloutID(events.GroupID(1), 0)
	started, err := events.New("r", events.RolloutStartedType, id, "0", events.RolloutStarted{Group: events.GroupID(1)})
	if err != nil {
		t.Fatal(err)
	}
	if stored, adopted, err := empty.Appender.Append(t.Context(), started); err != nil || !adopted || stored.Seq == 0 {
		t.Errorf("the repetition: adopted %t, %v", adopted, err)
	}
	zombie, err := events.New("r", events.RolloutFailedType, id, "0", events.RolloutFailed{})
	if err != nil {
		t.Fatal(err)
	}
	var conflict *eventlog.Conflict
	if _, _, err := empty.Appender.Append(t.Context(), zombie); !errors.As(err, &conflict) {
		t.Errorf("another first link: %v, want a conflict", err)
	}
	annotated(t, empty, "r", 70, 2)
	if made, err := empty.Appender.Seal(t.Context(), "r", true); err != nil || len(made) != 1 ||
		made[0].First != uint64(len(want)+1) {
		t.Errorf("archived on: %v: %+v", err, made)
	}
	sealed, err := empty.Segments(t.Context(), "r")
	if err != nil || len(sealed) != 3 {
		t.Fatalf("%v: %+v", err, sealed)
	}
	if findings, err := empty.Archive.Verify(t.Context(), "r", sealed); err != nil || len(findings) > 0 {
		t.Errorf("%v: %v", err, findings)
	}
}

// TestSealOfABusyRunEnds: what comes while a run is sealed is left to the next time.
func TestSealOfABusyRunEnds(t *testing.T) {
	log := natstest.Log(t)
	recorded(t, log, "r", 1)
	in, err := log.Incarnation(t.Context(), "r")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := log.Appender.Seal(t.Context(), "r", true); err != nil {
		t.Fatal(err)
	}
	annotated(t, log, "r", 0, 1)
	if fact, err := log.Archive.NextSegment(t.Context(), "r", in.LastSeq); err != nil || fact != nil {
		t.Errorf("sealed through %d already, a segment of what came behind: %v, %v", in.LastSeq, fact, err)
	}
	a, err := log.Archived(t.Context(), "r")
	if err != nil || a.Through != in.LastSeq || a.Last != in.LastSeq+1 || a.At.IsZero() {
		t.Errorf("%+v, %v", a, err)
	}
}
