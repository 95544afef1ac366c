package gc_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/gc"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestDefaultRetention: without a file the archived streams of closed runs go, but for young ones
// and the newest, and nothing else does. What came behind a closing is archived first.
func TestDefaultRetention(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		log, policy := natstest.Log(t), gc.DefaultPolicy()
		policy.KeepStreams, policy.Unread = 1, policy.Streams+runfile.Duration(time.Hour)
		for _, run := range []string{"open", "unread", "late", "plain", "newest"} {
			servicetest.OpenRun(t, log, run, servicetest.Config("a"))
			servicetest.StartRollout(t, log, run, "g000001-0", "a")
		}
		servicetest.Append(t, log, servicetest.Event(t, "unread", events.BatchReadyType, "trainer",
			"1", events.BatchReady{Step: 1}))
		for _, run := range []string{"unread", "late", "plain", "newest"} {
			servicetest.CloseRun(t, log, run)
			if _, err := log.Appender.Seal(t.Context(), run, true); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		late := servicetest.Append(t, log, servicetest.Event(t, "late", events.RolloutAnnotatedType, "g000001-0",
			"late", events.RolloutAnnotated{Text: "much later"}))
		if err := log.Store().Put(t.Context(), "blobs/00/left-over", []byte("nothing refers to it")); err != nil {
			t.Fatal(err)
		}
		retain := func(remove bool) gc.Report {
			t.Helper()
			r, err := gc.Retain(t.Context(), log, policy, &gc.Collector{}, remove)
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		if r := retain(true); len(r.Runs) > 0 {
			t.Errorf("of young runs: %+v", r.Runs)
		}
		time.Sleep(time.Duration(policy.Streams))
		if r := retain(false); len(r.Runs) != 3 || r.Runs[1].Kept == "" || r.Runs[2].Kept != "" {
			t.Errorf("it would remove %+v", r.Runs)
		}
		if r := retain(true); len(r.Runs) != 3 ||
			!strings.Contains(r.Runs[0].Kept, "feed trainer has batches up to step 1") || !r.Runs[1].Deleted ||
			!r.Runs[2].Deleted || len(r.Forgotten)+len(r.Weights)+len(r.Kinds) > 0 {
			t.Errorf("it removes %+v", r)
		}
		runs, err := log.Runs(t.Context())
		if slices.Sort(runs); err != nil || !slices.Equal(runs, []string{"newest", "open", "unread"}) {
			t.Errorf("the streams of %v are left, %v", runs, err)
		}
		if all := servicetest.All(t, log, "late"); len(all) != int(late.Seq) || all[late.Seq-1].ID != late.ID {
			t.Errorf("the archive of the run that grew behind its closing has %v", servicetest.IDs(all))
		}
		if _, err := log.Store().Stat(t.Context(), "blobs/00/left-over"); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Hour)
		if r := retain(true); len(r.Runs) != 1 || !r.Runs[0].Deleted {
			t.Errorf("of a run whose trainer stays away it removes %+v", r)
		}
	})
}

// TestLateFactIsNotDeleted: what is appended to a closed run after its archive was compared with
// its stream, and before the stream goes, keeps the stream.
func TestLateFactIsNotDeleted(t *testing.T) {
	log := natstest.Log(t)
	servicetest.OpenRun(t, log, "r", servicetest.Config("a"))
	servicetest.StartRollout(t, log, "r", "g000001-0", "a")
	servicetest.CloseRun(t, log, "r")
	if _, err := log.Appender.Seal(t.Context(), "r", true); err != nil {
		t.Fatal(err)
	}
	last, err := log.Archive.Deletable(t.Context(), "r")
	if err != nil {
		t.Fatal(err)
	}
	note := func(id string) events.Event {
		return servicetest.Append(t, log, servicetest.Event(t, "r", events.RolloutAnnotatedType, "g000001-0", id,
			events.RolloutAnnotated{Text: "late"}))
	}
	late := note("1")
	if err := log.Streams.DeleteArchived(t.Context(), "r", last); !errors.Is(err, eventlog.ErrNotArchived) {
		t.Errorf("a stream that has grown: %v", err)
	}
	later := note("2") // the stream is shown again
	if later.Seq != late.Seq+1 {
		t.Errorf("it goes on at %d behind %d", later.Seq, late.Seq)
	}
	if _, err := log.Appender.Seal(t.Context(), "r", true); err != nil {
		t.Fatal(err)
	}
	if last, err = log.Archive.Deletable(t.Context(), "r"); err != nil {
		t.Fatal(err)
	}
	if err := log.Streams.DeleteArchived(t.Context(), "r", last); err != nil {
		t.Error(err)
	}
	if all := servicetest.All(t, log, "r"); all[len(all)-1].ID != later.ID {
		t.Errorf("the archive has %v", servicetest.IDs(all))
	}
}
