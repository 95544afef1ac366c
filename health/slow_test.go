package health

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/embedded"
	"github.com/rondo-rl/rondo/events/eventlog"
)

// blind is a monitor that is told what it would have seen.
func blind(t *testing.T, o Options) (*Monitor, *planted) {
	t.Helper()
	o.Logger = slog.New(slog.DiscardHandler)
	m, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	p := plant()
	m.processor = p.Processor
	return m, p
}

// wants wants these outages, each as its kind and words of its reason and its advice.
func (m *Monitor) wants(t *testing.T, when string, outages ...string) {
	t.Helper()
	list := m.Outages()
	for _, want := range outages {
		kind, words, _ := strings.Cut(want, ": ")
		if !slices.ContainsFunc(list, func(o Outage) bool {
			return string(o.Kind) == kind &&
				strings.Contains(o.String(), words)
		}) {
			t.Errorf("%s: %s is not known of %v", when, want, list)
		}
	}
	if len(list) != len(outages) {
		t.Errorf("%s: %v, want %q", when, list, outages)
	}
}

// lookAtDisksNow is the part of a look that is about disks.
func (m *Monitor) lookAtDisksNow(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	state, err := m.askDisks(ctx)
	m.lookAtDisks(state, err)
}

// TestSlowDiskIsNotFull: a disk that takes seconds for a write is slow, one that never ends it
// fails, and one without room is full. A process without a processor tells of none of the first.
func TestSlowDiskIsNotFull(t *testing.T) {
	dir := t.TempDir()
	objects := filepath.Join(dir, "objects")
	if err := os.Mkdir(objects, 0o700); err != nil {
		t.Fatal(err)
	}
	const slow = "is not full"
	for name, c := range map[string]struct {
		takes   time.Duration
		fails   error
		starved bool
		first   []string // outages after the first look
		later   []string // and 40 s later
	}{
		"quick": {takes: 5 * time.Millisecond},
		"busy":  {takes: 900 * time.Millisecond},
		"slow": {takes: 2 * time.Second, first: []string{"disk_slow: took 2s"},
			later: []string{"disk_slow: " + slow}},
		"very slow": {takes: 8 * time.Second, first: []string{"disk_slow: has not answered for 5s"},
			later: []string{"disk_slow: " + slow}},
		"hangs": {takes: time.Hour, first: []string{"disk_slow: has not answered for 5s"},
			later: []string{"disk_fails: has not answered for"}},
		"full": {fails: syscall.ENOSPC, first: []string{"disk_full: make room"},
			later: []string{"disk_full: make room"}},
		"over its quota": {fails: syscall.EDQUOT, first: []string{"disk_full: make room"},
			later: []string{"disk_full: make room"}},
		"full and slow": {takes: 2 * time.Second, fails: syscall.ENOSPC,
			first: []string{"disk_full", "disk_slow"}, later: []string{"disk_full", "disk_slow"}},
		"broken":              {fails: syscall.EIO, first: []string{"disk_fails"}, later: []string{"disk_fails"}},
		"starved":             {takes: 2 * time.Second, starved: true},
		"starved and hanging": {takes: time.Hour, starved: true, later: []string{"disk_fails"}},
		"starved and full": {fails: syscall.ENOSPC, starved: true, first: []string{"disk_full"},
			later: []string{"disk_full"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, p := blind(t, Options{Disks: []string{dir, objects}, StoreDir: objects})
				if c.starved {
					p.starve(5)
				}
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				p.read = func() map[string]usage {
					if p.used.ran += 10 * time.Millisecond; c.starved {
						p.used.waits += wakeEvery
					}
					return map[string]usage{"1": p.used}
				}
				go p.Watch(ctx)
				mended, well, writes := make(chan struct{}), atomic.Bool{}, atomic.Int64{}
				defer close(mended)
				m.write = func(string) error {
					writes.Add(1)
					if well.Load() {
						return nil
					}
					select {
					case <-time.After(c.takes):
					case <-mended:
					}
					return c.fails
				}
				m.lookAtDisksNow(t)
				m.wants(t, "at first", c.first...)
				first := m.Outages()
				for began := time.Now(); time.Since(began) < 40*time.Second; {
					time.Sleep(every)
					m.lookAtDisksNow(t)
				}
				m.wants(t, "later", c.later...)
				if slices.Equal(c.later, []string{"disk_slow: " + slow}) {
					if o := m.Outages()[0]; o.Stops() || m.HoldsUp().Kind != "" || o.Since != first[0].Since {
						t.Errorf("a slow disk stops the process, stores nothing, or is another one than %v: %v",
							first, o)
					}
					if n := writes.Load(); n > 6 {
						t.Errorf("within 45 s a slow disk was written to %d times more", n)
					}
					m.lookAtStore(false, errSilent, time.Now(), false)
					held := m.HoldsUp()
					if held.Kind != StoreUnreachable || !strings.Contains(held.Reason, "disk_slow "+dir) {
						t.Errorf("a silent store on a slow disk: held up by %v", held)
					}
					m.outages.set(StoreUnreachable)
				}
				well.Store(true)
				time.Sleep(time.Minute)
				if len(c.later) == 0 || name == "hangs" || name == "starved and hanging" {
					return
				}
				m.lookAtDisksNow(t) // takes an answer that is too old, where there is one
				m.lookAtDisksNow(t)
				m.wants(t, "when it is well")
			})
		})
	}
}

// TestSilentServer: where no server tells that a write has failed, appends without an answer may be
// slow. The server of this process would tell.
func TestSilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own, told := &embedded.Server{}, refusals{told: true}
		failed := func(reason string) refusals {
			return refusals{[]embedded.Refusal{{Stream: events.RunStream("r"), Reason: reason}}, true}
		}
		time.Sleep(time.Hour)
		for _, c := range []struct {
			server   *embedded.Server
			refusing refusals
			waiting  time.Duration
			lost     bool
			want     []string
		}{
			{own, told, time.Minute, false, nil},
			{nil, told, 9 * time.Second, false, nil},
			{nil, told, 11 * time.Second, false,
				[]string{"log_refuses_writes: tells of no write that failed: its disk is very slow"}},
			{nil, refusals{}, 11 * time.Second, false,
				[]string{"log_refuses_writes: its disk is full, broken or very slow (name the server's monitoring port"}},
			{nil, refusals{}, 11 * time.Second, true, nil},
			{nil, refusals{}, 31 * time.Second, true, []string{"log_refuses_writes: very slow"}},
			{nil, failed("write 1.blk: no space left on device"), 0, false,
				[]string{"log_refuses_writes: (make room on the disk of the NATS server and restart the server"}},
			{nil, failed("write 1.blk: input/output error"), 0, false,
				[]string{"log_refuses_writes: which need not be full and restart the server"}},
		} {
			m, _ := blind(t, Options{Server: c.server})
			sent := time.Now().Add(-c.waiting)
			m.lookAtStreams(t.Context(), c.refusing, []eventlog.Waiting{{Run: "r", Since: sent, Sent: sent}}, c.lost)
			m.wants(t, fmt.Sprintf("%+v", c), c.want...)
		}
		for reason, full := range map[string]bool{
			"no space left on device": true, "disk quota exceeded": true,
			"insufficient storage resources available": true, "input/output error": false,
			"read-only file system":         false,
			"the embedded log does not run": false,
		} {
			if o := Refused([]embedded.Refusal{{Reason: reason}},
				true)[0]; strings.Contains(o.Do, "make room") != full || strings.Contains(o.Do, "restart") {
				t.Errorf("%s: %s", reason, o.Do)
			}
		}
	})
}

// TestSilenceToAStarvedProcess: a process that gets no processor does not say of log and store that
// they are silent, until that lasts. What they answer counts.
func TestSilenceToAStarvedProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := blind(t, Options{})
		began := time.Now()
		m.lookAtStore(false, errSilent, began, true)
		m.wants(t, "silent while starved")
		m.lookAtStore(false, context.DeadlineExceeded, began, false)
		m.wants(t, "silent", "store_unreachable: does not answer within 5s")
		m.lookAtStore(false, errSilent, began, true)
		m.wants(t, "silent while starved, which it was before, too", "store_unreachable")
		m.lookAtStore(true, nil, began, true)
		m.wants(t, "it answers")
		m.lookAtStore(false, errors.New("connection refused"), began, true)
		m.wants(t, "it fails while starved", "store_unreachable: connection refused")
		m.lookAtStore(true, nil, began, true)
		began = time.Now()
		m.lookAtStore(false, errSilent, began, true)
		time.Sleep(hungAfter)
		m.lookAtStore(false, errSilent, time.Now(), true)
		m.wants(t, "silent for 30 s", "store_unreachable")
		m.lookAtStore(false, fmt.Errorf("put: %w", syscall.ENOSPC), began, false)
		m.wants(t, "full", "store_unreachable: make room on the store's disk")
	})
}

// TestStoreOnASlowDisk: a silent store in a directory holds services up, and says so of its own
// disk when that is slow or fails. Another disk is not blamed, and none for a store elsewhere.
func TestStoreOnASlowDisk(t *testing.T) {
	for name, c := range map[string]struct {
		store, slow string
		kind        Kind
		want        string
	}{
		"its disk is slow":       {"/d", "/d", DiskSlow, "5s, as disk_slow /d: 8s (it is not full"},
		"its disk fails":         {"/d", "/d", DiskFails, "5s, as disk_fails /d: 8s (see to the disk"},
		"a folder on the disk":   {"/d/objects", "/d", DiskSlow, "5s, as disk_slow /d: 8s (it is not full"},
		"another disk":           {"/e", "/d", DiskSlow, "5s (see that the object store runs"},
		"a disk of none knows":   {"/f", "/g", DiskSlow, "5s (see that the object store runs"},
		"a store that is remote": {"", "/d", DiskSlow, "5s (see that the object store runs"},
	} {
		m, _ := blind(t, Options{StoreDir: c.store})
		m.device = map[string]uint64{"/d": 1, "/d/objects": 1, "/e": 2}
		m.outages.set(c.kind, Outage{Of: c.slow, Since: time.Now().Add(-time.Minute), Reason: "8s"})
		m.lookAtStore(false, errSilent, time.Now(), false)
		m.wants(t, name, string(c.kind), "store_unreachable: does not answer within "+c.want)
		if held := m.HoldsUp().Kind; held != StoreUnreachable && held != DiskFails {
			t.Errorf("%s: services are held up by %q", name, held)
		}
		m.lookAtStore(false, errors.New("connection refused"), time.Now(), false)
		m.wants(t, name+", and it fails otherwise", string(c.kind),
			"store_unreachable: connection refused (see that the object store runs")
	}
}

// TestSlowAppends: appends are slow by themselves only where nothing that is known makes them slow.
func TestSlowAppends(t *testing.T) {
	for name, c := range map[string]struct {
		log    string // its directory
		before func(*Monitor, *planted)
		want   []string
	}{
		"by themselves": {"", func(*Monitor, *planted) {},
			[]string{"appends_slow: the processors and the network of the log's server"}},
		"on a slow disk": {"/d",
			func(m *Monitor, _ *planted) { m.outages.set(DiskSlow, Outage{Of: "/d"}) }, []string{"disk_slow"}},
		"beside a slow disk": {"/e", func(m *Monitor, _ *planted) { m.outages.set(DiskSlow, Outage{Of: "/d"}) },
			[]string{"disk_slow", "appends_slow"}},
		"of a server elsewhere": {"", func(m *Monitor, _ *planted) { m.outages.set(DiskSlow, Outage{Of: "/d"}) },
			[]string{"disk_slow", "appends_slow"}},
		"to a starved process": {"", func(m *Monitor, p *planted) { p.starve(5); m.lookAtProcessor() },
			[]string{"machine_starved: more processors"}},
		"in a process just woken": {"", func(_ *Monitor, p *planted) { p.look(time.Minute, 0, 0) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, p := blind(t, Options{LogDir: c.log})
				c.before(m, p)
				m.lookAtAppends(1)
				m.wants(t, name, c.want...)
				if o := m.Outages(); len(o) == 1 && o[0].Kind == MachineStarved && o[0].Stops() {
					t.Error("a starved machine stops the process")
				}
			})
		})
	}
}
