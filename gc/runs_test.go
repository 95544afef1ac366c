package gc_test

import (
	"slices"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/gc"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestDefaultRetention: without a file the archived streams of closed runs go, but for young ones and the newest, and nothing else does. What came behind a closing is archived first.
func TestDefaultRetention(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		log, policy := natstest.Log(t), gc.DefaultPolicy()
		policy.KeepStreams = 1
		for _, run := range []string{"open", "late", "plain", "newest"} {
			servicetest.OpenRun(t, log, run, servicetest.Config("a"))
			servicetest.StartRollout(t, log, run, "g000001-0", "a")
		}
		for _, run := range []string{"late", "plain", "newest"} {
			servicetest.CloseRun(t, log, run)
			if _, err := log.Seal(t.Context(), run, true); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		late := servicetest.Append(t, log, servicetest.Event(t, "late", events.RolloutAnnotatedType, "g000001-0", "late", events.RolloutAnnotated{Text: "much later"}))
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
		if r := retain(false); len(r.Runs) != 2 || r.Runs[0].Kept == "" || r.Runs[1].Kept != "" {
			t.Errorf("it would remove %+v", r.Runs)
		}
		if r := retain(true); len(r.Runs) != 2 || !r.Runs[0].Deleted || !r.Runs[1].Deleted || len(r.Forgotten)+len(r.Weights)+len(r.Kinds) > 0 {
			t.Errorf("it removes %+v", r)
		}
		runs, err := log.Runs(t.Context())
		if slices.Sort(runs); err != nil || !slices.Equal(runs, []string{"newest", "open"}) {
			t.Errorf("the streams of %v are left, %v", runs, err)
		}
		if all := servicetest.All(t, log, "late"); len(all) != int(late.Seq) || all[late.Seq-1].ID != late.ID {
			t.Errorf("the archive of the run that grew behind its closing has %v", servicetest.IDs(all))
		}
		if _, err := log.Store().Stat(t.Context(), "blobs/00/left-over"); err != nil {
			t.Error(err)
		}
	})
}
