package archiver

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
)

// brim makes a run whose stream is so full of ended rollouts that the sampler opens nothing more,
// and which is not archived before hours are over.
func brim(t *testing.T, log *eventlog.Log) {
	t.Helper()
	cfg := runfile.DefaultRunConfig()
	cfg.Log.MaxBytes, cfg.Log.Keep, cfg.Log.ArchiveEvery = 2<<20, runfile.KeepOpen, runfile.Duration(24*time.Hour)
	open(t, log, "r", cfg)
	for n := int64(1); ; n++ {
		id, prev := events.RolloutID(events.GroupID(n), 0), uint64(0)
		put := func(typ events.Type, data any) {
			t.Helper()
			e, err := events.New("r", typ, id, "0", data)
			if err != nil {
				t.Fatal(err)
			}
			if e.Prev = prev; typ.Routed() {
				e.Route = "pool-shell"
			}
			stored, _, err := log.Appender.Append(t.Context(), e)
			if err != nil {
				t.Fatal(err)
			}
			prev = stored.Seq
		}
		put(events.RolloutStartedType, events.RolloutStarted{Group: events.GroupID(n)})
		put(events.TurnSampledType, events.TurnSampled{Content: strings.Repeat(fmt.Sprintf("%08d", n), 12<<10)})
		put(events.RolloutScoredType, events.RolloutScored{Reward: 1})
		fill, err := log.Fill(t.Context(), "r")
		if err != nil {
			t.Fatal(err)
		}
		if fill > topology.FullAt {
			return
		}
	}
}

// stated waits until the log says how much has left the stream.
func stated(t *testing.T, log *eventlog.Log) events.LogPurged {
	t.Helper()
	var said events.LogPurged
	for range 600 {
		time.Sleep(time.Second)
		last, err := log.LastOfType(t.Context(), "r", events.LogPurgedType, "r")
		if err != nil {
			continue
		}
		if said, err = events.Data[events.LogPurged](last); err != nil {
			t.Fatal(err)
		}
		if fact, err := log.Archive.PurgedFact(t.Context(), "r"); err == nil && fact == nil {
			return said
		}
	}
	t.Fatalf("nothing says in ten minutes how much has left the stream; the last word is %+v", said)
	return said
}

// TestPurgesWithoutAnAnswer: the server purges, and its answers are lost with the connection. All
// that is over leaves the stream, and the sampler hears of it.
func TestPurgesWithoutAnAnswer(t *testing.T) {
	for _, lost := range []int{1, 5, 40} {
		t.Run(fmt.Sprint(lost), func(t *testing.T) {
			natstest.Virtual(t, func(t *testing.T) {
				server := natstest.Server(t)
				nc, line := natstest.ConnectOver(t, server)
				log, err := eventlog.New(nc, natstest.Store(t))
				if err != nil {
					t.Fatal(err)
				}
				if err := log.Streams.Ensure(t.Context()); err != nil {
					t.Fatal(err)
				}
				brim(t, log)
				line.Lose("stream_purge_response", lost)
				a := &killed{t: t, log: log}
				a.start()
				said := stated(t, log)
				a.kill()
				if bytes, most, err := log.Size(t.Context(), "r"); err != nil || said.Bytes > int64(bytes) ||
					float64(bytes) > eventlog.PurgeAt*float64(most) {
					t.Errorf("it holds %d of %d bytes, and %+v was said: %v", bytes, most, said, err)
				}
				if left := line.Left(); left == lost || lost < 40 && left > 0 {
					t.Errorf("%d of %d answers were not lost", left, lost)
				}
			})
		})
	}
}

// TestPurgedAndNotStated: an archiver that died before it stated what has left is followed by one
// that does, though the stream is not full any more.
func TestPurgedAndNotStated(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		log := natstest.Log(t)
		brim(t, log)
		if _, err := log.Appender.Seal(t.Context(), "r", true); err != nil {
			t.Fatal(err)
		}
		if n, err := log.Archive.PurgeEnded(t.Context(), "r"); err != nil || n == 0 {
			t.Fatalf("%d rollouts, %v", n, err)
		}
		a := &killed{t: t, log: log}
		a.start()
		if said := stated(t, log); said.Events == 0 {
			t.Errorf("%+v", said)
		}
		a.kill()
	})
}
