// Package health watches what a process depends on, the log and the object store, says when one of
// them fails and when it is back, and opens an embedded log again whose disk was full.
package health

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rondo-rl/rondo/events/embedded"
	"github.com/rondo-rl/rondo/events/eventlog"
)

const (
	// Patience is how long log and store may take to answer.
	Patience = 5 * time.Second
	// every is the rest between two looks.
	every = 2 * time.Second
	// fresh is how old a look may be that answers who asks whether the process is ready: asking
	// often costs no more than asking rarely.
	fresh = time.Second
)

// Options say what is watched.
type Options struct {
	Log     eventlog.Streams
	Conn    *nats.Conn // to the log
	Logger  *slog.Logger
	Metrics prometheus.Registerer // nil: none
	// Server is the log of this process; nil when it runs elsewhere.
	Server *embedded.Server
	// NATSMonitor is the base URL of the monitoring port of a NATS server that runs elsewhere, such
	// as http://nats:8222; "" when it is not known. Only there does a server tell which streams
	// refuse writes before somebody writes.
	NATSMonitor string
	// Disks are directories of this machine that need room. LogDir and StoreDir are those of them
	// that have the log and the objects, "" where these are elsewhere.
	Disks            []string
	LogDir, StoreDir string
}

// Monitor watches. A nil Monitor sees nothing.
type Monitor struct {
	o       Options
	outages *outages
	parked  parked
	streams streams
	// deciders cannot go on, consumers give no inputs, and appends are slow.
	deciders, consumers, appends failures
	slowAppends                  int64 // how many there were at the last look

	log      probe[eventlog.Replication]
	store    probe[bool]
	disks    probe[diskState]
	refusing probe[refusals]
	// stored and wrote are when store and disks last took a write; zero: they must be tried.
	stored, wrote          time.Time
	logSilent, storeSilent silence
	processor              *Processor
	slowDisks              failures          // by directory
	device                 map[string]uint64 // of directories, as far as their disks have answered
	trial                  atomic.Pointer[trial]
	write                  func(dir string) error // and sync

	looking sync.Mutex // held by the one that looks
	looked  time.Time
	servers func() []Outage // of inference servers
}

// New makes a monitor; Run makes it work.
func New(o Options) (*Monitor, error) {
	b, err := newOutages(o.Logger, o.Metrics)
	if err != nil {
		return nil, err
	}
	m := &Monitor{
		o: o, outages: b,
		deciders:  failures{pause: deciderPause, least: lasting},
		consumers: failures{pause: consumerPause, least: lasting}, appends: failures{pause: appendPause},
		slowDisks: failures{pause: diskPause}, processor: NewProcessor(), write: tryWrite,
	}
	if o.Metrics != nil {
		slow := prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "rondo_slow_appends_total",
			Help: "Appends that took longer than a second, or got no answer."},
			func() float64 { return float64(o.Log.SlowAppends()) })
		lost := prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "rondo_reconnects_total",
			Help: "Lost connections to the NATS server that were made again."},
			func() float64 { return float64(o.Conn.Stats().Reconnects) })
		for _, c := range []prometheus.Collector{slow, lost, newDisks(o.Disks)} {
			if err := o.Metrics.Register(c); err != nil {
				return nil, err
			}
		}
	}
	return m, nil
}

// Run looks from time to time until the context ends.
func (m *Monitor) Run(ctx context.Context) {
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { m.processor.Watch(ctx) })
	tick := time.NewTicker(every)
	defer tick.Stop()
	for ctx.Err() == nil {
		m.look(ctx, 0)
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// WatchServers has away tell of the inference servers that the process asks, and that are away.
func (m *Monitor) WatchServers(away func() []Outage) {
	if m == nil {
		return
	}
	m.looking.Lock()
	defer m.looking.Unlock()
	m.servers = away
}

// Ready asks log and store now, waiting for Patience at most, and gives what fails: nothing when
// the process can do its work.
func (m *Monitor) Ready(ctx context.Context) []Outage {
	m.look(ctx, fresh)
	return m.Outages()
}

// Outages are those that are known, the oldest first. It asks nobody.
func (m *Monitor) Outages() []Outage {
	if m == nil {
		return nil
	}
	return m.outages.list()
}

// look asks everything that is watched, unless the last look is not older than some time.
func (m *Monitor) look(ctx context.Context, age time.Duration) {
	m.looking.Lock()
	defer m.looking.Unlock()
	if time.Since(m.looked) < age {
		return
	}
	asking, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	began := time.Now()
	var wrote bool
	var replicas eventlog.Replication
	var state diskState
	var refusing refusals
	var storeErr, logErr, diskErr, refusingErr error
	var wg sync.WaitGroup
	wg.Go(func() { wrote, storeErr = m.askStore(asking) })
	wg.Go(func() { replicas, logErr = m.log.ask(asking, m.o.Log.Ask) })
	wg.Go(func() { state, diskErr = m.askDisks(asking) })
	wg.Go(func() { refusing, refusingErr = m.askRefusing(asking) })
	wg.Wait()
	if ctx.Err() != nil {
		return // what was interrupted says nothing
	}
	lostTime := m.processor.lostTime(began)
	m.lookAtProcessor()
	m.lookAtDisks(state, diskErr)
	m.lookAtStore(wrote, storeErr, began, lostTime)
	m.lookAtLog(replicas, logErr, began, lostTime)
	if refusingErr == nil {
		m.lookAtStreams(asking, refusing, m.o.Log.Unanswered(), lostTime)
	}
	m.lookAtAppends(m.o.Log.SlowAppends())
	m.lookAtInputs()
	m.lookAtParked()
	m.outages.set(CannotDecide, m.deciders.outages()...)
	if m.servers != nil {
		m.outages.set(ServerAway, m.servers()...)
	}
	m.looked = time.Now()
}
