package archiver

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline"
)

// killed is an archiver that is stopped at some moment and started again.
type killed struct {
	t     *testing.T
	log   *eventlog.Log
	stop  context.CancelFunc
	ended chan error
}

func (k *killed) start() {
	ctx, stop := context.WithCancel(k.t.Context())
	k.stop, k.ended = stop, make(chan error, 1)
	env := pipeline.Env{Log: k.log, Dir: k.t.TempDir(), Logger: slog.New(slog.DiscardHandler),
		Metrics: prometheus.NewRegistry(), Instance: "a"}
	go func() { k.ended <- Run(ctx, env) }()
}

func (k *killed) kill() {
	k.stop()
	if err := <-k.ended; err != nil {
		k.t.Error(err)
	}
}

// TestRunOfManyTimesItsStream: a run's history is twenty times as long as its stream,
// while the archiver is killed again and again, and is read whole. RONDO_LONG_KILLS=1
// makes it 6 GiB on 64 MiB.
func TestRunOfManyTimesItsStream(t *testing.T) {
	size, body, times := runfile.Size(3<<20), 24<<10, 20
	if os.Getenv("RONDO_LONG_KILLS") != "" {
		size, body, times = 64<<20, 96<<10, 96
	}
	natstest.Virtual(t, func(t *testing.T) {
		log := natstest.LogWithDisk(t)
		cfg := runfile.DefaultRunConfig()
		cfg.Log.MaxBytes, cfg.Log.Keep = size, runfile.KeepOpen
		open(t, log, "r", cfg)
		var digests [][sha256.Size]byte
		total := 0
		put := func(typ events.Type, entity, ordinal string, prev uint64, data any) uint64 {
			t.Helper()
			e, err := events.New("r", typ, entity, ordinal, data)
			if err != nil {
				t.Fatal(err)
			}
			e.Prev = prev
			if typ.Routed() {
				e.Route = "pool-shell"
			}
			stored, _, err := log.Appender.Append(t.Context(), e)
			if err != nil {
				t.Fatalf("after %d bytes: %v", total, err)
			}
			total += len(e.Data)
			for uint64(len(digests)) < stored.Seq { // the archiver's own events stand between
				digests = append(digests, [sha256.Size]byte{})
			}
			digests[stored.Seq-1] = sha256.Sum256(e.Data)
			return stored.Seq
		}
		a := &killed{t: t, log: log}
		a.start()
		groups := 0
		for ; total < times*int(size); groups++ {
			var tails []uint64
			id := func(i int) string { return events.RolloutID(events.GroupID(int64(groups+1)), i) }
			for i := range 4 {
				tails = append(tails, put(events.RolloutStartedType, id(i), "0", 0,
					events.RolloutStarted{Group: events.GroupID(int64(groups + 1)), Member: i}))
			}
			for turn := range int(size) / body / 32 {
				for i := range tails {
					text := strings.Repeat(fmt.Sprintf("%x", sha256.Sum256(fmt.Append(nil, groups, turn, i))), body/64)
					tails[i] = put(events.TurnSampledType, id(i), events.Ordinal(turn), tails[i],
						events.TurnSampled{Turn: turn, Content: text})
				}
			}
			for i := range tails {
				put(events.RolloutScoredType, id(i), "0", tails[i], events.RolloutScored{Reward: 1})
			}
			time.Sleep(time.Duration(1+groups%7) * time.Second)
			if groups%3 == 0 {
				a.kill()
				a.start()
			}
			full(t, log)
		}
		a.kill()
		read := 0
		for e, err := range log.All(t.Context(), "r", 1) {
			if err != nil {
				t.Fatal(err)
			}
			if read++; e.Seq != uint64(read) {
				t.Fatalf("%s at %d comes as number %d", e.ID, e.Seq, read)
			}
			own := e.Type == events.LogPurgedType || e.Type == events.RunOpenedType
			if !own && sha256.Sum256(e.Data) != digests[e.Seq-1] {
				t.Fatalf("%s at %d is not what was recorded", e.ID, e.Seq)
			}
		}
		if read < len(digests) {
			t.Errorf("%d of %d events", read, len(digests))
		}
		if last, err := log.LastOfType(t.Context(), "r", events.LogPurgedType, "r"); err != nil {
			t.Errorf("nothing says that events have left the stream: %v", err)
		} else if said, err := events.Data[events.LogPurged](last); err != nil || said.Events == 0 {
			t.Errorf("%+v, %v", said, err)
		}
		sealed, err := log.Segments(t.Context(), "r")
		if err != nil {
			t.Fatal(err)
		}
		if findings, err := log.Archive.Verify(t.Context(), "r", sealed); err != nil || len(findings) > 0 {
			t.Errorf("%v: %v", err, findings)
		}
	})
}

// full waits until the stream has room for another group, as the sampler does.
func full(t *testing.T, log *eventlog.Log) {
	t.Helper()
	for range 120 {
		fill, err := log.Fill(t.Context(), "r")
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if fill < eventlog.PurgeAt {
			return
		}
		time.Sleep(time.Second)
	}
	t.Fatal("nothing has left the stream in two minutes")
}
