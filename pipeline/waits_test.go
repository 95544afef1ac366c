package pipeline

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/health"
	"github.com/rondo-rl/rondo/storage/projection"
)

// TestWaits: a run waits whose input is parked, or has any in work while the process cannot store
// what it does. One that waits for what its process finds well waits for something of its own,
// and soon counts no more.
func TestWaits(t *testing.T) {
	now := time.Now()
	var w inWork
	for run, kind := range map[string]health.Kind{"works": "", "full": health.LogRefusesWrites, "room": health.DiskFull,
		"file": health.DiskFails, "waits": health.StoreUnreachable} {
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
	full := health.Outage{Kind: health.LogRefusesWrites, Of: events.RunStream("full"), Since: now}
	other := health.Outage{Kind: health.LogRefusesWrites, Of: events.RunStream("other"), Since: now}
	dead := health.Outage{Kind: health.LogRefusesWrites, Of: events.DeadStream, Since: now}
	for _, c := range []struct {
		after time.Duration
		known []health.Outage
		held  health.Outage
		want  []string
	}{
		{time.Second, nil, health.Outage{}, []string{"file", "full", "room", "waits"}},
		{time.Hour, nil, health.Outage{}, nil},
		{time.Hour, []health.Outage{other, full}, health.Outage{}, []string{"full"}},
		{time.Hour, []health.Outage{other, dead}, health.Outage{}, []string{"full"}},
		{time.Hour, []health.Outage{out}, out, []string{"file", "full", "retried", "room", "waits", "works"}},
	} {
		if got := slices.Sorted(maps.Keys(w.waits(now.Add(c.after), c.known, c.held))); !slices.Equal(got, c.want) {
			t.Errorf("after %s, with %v known: %v wait, want %v", c.after, c.known, got, c.want)
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

// TestStopIsExcused: a decider that begins behind a time in which nothing came onto the log states
// that before it decides, where there is anything whose time counts.
func TestStopIsExcused(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		log := natstest.Log(t)
		openRun(t, log, testRun)
		env := testEnv(t, log, "a")
		d := Deciding{Name: topology.AdvantageCalculator,
			New: func(string, runfile.RunConfig) (map[string]Decider, error) {
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
		found := waits() // the first one is of the time until the group was opened
		if len(found) != 2 || found[1].Entity != events.EveryStage ||
			found[1].Source != "runtime/"+topology.AdvantageCalculator || e.AsOf != found[1].Seq {
			t.Fatalf("decided as of %d behind %+v", e.AsOf, found)
		}
		waited, err := events.Data[events.StageWaited](found[1])
		if err != nil || time.Since(waited.Since) < 8*time.Hour || !waited.Until.After(time.Now()) {
			t.Errorf("%+v, %v", waited, err)
		}
		s.end(t)
		if checked, differences := verify(t, log, keeper{}); checked != 2 || len(differences) > 0 {
			t.Errorf("%d decisions made again: %v", checked, differences)
		}
	})
}

// silences are those that the log tells of, the newest first, each with the statement as its end.
func silences(t *testing.T, log *eventlog.Log) (stated []silence) {
	t.Helper()
	for e, err := range log.All(t.Context(), testRun, 1) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Type != events.StageWaitedType {
			continue
		}
		waited, err := events.Data[events.StageWaited](e)
		if err != nil {
			t.Fatal(err)
		}
		stated = append([]silence{{waited.Span(), e.Seq}}, stated...)
	}
	return stated
}

// TestSilenceIsExcused: a decider that begins states the times in which nothing came onto the log
// since somebody last decided, although others were faster to write when the log was back.
func TestSilenceIsExcused(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		log := natstest.Log(t)
		openRun(t, log, testRun)
		env := testEnv(t, log, "a")
		d := Deciding{Name: topology.AdvantageCalculator,
			New: func(string, runfile.RunConfig) (map[string]Decider, error) {
				return map[string]Decider{"": keeper{}}, nil
			}}
		time.Sleep(time.Hour) // before anybody decided
		openGroup(t, log, 1, "now")
		s := deciding(t, env, d)
		answer(t, log, 1)
		s.end(t)
		before := silences(t, log)
		openGroup(t, log, 2, time.Now().Add(time.Hour).Format(time.RFC3339Nano))
		away := time.Now()
		time.Sleep(10 * time.Minute)
		openGroup(t, log, 3, "now")
		time.Sleep(5 * time.Second)
		back := time.Now()
		s = deciding(t, env, d)
		e := answer(t, log, 3)
		s.end(t)
		found := silences(t, log)
		if len(found) != len(before)+1 {
			t.Fatalf("%v behind %v", found, before)
		}
		if said := found[0]; said.Since.After(away) || said.Until.Before(back) ||
			said.Until.Sub(said.Since) > 12*time.Minute || e.AsOf < said.end {
			t.Errorf("away from %s to %s, %+v is stated, and decided as of %d", away, back, said, e.AsOf)
		}
		s = deciding(t, env, d)
		openGroup(t, log, 4, "now")
		answer(t, log, 4)
		s.end(t)
		if again := silences(t, log); len(again) != len(found) {
			t.Errorf("stated again: %v", again)
		}
	})
}
