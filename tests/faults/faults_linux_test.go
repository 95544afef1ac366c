package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sys/unix"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/retry"
	"github.com/rondo-rl/rondo/storage/dir"
	"github.com/rondo-rl/rondo/tests/mill"
	"github.com/rondo-rl/rondo/tests/nightly"
	"github.com/rondo-rl/rondo/tests/power/forgetful"
	"github.com/rondo-rl/rondo/tests/program"
	"github.com/rondo-rl/rondo/tests/smalldisk"
)

// The kinds of faults.
const (
	faultKill     = "kill"     // the process, at the first event of some types
	faultRepeat   = "repeat"   // inputs come again though their events are on the log, at once or later
	faultStore    = "store"    // it is slow, fails, or fails after success
	faultWire     = "wire"     // the line to the log breaks
	faultDisk     = "disk"     // it is full for a while in the middle of the run
	faultOpening  = "opening"  // it is full while the run's stream is made
	faultReadOnly = "readonly" // it takes no writes for a while, as behind an error
	faultSlow     = "slow"     // its syncs are slow for a while
	// the process stands still, and a second one for longer than it may decide:
	// their clocks have jumped
	faultPause    = "pause"
	faultHostile  = "hostile"  // outsiders submit nonsense
	faultOverload = "overload" // outsiders submit ten times as much as the plane takes
)

var kinds = []string{faultKill, faultRepeat, faultStore, faultWire, faultDisk, faultOpening, faultPause, faultHostile,
	faultOverload, faultReadOnly, faultSlow}

// types are what a process may be killed at, in the order of a run.
var types = []events.Type{
	events.RunOpenedType, events.GroupOpenedType, events.RolloutStartedType, events.RolloutFinishedType,
	events.RolloutScoredType, events.GroupCompletedType,
	events.BatchReadyType, events.BatchConsumedType, events.RunClosedType,
}

const steps = 3

// TestFaults runs one plane for each seed. Each kind of fault is the first one of some seed;
// others join it by chance.
func TestFaults(t *testing.T) {
	nightly.Only(t)
	for _, seed := range seeds(t, len(kinds)) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel() // they wait most of the time
			chance := rand.New(rand.NewPCG(seed, 1))
			faults := draw(seed, chance)
			t.Logf("seed %d: %v", seed, faults)
			newTrial(t, seed, faults, chance).try()
		})
	}
}

// apart are faults of which a seed has one at most: a disk is small or has moods, and a flood of
// inputs whose store fails, each of which rests longer each time, takes longer than a test.
var apart = [][2][]string{{{faultDisk, faultOpening}, {faultReadOnly, faultSlow}}, {{faultStore}, {faultOverload}}}

// draw gives a seed's faults.
func draw(seed uint64, chance *rand.Rand) []string {
	faults := []string{kinds[seed%uint64(len(kinds))]}
	for _, k := range kinds {
		if k == faults[0] || seed < uint64(len(kinds)) || chance.IntN(5) > 0 {
			continue
		}
		if !slices.ContainsFunc(apart, func(sides [2][]string) bool {
			return slices.Contains(sides[0], k) && overlap(faults, sides[1]) ||
				slices.Contains(sides[1], k) && overlap(faults, sides[0])
		}) {
			faults = append(faults, k)
		}
	}
	return faults
}

func overlap(a, b []string) bool {
	return slices.ContainsFunc(a, func(s string) bool { return slices.Contains(b, s) })
}

// trial is one plane with its faults.
type trial struct {
	t      *testing.T
	orders orders
	chance *rand.Rand
	log    *eventlog.Log
	disk   *forgetful.Disk // nil where it has no moods

	mu     sync.Mutex
	plane  *exec.Cmd
	gone   chan struct{} // closed when the plane's process has ended
	second *exec.Cmd     // nil where nothing pauses
	said   *os.File      // by both
}

func newTrial(t *testing.T, seed uint64, faults []string, chance *rand.Rand) *trial {
	t.Helper()
	tr := &trial{t: t, chance: chance, orders: orders{Seed: seed, Faults: faults, Run: run,
		Listen: fmt.Sprintf("127.0.0.1:%d", natstest.FreePorts(t, 1)[0])}}
	switch {
	case tr.orders.has(faultDisk) || tr.orders.has(faultOpening):
		tr.orders.Dir = smalldisk.Mount(t, "64m")
	case tr.orders.has(faultReadOnly) || tr.orders.has(faultSlow):
		tr.orders.Dir = tr.moodyDisk()
	default:
		tr.orders.Dir = t.TempDir()
	}
	var err error
	if tr.said, err = os.OpenFile(filepath.Join(t.TempDir(), "said"),
		os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		defer tr.said.Close()
		tr.kill()
		if tr.second != nil {
			_ = tr.second.Process.Kill()
			_ = tr.second.Wait()
		}
		if t.Failed() {
			text, err := os.ReadFile(tr.said.Name())
			t.Logf("the plane of seed %d said:\n%s%v", seed, text[max(0, len(text)-6000):], err)
		}
	})
	tr.start()
	if tr.orders.has(faultPause) {
		other := tr.orders
		other.Second = true
		if tr.second, err = tr.launch(other); err != nil {
			t.Fatal(err)
		}
	}
	nc, err := nats.Connect("nats://"+tr.orders.Listen, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond),
		nats.RetryOnFailedConnect(true))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	store, err := dir.Open(filepath.Join(tr.orders.Dir, "objects"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	if tr.log, err = eventlog.New(nc, store); err != nil {
		t.Fatal(err)
	}
	program.Eventually(t, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		return tr.log.Streams.Await(ctx)
	})
	return tr
}

func (tr *trial) start() {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.startLocked()
}

func (tr *trial) startLocked() {
	plane, err := tr.launch(tr.orders)
	if err != nil {
		tr.t.Error(err)
		return
	}
	gone := make(chan struct{})
	tr.plane, tr.gone = plane, gone
	tr.orders.Life++
	go func() {
		_ = plane.Wait()
		close(gone)
		tr.supervise(plane)
	}()
}

// supervise starts a plane again that has ended by itself, where its disk takes no writes: Pebble
// ends the process that cannot sync a folder.
func (tr *trial) supervise(ended *exec.Cmd) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if tr.plane == ended && tr.orders.has(faultReadOnly) {
		tr.t.Log("the plane has ended by itself")
		tr.startLocked()
	}
}

// launch starts a process.
func (tr *trial) launch(o orders) (*exec.Cmd, error) {
	words, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestPlane$", "-test.timeout=20m")
	cmd.Env = append(os.Environ(), ordersVariable+"="+string(words))
	cmd.Stderr = tr.said
	if _, err := cmd.StdinPipe(); err != nil { // it ends with this process
		return nil, err
	}
	return cmd, cmd.Start()
}

func (tr *trial) kill() {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if plane := tr.plane; plane != nil {
		tr.plane = nil
		_ = plane.Process.Kill()
		<-tr.gone
	}
}

// try opens the run, lets the faults happen and judges the run when it has ended.
func (tr *trial) try() {
	t := tr.t
	ctx, stop := context.WithTimeout(t.Context(), 3*program.Patience) // many faults take their time one after the other
	defer stop()
	free := func() {}
	if tr.orders.has(faultOpening) {
		free = smalldisk.Fill(t, tr.orders.Dir)
	}
	opened := make(chan error, 1)
	go func() { opened <- mill.Open(ctx, tr.log, run, steps) }()
	if tr.orders.has(faultOpening) {
		tr.refused(ctx)
		free()
	}
	if err := <-opened; err != nil {
		t.Fatalf("the run does not open: %v", err)
	}
	if err := tr.disturb(ctx); err != nil {
		waits, lookErr := mill.Ended(ctx, tr.log, run)
		t.Fatalf("the run does not end: %s: %v", waits, errors.Join(err, lookErr))
	}
	program.Eventually(t, func() error {
		looking, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		waits, err := mill.Ended(looking, tr.log, run)
		if err == nil && waits != "" {
			err = errors.New(waits)
		}
		return err
	})
	program.Eventually(t, func() error { // a fault at the last event may go on
		looking, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		return tr.log.Streams.Await(looking)
	})
	for { // a question is lost where the log is opened again meanwhile
		looking, cancel := context.WithTimeout(ctx, program.Patience/3)
		err := tr.judge(looking)
		lost := looking.Err() != nil && ctx.Err() == nil
		cancel()
		if lost {
			continue
		}
		if err != nil {
			t.Error(err)
		}
		return
	}
}

// judge holds the run to what Rondo promises, and finds what was given up.
func (tr *trial) judge(ctx context.Context) error {
	err := mill.Judge(ctx, tr.log, run, steps)
	for e, readErr := range tr.log.All(ctx, events.Catalogue, 1) {
		if readErr != nil {
			return errors.Join(err, readErr)
		}
		if e.Type == events.DeadLetteredType && !tr.orders.has(faultHostile) &&
			!bytes.Contains(e.Data, []byte(events.RolloutAnnotatedType.Name())) {
			err = errors.Join(err, fmt.Errorf("given up: %s", e.Data))
		}
	}
	return err
}

// disturb lets faults happen while the run goes on, until it is closed. Between faults it waits no
// longer than program.Patience.
func (tr *trial) disturb(ctx context.Context) error {
	at := map[events.Type]func(){}
	for _, fault := range []struct {
		kind string
		n    int
		do   func()
	}{
		{faultKill, 3, func() { tr.kill(); tr.start() }}, {faultDisk, 1, func() { tr.full(ctx) }},
		{faultPause, 2, func() { tr.pause(ctx) }}, {faultHostile, 3, func() { tr.hostile(ctx) }},
		{faultOverload, 1, func() { tr.overload(ctx) }}, {faultReadOnly, 1, func() { tr.readOnly(ctx) }},
		{faultSlow, 2, func() { tr.slow(ctx) }},
	} {
		if !tr.orders.has(fault.kind) {
			continue
		}
		for _, typ := range tr.moments(fault.kind, fault.n) {
			before := at[typ]
			at[typ] = func() {
				if before != nil {
					before()
				}
				fault.do()
			}
		}
	}
	following, cancel := context.WithCancel(ctx)
	defer cancel()
	patience := time.AfterFunc(program.Patience, cancel)
	defer patience.Stop()
	errOver := errors.New("over")
	err := tr.log.Follow(following, run, 1, "", func(e events.Event) error {
		if do := at[e.Type]; do != nil {
			delete(at, e.Type)
			tr.t.Logf("at %s", e.Type)
			patience.Stop()
			do()
			patience.Reset(program.Patience)
		}
		if e.Type == events.RunClosedType {
			return errOver
		}
		return nil
	})
	if errors.Is(err, errOver) {
		return nil
	}
	return err
}

// moments are at which events a fault happens: n that chance takes. A plane whose first fault is to
// be killed is killed at every event; that of the first seed only where most is in work, as each
// kill takes until the server delivers again what was in work.
func (tr *trial) moments(kind string, n int) (at []events.Type) {
	switch {
	case kind == faultOverload:
		return []events.Type{events.BatchConsumedType} // some rollouts are over
	case kind != faultKill || tr.orders.Faults[0] != faultKill:
		for _, i := range tr.chance.Perm(len(types))[:n] {
			at = append(at, types[i])
		}
		return at
	case tr.orders.Seed == 0:
		return []events.Type{events.RolloutStartedType, events.RolloutFinishedType, events.BatchReadyType}
	}
	return types
}

// pause stops the plane for some time, and the second process for longer than a lease lasts: the
// plane decides then, until the other comes back.
func (tr *trial) pause(ctx context.Context) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	still(ctx, tr.plane, time.Duration(tr.chance.Int64N(int64(2*time.Second))))
	still(ctx, tr.second, 11*time.Second+time.Duration(tr.chance.Int64N(int64(2*time.Second))))
}

// still lets a process stand still.
func still(ctx context.Context, process *exec.Cmd, wait time.Duration) {
	_ = process.Process.Signal(unix.SIGSTOP)
	retry.Sleep(ctx, wait)
	_ = process.Process.Signal(unix.SIGCONT)
}
