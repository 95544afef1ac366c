package health

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rondo-rl/rondo/events"
)

// Kind of an outage.
type Kind string

// The kinds of outages.
const (
	// LogUnreachable: the NATS server is away, or does not answer within Patience.
	LogUnreachable Kind = "log_unreachable"
	// LogDegraded: the log works, with fewer live replicas than it has. One more loss may stop it.
	LogDegraded Kind = "log_degraded"
	// LogRefusesWrites: a stream answers reads and takes no appends. Its store has
	// failed, as on a full disk.
	LogRefusesWrites Kind = "log_refuses_writes"
	// AppendsSlow: appends are answered, and take longer than eventlog.SlowAppend.
	AppendsSlow Kind = "appends_slow"
	// InputsStalled: consumers of services get no answer from a server that answers others.
	InputsStalled Kind = "inputs_stalled"
	// StoreUnreachable: the object store fails, or does not answer within Patience.
	StoreUnreachable Kind = "store_unreachable"
	// StreamLost: the stream of a run that was not closed is gone.
	StreamLost Kind = "stream_lost"
	// StreamBehind: a run's stream ends before its archive, and takes no appends.
	StreamBehind Kind = "stream_behind"
	// DiskFull: a disk that log, objects or local state are on has no room left.
	DiskFull Kind = "disk_full"
	// DiskSlow: a disk of this machine takes writes, and needs longer than slowWrite for one.
	DiskSlow Kind = "disk_slow"
	// DiskFails: a disk of this machine takes no writes, although it has room: it is broken,
	// read-only, or ends no write within hungAfter.
	DiskFails Kind = "disk_fails"
	// MachineStarved: this process gets no processor when it wants one, so that it
	// is late with everything.
	MachineStarved Kind = "machine_starved"
	// Exhausted: the process has no file descriptors, processes or memory left.
	Exhausted Kind = "resources_exhausted"
	// InputsParked: inputs of services wait until an outage of one of the other kinds has ended.
	InputsParked Kind = "inputs_parked"
	// ServerAway: an inference server takes no connection, or fails one request after the other.
	ServerAway Kind = "inference_server_away"
	// CannotDecide: a decider of this process cannot go on, as one that meets an event of a newer
	// version. It has given its lease back.
	CannotDecide Kind = "cannot_decide"
)

// advice is what a person can do about an outage, where it does not end by itself.
var advice = map[Kind]string{
	LogUnreachable: "see that nats-server runs and has a majority of its cluster; services reconnect by themselves",
	LogDegraded:    "start the servers that are away, or replace them: the others bring them up to date",
	AppendsSlow: "see what else uses the disk, the processors and the network of the log's server, " +
		"or on one server choose a larger sync_interval (--durability)",
	InputsStalled:    "see whether the consumers exist and this user may use them; services go on by themselves",
	StoreUnreachable: "see that the object store runs and takes these keys; services go on by themselves",
	DiskFull:         "make room: services go on by themselves",
	DiskSlow:         slowAdvice,
	MachineStarved:   starvedAdvice,
	DiskFails:        "see to the disk, or mount it for writing again: services go on by themselves",
	Exhausted:        "raise the limit (ulimit -n, -u), or give the machine more memory or fewer slots (--tool-slots, --scorer-slots)",
	CannotDecide:     "another process of the service decides meanwhile, if one can; give this one the version, the disk or the store that it lacks",
	ServerAway:       "start the server, or see to its log: turns wait for it, and go on by themselves",
	InputsParked:     "see to what fails: the inputs are tried again by themselves, and no try is counted",
}

// What helps against a slow disk and a machine without processors for its programs.
const (
	slowAdvice = "it is not full: see what else uses the disk, move --dir or --store to a faster one, " +
		"or sync the log less often (--durability 1s); services go on meanwhile"
	starvedAdvice = "stop other programs, or give this machine or its container more processors, or use fewer slots (--tool-slots, --scorer-slots); " +
		"what is slow or silent meanwhile may be well"
)

// Outage is something that this process depends on and that fails.
type Outage struct {
	Kind   Kind      `json:"kind"`
	Of     string    `json:"of,omitempty"` // a stream, a directory
	Since  time.Time `json:"since"`
	Reason string    `json:"reason"`
	Do     string    `json:"do,omitempty"` // what helps
}

// Stops reports whether the process cannot do its work because of the outage.
func (o Outage) Stops() bool {
	switch o.Kind {
	case LogDegraded, InputsParked, ServerAway, MachineStarved, DiskSlow:
		return false
	}
	return true
}

// Concerns reports whether a run may suffer from the outage: it is not of another run's stream.
func (o Outage) Concerns(run string) bool {
	of, isRun := events.RunOfStream(o.Of)
	return !isRun || of == run || of == events.Catalogue
}

// HoldsUp is the oldest outage that keeps services from storing what they have done, its
// Kind "" where there is none.
func (m *Monitor) HoldsUp() Outage {
	for _, o := range m.Outages() {
		switch o.Kind {
		case StoreUnreachable, DiskFull, DiskFails:
			return o
		}
	}
	return Outage{}
}

// String is one line for people.
func (o Outage) String() string {
	text := string(o.Kind)
	if o.Of != "" {
		text += " " + o.Of
	}
	text += ", for " + time.Since(o.Since).Round(time.Second).String() + ": " + o.Reason
	if o.Do != "" {
		text += " (" + o.Do + ")"
	}
	return strings.ReplaceAll(text, "\n", " ")
}

type outageKey struct {
	kind Kind
	of   string
}

// outages are those that go on. Each is logged when it begins and when it ends, and counted.
type outages struct {
	logger  *slog.Logger
	began   *prometheus.CounterVec
	seconds *prometheus.CounterVec
	now     *prometheus.GaugeVec

	mu   sync.Mutex
	open map[outageKey]Outage
}

// set notes all outages of a kind that there are at this moment: new ones begin, and those
// that are missing have ended.
func (b *outages) set(kind Kind, list ...Outage) {
	b.mu.Lock()
	defer b.mu.Unlock()
	found := map[outageKey]bool{}
	for _, o := range list {
		key := outageKey{kind, o.Of}
		found[key] = true
		if known, ok := b.open[key]; ok {
			// of this moment, as how many requests have failed by now
			known.Reason, known.Do = o.Reason, cmp.Or(o.Do, advice[kind])
			b.open[key] = known
			continue
		}
		o.Kind = kind
		if o.Since.IsZero() {
			o.Since = time.Now()
		}
		o.Do = cmp.Or(o.Do, advice[kind])
		b.open[key] = o
		b.began.WithLabelValues(string(kind)).Inc()
		b.logger.Warn("outage began", "kind", kind, "of", o.Of, "since", o.Since.Format(time.RFC3339),
			"error", o.Reason, "do", o.Do)
	}
	for key, o := range b.open {
		if key.kind != kind || found[key] {
			continue
		}
		delete(b.open, key)
		lasted := time.Since(o.Since)
		b.seconds.WithLabelValues(string(kind)).Add(lasted.Seconds())
		b.logger.Warn("outage ended", "kind", kind, "of", key.of, "lasted", lasted.Round(100*time.Millisecond))
	}
	n := 0
	for key := range b.open {
		if key.kind == kind {
			n++
		}
	}
	b.now.WithLabelValues(string(kind)).Set(float64(n))
}

// list gives the outages that go on, the oldest first.
func (b *outages) list() []Outage {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := []Outage{}
	for _, o := range b.open {
		list = append(list, o)
	}
	slices.SortFunc(list, func(a, b Outage) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Of, b.Of))
	})
	return list
}

func (b *outages) has(kind Kind) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key := range b.open {
		if key.kind == kind {
			return true
		}
	}
	return false
}

func newOutages(l *slog.Logger, r prometheus.Registerer) (*outages, error) {
	b := &outages{
		logger: l, open: map[outageKey]Outage{},
		began: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rondo_outages_total",
			Help: "Outages of what the process depends on, by kind, that have begun."}, []string{"kind"}),
		seconds: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rondo_outage_seconds_total",
			Help: "Seconds that ended outages lasted, by kind."}, []string{"kind"}),
		now: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "rondo_outages",
			Help: "Outages that go on, by kind."}, []string{"kind"}),
	}
	for _, c := range []prometheus.Collector{b.began, b.seconds, b.now} {
		if r == nil {
			break
		}
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("health: %w", err)
		}
	}
	return b, nil
}
