package health

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/embedded"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/retry"
	"github.com/rondo-rl/rondo/storage"
)

// askLog asks the server for something small.
func (m *Monitor) askLog(ctx context.Context) {
	began := time.Now()
	replicas, err := m.log.ask(ctx, m.o.Log.Ask)
	switch {
	case interrupted(ctx):
	case err == nil:
		m.outages.set(LogUnreachable)
		m.lookAtReplicas(replicas)
	default:
		m.streams.away = time.Now()
		who := "the NATS server"
		if cluster := m.o.Conn.ConnectedClusterName(); cluster != "" {
			who = "the leader in NATS cluster " + cluster
		}
		m.outages.set(LogUnreachable, Outage{Since: began, Reason: reason(who, err)})
	}
}

// lookAtReplicas looks whether a server is missing that holds the catalogue: it holds runs as well, most likely.
func (m *Monitor) lookAtReplicas(r eventlog.Replication) {
	if degraded := r.Degraded(); degraded != "" {
		m.outages.set(LogDegraded, Outage{Of: r.Stream, Reason: degraded})
	} else {
		m.outages.set(LogDegraded)
	}
}

// writeEvery is how often a look also writes: a store or a disk may give what it has and take nothing.
const writeEvery = 10 * time.Second

// askStore asks the store for an object that nobody has, and from time to time to take a small one.
func (m *Monitor) askStore(ctx context.Context) {
	began := time.Now()
	write := began.Sub(m.stored) >= writeEvery
	_, err := m.store.ask(ctx, func(ctx context.Context) (struct{}, error) {
		if write {
			return struct{}{}, m.o.Log.Store().Put(ctx, topology.ProbePrefix+"health", []byte("ok"))
		}
		_, err := m.o.Log.Store().Stat(ctx, topology.ProbePrefix+"none")
		if errors.Is(err, storage.ErrNotFound) {
			err = nil
		}
		return struct{}{}, err
	})
	switch {
	case interrupted(ctx):
	case err != nil:
		m.stored = time.Time{} // what has failed must be written until it is well
		m.outages.set(StoreUnreachable, Outage{Since: began, Reason: reason("the object store", err)})
	default:
		if write {
			m.stored = began
		}
		m.outages.set(StoreUnreachable)
	}
}

// interrupted reports whether the process ends: what it did not learn because of that is no outage.
func interrupted(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }

// reason says why a question was not answered.
func reason(who string, err error) string {
	if errors.Is(err, errSilent) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Sprintf("%s does not answer within %s", who, Patience)
	}
	return err.Error()
}

// diskState is what local disks and the log's server say of themselves.
type diskState struct {
	full, fail []Outage
	refusing   []embedded.Refusal
}

// askDisks looks at the disks, and asks the log's server which streams refuse writes.
func (m *Monitor) askDisks(ctx context.Context) (diskState, bool) {
	write := time.Since(m.wrote) >= writeEvery
	state, err := m.disks.ask(ctx, func(ctx context.Context) (diskState, error) {
		var state diskState
		var err error
		if state.refusing, err = m.refusing(ctx); err != nil {
			state.refusing = nil // a monitoring port that is away says nothing about streams
		}
		state.full, state.fail = lookAtDisks(m.o.Disks, write)
		return state, nil
	})
	if err != nil {
		if !interrupted(ctx) {
			m.outages.set(DiskFails, Outage{Reason: "a local disk does not answer"})
		}
		return state, false
	}
	if len(state.full)+len(state.fail) > 0 {
		m.wrote = time.Time{}
	} else if write {
		m.wrote = time.Now()
	}
	m.outages.set(DiskFull, state.full...)
	m.outages.set(DiskFails, state.fail...)
	return state, true
}

// streams is what is known of streams that refuse writes.
type streams struct {
	away     time.Time // when the log last did not answer
	again    time.Time // when a restart may be tried next
	restarts int       // those that did not help
}

// restartAgain is how long to wait between restarts of an embedded log that do not help.
var restartAgain = retry.Policy{First: 5 * time.Second, Most: 2 * time.Minute}

// unansweredFor is how long appends must wait for an answer while the server answers other questions, until the stream counts as one that
// refuses writes: two requests of an append.
const unansweredFor = 10 * time.Second

// lookAtStreams finds streams that refuse writes, by the server's own words where they can be had and by appends that wait.
func (m *Monitor) lookAtStreams(ctx context.Context, refusing []embedded.Refusal) {
	var found []Outage
	known := map[string]bool{}
	do := "make room on the NATS server's disk and restart the server: in nats-server, a stream whose write failed once takes none until then"
	if m.o.Server != nil {
		do = "make room on the disk: the log is opened again by itself"
	}
	for _, r := range refusing {
		known[r.Stream] = true
		found = append(found, Outage{Of: r.Stream, Reason: r.Reason, Do: do})
	}
	if !m.outages.has(LogUnreachable) {
		for _, w := range m.o.Log.Unanswered() {
			stream := events.RunStream(w.Run)
			if w.Full != "" {
				if !known[stream] && !(w.Limit && m.hasRoom(ctx, w.Run)) {
					known[stream] = true
					found = append(found, Outage{Of: stream, Since: w.Since, Reason: w.Full, Do: makeRoom})
				}
				continue
			}
			if known[stream] || time.Since(w.Since) < unansweredFor || !w.Sent.After(m.streams.away) {
				continue
			}
			found = append(found, Outage{Of: stream, Since: w.Since, Reason: "appends get no answer, and the server answers everything else", Do: do})
		}
	}
	m.outages.set(LogRefusesWrites, found...)
	m.heal(len(refusing) > 0)
}

// makeRoom is what a person can do where a stream is at its limit.
const makeRoom = "the stream or its disk is at its limit: archive and delete runs (rondo gc --runs-older-than), give the server more storage, and go on in a new run with a larger log.max_bytes"

// hasRoom reports whether a stream that was full takes appends again, of which nobody has to try one: a run at its limit may be closed, or deleted.
func (m *Monitor) hasRoom(ctx context.Context, run string) bool {
	room, err := m.o.Log.HasRoom(ctx, run)
	if err == nil && room {
		m.o.Log.Forget(run)
	}
	return err == nil && room
}

// refusing asks the log's server which streams refuse writes.
func (m *Monitor) refusing(ctx context.Context) ([]embedded.Refusal, error) {
	switch {
	case m.o.Server != nil:
		return m.o.Server.Refusing(), nil
	case m.o.NATSMonitor != "":
		return AskMonitor(ctx, m.o.NATSMonitor)
	}
	return nil, nil
}

// heal opens an embedded log again when there is room.
func (m *Monitor) heal(needed bool) {
	if m.o.Server == nil || !needed {
		m.streams.restarts = 0
		return
	}
	if time.Now().Before(m.streams.again) || m.o.Server.Room() != nil {
		return
	}
	m.streams.restarts++
	m.streams.again = time.Now().Add(restartAgain.Delay(m.streams.restarts))
	if err := m.o.Server.Restart(); err != nil {
		m.o.Logger.Error("log not restarted", "error", err)
		return
	}
	m.o.Logger.Warn("log restarted", "reason", "streams refused writes and their disk has room again")
}

// maxHealth bounds what is read of a server's health.
const maxHealth = 4 << 20

// AskMonitor asks the monitoring ports of NATS servers, by their base URLs with commas between them, which streams refuse writes. Each server of a cluster
// tells of its own copies. One that is away tells nothing, which is an error when no other one answers.
func AskMonitor(ctx context.Context, bases string) (refusing []embedded.Refusal, err error) {
	list := strings.Split(bases, ",")
	answers, faults := make([][]embedded.Refusal, len(list)), make([]error, len(list))
	var asked sync.WaitGroup
	for i, base := range list {
		asked.Go(func() { answers[i], faults[i] = askOneMonitor(ctx, base) })
	}
	asked.Wait()
	if !slices.Contains(faults, nil) {
		return nil, errors.Join(faults...)
	}
	for _, of := range answers {
		for _, r := range of {
			if !slices.ContainsFunc(refusing, func(known embedded.Refusal) bool { return known.Stream == r.Stream }) {
				refusing = append(refusing, r)
			}
		}
	}
	return refusing, nil
}

func askOneMonitor(ctx context.Context, base string) ([]embedded.Refusal, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(base, "/")+"/healthz?details=true", nil)
	if err != nil {
		return nil, fmt.Errorf("NATS monitoring: %w", err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("NATS monitoring: %w", err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxHealth))
	if err != nil {
		return nil, fmt.Errorf("NATS monitoring: %w", err)
	}
	return embedded.ReadHealth(body)
}
