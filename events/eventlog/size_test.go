package eventlog_test

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/recovery"
	"github.com/rondo-rl/rondo/events/runfile"
)

// openSized makes a run whose log has a size, with its opening.
func openSized(t *testing.T, log *eventlog.Log, run string, size runfile.Size) {
	t.Helper()
	cfg := runfile.DefaultRunConfig()
	cfg.Log.MaxBytes = size
	if err := log.Streams.EnsureRunFor(t.Context(), run, cfg.Log); err != nil {
		t.Fatal(err)
	}
	opened, err := events.New(run, events.RunOpenedType, run, "0", events.RunOpened{Config: cfg})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := log.Appender.Append(t.Context(), opened); err != nil {
		t.Fatal(err)
	}
}

// limit is what a run's stream may hold.
func limit(t *testing.T, log *eventlog.Log, run string) int64 {
	t.Helper()
	_, most, err := log.Size(t.Context(), run)
	if err != nil {
		t.Fatal(err)
	}
	return most
}

// TestSizeOfALog: a run's stream is as large as the run says, also where it is made again: from the
// archive, and after its settings were lost.
func TestSizeOfALog(t *testing.T) {
	log := natstest.Log(t)
	openSized(t, log, "small", 64<<20)
	openSized(t, log, "large", 8<<30)
	openSized(t, log, "usual", 0)
	for run, want := range map[string]int64{"small": 64 << 20, "large": 8 << 30, "usual": 2 << 30} {
		if got := limit(t, log, run); got != want {
			t.Errorf("the stream of run %s may hold %d bytes, want %d", run, got, want)
		}
	}
	sealed, err := log.Appender.Seal(t.Context(), "large", true)
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Streams.DeleteRun(t.Context(), "large"); err != nil {
		t.Fatal(err)
	}
	if _, err := recovery.Restore(t.Context(), log, "large", sealed, nil); err != nil {
		t.Fatal(err)
	}
	if got := limit(t, log, "large"); got != 8<<30 {
		t.Errorf("restored it may hold %d bytes", got)
	}
	stream, err := log.JetStream().Stream(t.Context(), events.RunStream("large"))
	if err != nil {
		t.Fatal(err)
	}
	cfg := stream.CachedInfo().Config
	cfg.MaxBytes = 2 << 30
	if _, err := log.JetStream().UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := log.Streams.FitRun(t.Context(), "large"); err != nil || limit(t, log, "large") != 8<<30 {
			t.Errorf("fitted it may hold %d bytes, %v", limit(t, log, "large"), err)
		}
	}
}

// TestNoRoomForALog: a server that cannot reserve what a run wants says so, and makes nothing.
func TestNoRoomForALog(t *testing.T) {
	log := natstest.Log(t)
	fill(t, log)
	err := log.Streams.EnsureRunFor(t.Context(), "r", runfile.Log{MaxBytes: 8 << 30})
	if !errors.Is(err, eventlog.ErrNoRoom) {
		t.Errorf("%v, want ErrNoRoom", err)
	}
	if _, err := log.Incarnation(t.Context(), "r"); !errors.Is(err, eventlog.ErrNotFound) {
		t.Errorf("the stream is there: %v", err)
	}
	if err := log.Streams.EnsureRunFor(t.Context(), "r", runfile.Log{MaxBytes: 64 << 20}); err != nil {
		t.Errorf("a smaller one: %v", err)
	}
}

// fill reserves what the embedded server has, but for a GiB.
func fill(t *testing.T, log *eventlog.Log) {
	t.Helper()
	account, err := log.JetStream().AccountInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cfg := jetstream.StreamConfig{Name: "OTHER", Subjects: []string{"other"},
		MaxBytes: 1<<50 - int64(account.ReservedStore) - 1<<30}
	if _, err := log.JetStream().CreateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
}
