package eventlog_test

import (
	"encoding/base64"
	"math/rand/v2"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
)

// noise makes n events of 100 KiB that hardly shrink.
func noise(t *testing.T, log *eventlog.Log, first, n int) {
	t.Helper()
	random := rand.NewChaCha8([32]byte{byte(first), byte(first >> 8)})
	for i := range n {
		bytes := make([]byte, 75<<10)
		random.Read(bytes)
		e, err := events.New("r", events.RolloutAnnotatedType, events.RolloutID(events.GroupID(2), first+i),
			"0", events.RolloutAnnotated{Text: base64.StdEncoding.EncodeToString(bytes)})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := log.Appender.Append(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSegmentsAreCutBySize: as large as they become in the store, not as the log is, and as the
// last one tells what they will become.
func TestSegmentsAreCutBySize(t *testing.T) {
	log := natstest.Log(t)
	recorded(t, log, "r", 0)
	noise(t, log, 0, 250)
	made, err := log.Appender.Seal(t.Context(), "r", true)
	if err != nil || len(made) != 2 {
		t.Fatalf("%v: %+v", err, made)
	}
	if size := made[0].Segment.Size; size < 16<<20 || size > 24<<20 || made[1].Segment.Size > size {
		t.Errorf("the segments have %d and %d bytes", size, made[1].Segment.Size)
	}
	noise(t, log, 250, 150)
	if made, err = log.Appender.Seal(t.Context(), "r", false); err != nil || len(made) != 0 {
		t.Errorf("too early: %v: %+v", err, made)
	}
	noise(t, log, 400, 150)
	if made, err = log.Appender.Seal(t.Context(), "r", false); err != nil || len(made) != 1 ||
		made[0].Segment.Size < 16<<20 {
		t.Errorf("%v: %+v", err, made)
	}
	if _, err := log.Appender.Seal(t.Context(), "r", true); err != nil {
		t.Fatal(err)
	}
	want := everything(t, log, "r")
	sealed, err := log.Segments(t.Context(), "r")
	if err != nil || len(sealed) != 4 || sealed[3].Last != uint64(len(want)) {
		t.Fatalf("%v: %+v", err, sealed)
	}
	if findings, err := log.Archive.Verify(t.Context(), "r", sealed); err != nil || len(findings) > 0 {
		t.Errorf("%v: %v", err, findings)
	}
	if err := log.Streams.DeleteRun(t.Context(), "r"); err != nil {
		t.Fatal(err)
	}
	same(t, "read from the archive", everything(t, log, "r"), want)
	for _, from := range []uint64{2, sealed[0].Last, sealed[0].Last + 1, sealed[2].Last - 3} {
		for e, err := range log.All(t.Context(), "r", from) {
			if err != nil || !equal(e, want[from-1]) {
				t.Errorf("from %d: %v: %s at %d", from, err, e.ID, e.Seq)
			}
			break
		}
	}
}
