package doctor

import (
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestLostRunsAreShown: an open run without a stream is trouble, archived or not, and a
// segment that the store has lost is. A run of which the catalogue cannot be read hides
// none of those behind it.
func TestLostRunsAreShown(t *testing.T) {
	t.Parallel()
	r := clitest.NewRecorded(t)
	for _, name := range []string{"a-damaged", "archived", "other"} {
		servicetest.OpenRun(t, r.Log, name, servicetest.Config("fix-a"))
	}
	for i, data := range []any{map[string]any{"first": "one"}, events.SegmentSealed{First: 1, Last: 1}} {
		servicetest.Append(t, r.Log, servicetest.Event(t, events.Catalogue, events.SegmentSealedType,
			"a-damaged", events.Ordinal(int64(i+1)), data))
	}
	for _, name := range []string{"archived", "first"} {
		if _, err := r.Log.Appender.Seal(t.Context(), name, true); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"archived", "other"} {
		if err := r.Log.Streams.DeleteRun(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	sealed, err := r.Log.Segments(t.Context(), "first")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Log.Store().Delete(t.Context(), sealed[0].Segment.Key); err != nil {
		t.Fatal(err)
	}
	e, err := plane.ReadEndpoint(r.Dir)
	if err != nil {
		t.Fatal(err)
	}
	found := tryRuns(t.Context(), e.NATS, app.NATSAccess{}, e.Store)
	wantFinding(t, found, "runs", levelTrouble,
		"stream_lost: run archived: its stream is gone, and it was not closed; its archive ends at 1",
		"rondo run recover brings back what is archived")
	wantFinding(t, found, "runs", levelTrouble,
		"stream_lost: run other: its stream is gone, and nothing of it is archived", "a copy of the NATS server's disk")
	wantFinding(t, found, "runs", levelTrouble, "segment_lost: segment 1 to", "rondo run recover makes it again")
	wantFinding(t, found, "runs", levelTrouble, "run a-damaged cannot be compared with its archive",
		"a copy of the store")
	for _, f := range found {
		if strings.Contains(f.Found, "nor are those behind it") {
			t.Errorf("found %+v", f)
		}
	}
}
