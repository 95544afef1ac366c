package power

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rondo-rl/rondo/audit"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/embedded"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/services/advantagecalculator"
	"github.com/rondo-rl/rondo/services/intake"
	"github.com/rondo-rl/rondo/services/querysampler"
	"github.com/rondo-rl/rondo/services/trainerfeeder"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/dir"
)

// orders are what a plane's process is told when it starts, in its environment.
type orders struct {
	Dir      string
	Interval time.Duration // between syncs of the log; 0 is always
	Life     int
	Known    string // the file of what was answered in earlier lives
	Settle   bool   // wait until all that was begun has ended, and end
}

const ordersVariable = "RONDO_TEST_POWER"

// said is a line of a plane's process: an answer that it got, or what it found of earlier ones.
type said struct {
	// Answered is a fact that the intake has answered; Opened, that it opened a run.
	Answered *answer `json:",omitempty"`
	// Checked is said once, before the first answer.
	Checked *findings `json:",omitempty"`
	// Settled is said at the end of a life that was to settle.
	Settled bool `json:",omitempty"`
}

// answer is what an outsider was told.
type answer struct {
	Run string
	ID  string
	Seq uint64
	At  time.Time
	// Opens: the fact opened its run.
	Opens bool
}

// findings are what does not hold of what was answered.
type findings struct {
	// Lost are facts that are not on the log, as indexes of the known answers.
	Lost []int
	// Broken are findings in words.
	Broken []string
}

// TestPlane is no test of its own: it is the process that the power is cut from.
func TestPlane(t *testing.T) {
	text := os.Getenv(ordersVariable)
	if text == "" {
		t.Skip("the process that TestPowerCuts starts")
	}
	var o orders
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	if err := live(t.Context(), o); err != nil {
		fmt.Fprintln(os.Stderr, err) // standard output has the lines that are read
		os.Exit(1)
	}
}

// voice prints lines whole.
type voice struct{ mu sync.Mutex }

func (v *voice) say(s said) {
	v.mu.Lock()
	defer v.mu.Unlock()
	_ = json.NewEncoder(os.Stdout).Encode(s)
}

// live is a life of the plane, from its start to the cut.
func live(ctx context.Context, o orders) error {
	store, err := dir.Open(filepath.Join(o.Dir, "objects"))
	if err != nil {
		return err
	}
	server, err := embedded.Start(embedded.Options{Dir: filepath.Join(o.Dir, "nats"), SyncInterval: o.Interval,
		Streams: eventlog.StreamSettings})
	if err != nil {
		return err
	}
	for _, stream := range server.Mended() {
		fmt.Fprintln(os.Stderr, "mended", stream)
	}
	conn, err := server.Connect()
	if err != nil {
		return err
	}
	options := []eventlog.Option{eventlog.Persisted(server.Persist)}
	if server.SyncsLater() {
		options = append(options, eventlog.Uncompressed())
	}
	log, err := eventlog.New(conn, store, options...)
	if err != nil {
		return err
	}
	if err := log.Streams.Ensure(ctx); err != nil {
		return err
	}
	p := &plane{log: log, voice: &voice{}, life: o.Life, rng: rand.New(rand.NewPCG(uint64(o.Life), uint64(o.Interval)))}
	known, err := readKnown(o.Known)
	if err != nil {
		return err
	}
	found, err := p.check(ctx, known)
	if err != nil {
		return err
	}
	p.voice.say(said{Checked: &found})
	work, ctx := errgroup.WithContext(ctx)
	for _, service := range []func(context.Context, pipeline.Env) error{
		intake.Run, querysampler.Run, advantagecalculator.Run, trainerfeeder.Run,
		p.effect(topology.Generator, events.RolloutStartedType, p.generate),
		p.effect(topology.Scorer, events.RolloutFinishedType, p.score),
	} {
		work.Go(func() error {
			return service(ctx, pipeline.Env{
				Log: log, Dir: filepath.Join(o.Dir, "state"), Instance: "test",
				Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
			})
		})
	}
	if o.Settle {
		if err := p.settle(ctx, known); err != nil {
			return err
		}
		p.voice.say(said{Settled: true})
		os.Exit(0) // the services need not end well
	}
	work.Go(func() error { return p.outsiders(ctx, known) })
	return work.Wait()
}

func readKnown(name string) ([]answer, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var known []answer
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var a answer
		if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
			return nil, err
		}
		known = append(known, a)
	}
	return known, lines.Err()
}

// plane is the plane of one life.
type plane struct {
	log   *eventlog.Log
	voice *voice
	life  int
	rng   *rand.Rand
}

// check looks for what was answered, and proves the runs of the last lives.
func (p *plane) check(ctx context.Context, known []answer) (f findings, err error) {
	for i, a := range known {
		e, err := p.log.Event(ctx, a.Run, a.Seq)
		if err != nil && !errors.Is(err, eventlog.ErrNotFound) {
			return f, err
		}
		if err != nil || e.ID != a.ID {
			f.Lost = append(f.Lost, i)
		}
		if !a.Opens {
			continue
		}
		if _, err := p.log.Config(ctx, a.Run); err != nil {
			f.Broken = append(f.Broken, fmt.Sprintf("run %s was answered as open, and does not open: %v", a.Run, err))
		}
		if _, err := p.log.Last(ctx, events.Catalogue, events.RunOpenedType.Kind(), a.Run); err != nil {
			f.Broken = append(f.Broken, fmt.Sprintf("run %s was answered as open, and is not in the catalogue: %v",
				a.Run, err))
		}
	}
	for _, run := range lastOpened(known, openRuns) {
		report, err := audit.Check(ctx, p.log.Reader, run)
		if err != nil {
			f.Broken = append(f.Broken, fmt.Sprintf("audit of run %s: %v", run, err))
		}
		for _, finding := range report.Findings {
			f.Broken = append(f.Broken, fmt.Sprintf("audit of run %s: %s", run, finding))
		}
	}
	return f, nil
}

// outsiders close old runs, open new ones, and send queries to them, until the power is cut.
func (p *plane) outsiders(ctx context.Context, known []answer) error {
	old := lastOpened(known, 3*openRuns)
	for _, run := range old[:max(0, len(old)-openRuns)] {
		if _, err := p.log.Submitter.Submit(ctx, eventlog.Submission{Run: run, Type: events.RunClosedType, Entity: run,
			Data: events.RunClosed{}, ID: "close"}); err != nil {
			return err
		}
	}
	for n := 0; ; n++ {
		run := fmt.Sprintf("life-%d-%d", p.life, n)
		if err := p.open(ctx, run); err != nil {
			return err
		}
		work, life := errgroup.WithContext(ctx)
		for user := range 2 {
			work.Go(func() error { return p.user(life, run, user) })
		}
		if err := work.Wait(); err != nil {
			return err
		}
	}
}

const taskName = "task"

func (p *plane) open(ctx context.Context, run string) error {
	snapshot, err := storage.PutBlob(ctx, p.log.Store(), []byte("the snapshot of "+run))
	if err != nil {
		return err
	}
	cfg := runfile.DefaultRunConfig()
	cfg.Policy, cfg.Endpoint, cfg.GroupSize, cfg.MinVerifier = "policy", runfile.BuiltinEndpoint, 2,
		runfile.VerifierUnguarded
	cfg.Features, cfg.Traffic = []string{runfile.FeatureUserTraffic}, runfile.Traffic{Rate: 1}
	cfg.Feeds = []runfile.Feed{{Name: "trainer", GroupsPerBatch: 2, Ranks: 1}}
	cfg.InFlight, cfg.Staleness = 0, runfile.Staleness{Max: 20, Policy: runfile.StaleKeep}
	cfg.Tasks = []runfile.TaskSpec{{
		Name: taskName, Digest: "sha256:" + taskName, Workdir: "/app", VerifierTimeout: runfile.Duration(time.Minute),
		Snapshot: snapshot, Tests: snapshot,
		// at times too much for an event: its body goes to the store
		Instruction: strings.Repeat("Do it well. ", p.rng.IntN(2)*20_000),
	}}
	return p.submit(ctx, eventlog.Submission{Run: run, Type: events.RunOpenedType, Entity: run,
		Data: events.RunOpened{Config: cfg}, ID: "open"}, true)
}

// user sends a run's queries.
func (p *plane) user(ctx context.Context, run string, user int) error {
	for i := range 40 {
		words := 10
		if i%4 == 3 {
			words = 10_000 // blocks of the log fill up
		}
		q := events.QuerySubmitted{Instruction: strings.Repeat("mend it, ", words), Task: taskName, Verify: true,
			Session: "s", Consent: true}
		entity := fmt.Sprintf("%s%d-%d", events.QueryPrefix, user, i)
		if err := p.submit(ctx, eventlog.Submission{Run: run, Type: events.QuerySubmittedType, Entity: entity, Data: q,
			ID: entity}, false); err != nil {
			return err
		}
	}
	return nil
}

func (p *plane) submit(ctx context.Context, s eventlog.Submission, opens bool) error {
	a, err := p.log.Submitter.Submit(ctx, s)
	if err != nil {
		return err
	}
	p.voice.say(said{Answered: &answer{Run: s.Run, ID: a.ID, Seq: a.Sequence, At: time.Now(), Opens: opens}})
	return nil
}
