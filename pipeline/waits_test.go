package pipeline

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/health"
	"github.com/rondo-rl/rondo/storage/projection"
)

// TestWaits: a run waits whose input is parked, or has any in work while the process cannot store what it does. One that waits for a store which answers others waits for its object, and soon
// counts no more.
func TestWaits(t *testing.T) {
	now := time.Now()
	var w inWork
	for run, kind := range map[string]health.Kind{"works": "", "full": health.LogRefusesWrites, "waits": health.StoreUnreachable} {
		input := w.begin(run)
		if kind != "" {
			w.park(input, kind)
		}
	}
	w.end(w.begin("done"))
	retried := w.begin("retried")
	w.park(retried, health.DiskFull)
	w.park(retried, "")
	out := health.Outage{Kind: health.StoreUnreachable, Since: now}
	for _, c := range []struct {
		after time.Duration
		known health.Outage
		want  []string
	}{
		{time.Second, health.Outage{}, []string{"full", "waits"}},
		{time.Hour, health.Outage{}, []string{"full"}},
		{time.Hour, out, []string{"full", "retried", "waits", "works"}},
	} {
		if got := slices.Sorted(maps.Keys(w.waits(now.Add(c.after), c.known))); !slices.Equal(got, c.want) {
			t.Errorf("after %s, with %q known: %v wait, want %v", c.after, c.known.Kind, got, c.want)
		}
	}
}

// keeper is an answerer that keeps the time of open groups.
type keeper struct{ answerer }

func (keeper) Keeps(v projection.View) bool {
	for range projection.Scan[[2]string](v, "open/") {
		return true
	}
	return false
}

// TestStopIsExcused: a decider that begins behind a time in which nothing came onto the log states that before it decides, where there is anything whose time counts.
func TestStopIsExcused(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		log := natstest.Log(t)
		openRun(t, log, testRun)
		env := testEnv(t, log, "a")
		d := Deciding{Name: topology.AdvantageCalculator, New: func(string, runfile.RunConfig) (map[string]Decider, error) {
			return map[string]Decider{"": keeper{}}, nil
		}}
		waits := func() (found []events.Event) {
			for e, err := range log.All(t.Context(), testRun, 1) {
				if err != nil {
					t.Fatal(err)
				}
				if e.Type == events.StageWaitedType {
					found = append(found, e)
				}
			}
			return found
		}
		s := deciding(t, env, d)
		openGroup(t, log, 1, "now")
		answer(t, log, 1)
		s.end(t)
		time.Sleep(8 * time.Hour)
		s = deciding(t, env, d)
		time.Sleep(time.Minute)
		s.end(t)
		if found := waits(); len(found) > 0 {
			t.Errorf("nothing is open, and %+v", found)
		}
		openGroup(t, log, 2, time.Now().Add(time.Hour).Format(time.RFC3339Nano))
		time.Sleep(8 * time.Hour)
		s = deciding(t, env, d)
		e := answer(t, log, 2)
		found := waits()
		if len(found) != 1 || found[0].Entity != events.EveryStage || found[0].Source != "runtime/"+topology.AdvantageCalculator || e.AsOf != found[0].Seq {
			t.Fatalf("decided as of %d behind %+v", e.AsOf, found)
		}
		waited, err := events.Data[events.StageWaited](found[0])
		if err != nil || time.Since(waited.Since) < 8*time.Hour || !waited.Until.After(time.Now()) {
			t.Errorf("%+v, %v", waited, err)
		}
		s.end(t)
		if checked, differences := verify(t, log, keeper{}); checked != 2 || len(differences) > 0 {
			t.Errorf("%d decisions made again: %v", checked, differences)
		}
	})
}
