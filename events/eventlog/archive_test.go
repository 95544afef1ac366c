package eventlog_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/recovery"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/storage"
)

// recorded makes a run of n annotated rollouts, some with bodies that lie in the store.
func recorded(t *testing.T, log *eventlog.Log, run string, n int) {
	t.Helper()
	if err := log.Streams.EnsureRun(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	state := func(typ events.Type, entity string, prev uint64, data any) uint64 {
		e, err := events.New(run, typ, entity, fmt.Sprint(prev), data)
		if err != nil {
			t.Fatal(err)
		}
		e.Prev, e.Source, e.TraceParent = prev, "test", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		stored, _, err := log.Appender.Append(t.Context(), e)
		if err != nil {
			t.Fatal(err)
		}
		return stored.Seq
	}
	cfg := runfile.DefaultRunConfig()
	cfg.Policy = "p"
	state(events.RunOpenedType, run, 0, events.RunOpened{Config: cfg})
	for i := range n {
		id := events.RolloutID(events.GroupID(1), i)
		last := state(events.RolloutStartedType, id, 0, events.RolloutStarted{Group: events.GroupID(1), Member: i})
		text := strings.Repeat("x", 10)
		if i%5 == 0 {
			text = strings.Repeat("y", 200<<10) // beyond what travels on the log
		}
		state(events.TurnSampledType, id, last, events.TurnSampled{Content: text})
	}
}

func everything(t *testing.T, log *eventlog.Log, run string) (all []events.Event) {
	t.Helper()
	for e, err := range log.All(t.Context(), run, 1) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

func same(t *testing.T, what string, got, want []events.Event) {
	t.Helper()
	if !slices.EqualFunc(got, want, equal) {
		t.Errorf("%s: %d events are not the %d that were recorded", what, len(got), len(want))
	}
}

// equal compares what the log is read for; fmt shows times without where they came from, and takes
// long to show large data.
func equal(a, b events.Event) bool {
	data := bytes.Equal(a.Data, b.Data)
	a.Data, b.Data = nil, nil
	return data && fmt.Sprintf("%+v", a) == fmt.Sprintf("%+v", b)
}

func TestArchive(t *testing.T) {
	log := natstest.Log(t)
	recorded(t, log, "r", 20)
	want := everything(t, log, "r")
	if made, err := log.Appender.Seal(t.Context(), "r", false); err != nil || len(made) != 0 {
		t.Fatalf("a small log was sealed before its end: %v %v", made, err)
	}
	for range 2 { // the second time there is nothing to do
		if _, err := log.Appender.Seal(t.Context(), "r", true); err != nil {
			t.Fatal(err)
		}
	}
	sealed, err := log.Segments(t.Context(), "r")
	if err != nil || len(sealed) != 1 || sealed[0].First != 1 || sealed[0].Last != uint64(len(want)) {
		t.Fatalf("%v: %+v", err, sealed)
	}
	if findings, err := log.Archive.Verify(t.Context(), "r", sealed); err != nil || len(findings) > 0 {
		t.Errorf("%v: %v", err, findings)
	}
	if _, err := recovery.Restore(t.Context(), log, "r", sealed, nil); err == nil {
		t.Error("a run was restored over its stream")
	}
	if err := log.Streams.DeleteRun(t.Context(), "r"); err != nil {
		t.Fatal(err)
	}
	same(t, "read from the archive", everything(t, log, "r"), want)
	if cfg, err := log.RecordedConfig(t.Context(), "r"); err != nil ||
		cfg.GroupSize != runfile.DefaultRunConfig().GroupSize {
		t.Errorf("configuration of the archived run: %v", err)
	}
	if _, err := log.RecordedConfig(t.Context(), "nobody"); err == nil {
		t.Error("a run that never was has a configuration")
	}
}

// TestRestoreElsewhere: another server and the store are enough.
func TestRestoreElsewhere(t *testing.T) {
	first, store := natstest.Connect(t, natstest.Server(t)), natstest.Store(t)
	log, err := eventlog.New(first, store)
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Streams.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	recorded(t, log, "r", 12)
	if _, err := log.Appender.Seal(t.Context(), "r", true); err != nil { // in two segments
		t.Fatal(err)
	}
	last, err := log.Last(t.Context(), "r", events.RunOpenedType.Kind(), "r")
	if err != nil {
		t.Fatal(err)
	}
	closed, _ := events.New("r", events.RunClosedType, "r", "0", events.RunClosed{})
	closed.Prev = last.Seq
	if _, _, err := log.Appender.Append(t.Context(), closed); err != nil {
		t.Fatal(err)
	}
	if _, err := log.Appender.Seal(t.Context(), "r", true); err != nil {
		t.Fatal(err)
	}
	want := everything(t, log, "r")

	empty, err := eventlog.New(natstest.Connect(t, natstest.Server(t)), store)
	if err != nil {
		t.Fatal(err)
	}
	if err := empty.Streams.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	sealed, err := recovery.Stored(t.Context(), empty.Store(), "r")
	if err != nil || len(sealed) != 2 {
		t.Fatalf("%v: %+v", err, sealed)
	}
	if n, err := recovery.Restore(t.Context(), empty, "r", sealed, nil); err != nil || n != len(want) {
		t.Fatalf("%d events: %v", n, err)
	}
	same(t, "restored", everything(t, empty, "r"), want)
	if findings, err := empty.Archive.Verify(t.Context(), "r", sealed); err != nil || len(findings) > 0 {
		t.Errorf("%v: %v", err, findings)
	}
	if again, err := empty.Segments(t.Context(), "r"); err != nil || len(again) != 2 {
		t.Errorf("the catalogue lists %+v, %v", again, err)
	}
	for _, typ := range []events.Type{events.RunOpenedType, events.RunClosedType} {
		if _, err := empty.LastOfType(t.Context(), events.Catalogue, typ, "r"); err != nil {
			t.Errorf("the catalogue does not list %s: %v", typ, err)
		}
	}
}

// TestTwoArchivers: whoever seals, the segments follow each other.
func TestTwoArchivers(t *testing.T) {
	log := natstest.Log(t)
	recorded(t, log, "r", 10)
	want := everything(t, log, "r")
	var both sync.WaitGroup
	for range 4 {
		both.Go(func() { _, _ = log.Appender.Seal(t.Context(), "r", true) }) // who loses may fail
	}
	both.Wait()
	sealed, err := log.Segments(t.Context(), "r")
	if err != nil || len(sealed) == 0 || sealed[len(sealed)-1].Last != uint64(len(want)) {
		t.Fatalf("%v: %+v", err, sealed)
	}
	if findings, err := log.Archive.Verify(t.Context(), "r", sealed); err != nil || len(findings) > 0 {
		t.Errorf("%v: %v", err, findings)
	}
}

// TestBrokenArchive: whatever byte of a segment changes, verification names the segment.
func TestBrokenArchive(t *testing.T) {
	log := natstest.Log(t)
	recorded(t, log, "r", 3)
	sealed, err := log.Appender.Seal(t.Context(), "r", true)
	if err != nil {
		t.Fatal(err)
	}
	key := sealed[0].Segment.Key
	whole, err := log.Store().Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	for range 40 {
		at := rand.IntN(len(whole))
		broken := slices.Clone(whole)
		broken[at] ^= 1 << rand.IntN(8)
		if err := log.Store().Put(t.Context(), key, broken); err != nil {
			t.Fatal(err)
		}
		findings, err := log.Archive.Verify(t.Context(), "r", sealed)
		if err != nil || len(findings) != 1 || !strings.Contains(findings[0], key) {
			t.Errorf("byte %d: %v, %v", at, findings, err)
		}
	}
	if err := log.Store().Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	if findings, err := log.Archive.Verify(t.Context(), "r", sealed); err != nil || len(findings) != 1 {
		t.Errorf("without the file: %v, %v", findings, err)
	}
}

func TestSegmentsThatDoNotFollow(t *testing.T) {
	ref := func(c string) storage.Ref { return storage.Ref{SHA256: strings.Repeat(c, 64)} }
	good := []events.SegmentSealed{{First: 1, Last: 5, Segment: ref("a")},
		{First: 6, Last: 9, Segment: ref("b"), Previous: ref("a").SHA256}}
	if err := eventlog.CheckSegments("r", good); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(s []events.SegmentSealed){
		"a gap":             func(s []events.SegmentSealed) { s[1].First = 7 },
		"a late start":      func(s []events.SegmentSealed) { s[0].First = 2 },
		"another one":       func(s []events.SegmentSealed) { s[1].Previous = ref("c").SHA256 },
		"one before it":     func(s []events.SegmentSealed) { s[0].Previous = ref("c").SHA256 },
		"an inverted range": func(s []events.SegmentSealed) { s[0].Last = 0; s[1].First = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			bad := slices.Clone(good)
			change(bad)
			if err := eventlog.CheckSegments("r", bad); err == nil {
				t.Errorf("%s was accepted", name)
			}
		})
	}
}
