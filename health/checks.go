package health

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/embedded"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/retry"
	"github.com/rondo-rl/rondo/storage"
)

// silence is since when something gives no answer, zero where it has answered.
type silence struct{ since time.Time }

// tells reports whether the answer to a question says anything of who was asked. A
// process that got no processor meanwhile may itself be the one that is late: to it,
// silence tells nothing until it lasts.
func (s *silence) tells(err error, began time.Time, lostTime bool) bool {
	if err == nil || !silent(err) {
		s.since = time.Time{}
		return true
	}
	if s.since.IsZero() {
		s.since = began
	}
	return !lostTime || time.Since(s.since) >= hungAfter
}

// hungAfter is after what time something that gives no answer counts as one that
// hangs, and is not only slow.
const hungAfter = 30 * time.Second

// lookAtLog takes the server's answer to something small.
func (m *Monitor) lookAtLog(replicas eventlog.Replication, err error, began time.Time, lostTime bool) {
	if err != nil {
		m.streams.away = time.Now()
	}
	switch {
	case !m.logSilent.tells(err, began, lostTime):
	case err == nil:
		m.outages.set(LogUnreachable)
		m.lookAtReplicas(replicas)
	default:
		who := "the NATS server"
		if cluster := m.o.Conn.ConnectedClusterName(); cluster != "" {
			who = "the leader in NATS cluster " + cluster
		}
		m.outages.set(LogUnreachable, Outage{Since: began, Reason: reason(who, err)})
	}
}

// lookAtReplicas looks whether a server is missing that holds the catalogue: it holds
// runs as well, most likely.
func (m *Monitor) lookAtReplicas(r eventlog.Replication) {
	if degraded := r.Degraded(); degraded != "" {
		m.outages.set(LogDegraded, Outage{Of: r.Stream, Reason: degraded})
	} else {
		m.outages.set(LogDegraded)
	}
}

// writeEvery is how often a look also writes: a store or a disk may give what
// it has and take nothing.
const writeEvery = 10 * time.Second

// askStore asks the store for an object that nobody has, and from time to time to take a small one.
func (m *Monitor) askStore(ctx context.Context) (wrote bool, err error) {
	write := time.Since(m.stored) >= writeEvery
	return m.store.ask(ctx, func(ctx context.Context) (bool, error) {
		if write {
			return true, m.o.Log.Store().Put(ctx, topology.ProbePrefix+"health", []byte("ok"))
		}
		_, err := m.o.Log.Store().Stat(ctx, topology.ProbePrefix+"none")
		if errors.Is(err, storage.ErrNotFound) {
			err = nil
		}
		return false, err
	})
}

// lookAtStore takes the store's answer. One on a local disk is as silent as that, which keeps
// services from storing what they have done, too.
func (m *Monitor) lookAtStore(wrote bool, err error, began time.Time, lostTime bool) {
	if err != nil {
		m.stored = time.Time{} // what has failed must be written until it is well
	}
	switch {
	case !m.storeSilent.tells(err, began, lostTime):
	case err == nil:
		if wrote {
			m.stored = began
		}
		m.outages.set(StoreUnreachable)
	case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT):
		m.outages.set(StoreUnreachable, Outage{Since: began, Reason: err.Error(),
			Do: "make room on the store's disk: services go on by themselves"})
	default:
		o := Outage{Since: began, Reason: reason("the object store", err)}
		if disk, ill := m.diskIll(m.o.StoreDir); ill && silent(err) {
			o.Reason += fmt.Sprintf(", as %s %s: %s", disk.Kind, disk.Of, disk.Reason)
			o.Do = disk.Do
		}
		m.outages.set(StoreUnreachable, o)
	}
}

// silent reports whether an error is that no answer came.
func silent(err error) bool {
	return errors.Is(err, errSilent) || errors.Is(err, context.DeadlineExceeded)
}

// reason says why a question was not answered.
func reason(who string, err error) string {
	if silent(err) {
		return fmt.Sprintf("%s does not answer within %s", who, Patience)
	}
	return err.Error()
}

// lookAtProcessor tells of a process that gets no processor.
func (m *Monitor) lookAtProcessor() {
	if how := m.processor.Starved(); how != "" {
		m.outages.set(MachineStarved, Outage{Reason: how})
	} else {
		m.outages.set(MachineStarved)
	}
}

// streams is what is known of streams that refuse writes.
type streams struct {
	away     time.Time // when the log last did not answer
	again    time.Time // when a restart may be tried next
	restarts int       // those that did not help
}

// restartAgain is how long to wait between restarts of an embedded log that do not help.
var restartAgain = retry.Policy{First: 5 * time.Second, Most: 2 * time.Minute}

// unansweredFor is how long appends must wait for an answer while the server answers other
// questions, until the stream counts as one that refuses writes: two requests of an append.
const unansweredFor = 10 * time.Second

// refusals are the streams that refuse writes, by the words of the log's server, which are
// none where it has not told.
type refusals struct {
	list []embedded.Refusal
	told bool
}

// lookAtStreams finds streams that refuse writes, by the server's own words where they can be had
// and by appends that wait.
func (m *Monitor) lookAtStreams(ctx context.Context, refusing refusals, waiting []eventlog.Waiting, lostTime bool) {
	found := Refused(refusing.list, m.o.Server != nil)
	known := map[string]bool{}
	for _, o := range found {
		known[o.Of] = true
	}
	patience := unansweredFor
	if lostTime {
		patience = hungAfter
	}
	if !m.outages.has(LogUnreachable) {
		for _, w := range waiting {
			stream := events.RunStream(w.Run)
			if w.Full != "" {
				if !known[stream] && !(w.Limit && m.hasRoom(ctx, w.Run)) {
					known[stream] = true
					found = append(found, Outage{Of: stream, Since: w.Since, Reason: w.Full, Do: makeRoom})
				}
				continue
			}
			// The server of this process tells of each write that failed: appends that it
			// does not answer are slow.
			if known[stream] || m.o.Server != nil && refusing.told || time.Since(w.Since) < patience ||
				!w.Sent.After(m.streams.away) {
				continue
			}
			o := Outage{Of: stream, Since: w.Since,
				Reason: "appends get no answer, and the server answers everything else: its disk is full, broken or very slow",
				Do:     "name the server's monitoring port (--nats-monitor), which tells which it is. Where a write has failed, see to the disk" + restartServer}
			if refusing.told {
				o.Reason = "appends get no answer, and the server answers everything else and tells of no write that failed: " +
					"its disk is very slow, or the stream has no leader"
				o.Do = "see what else uses the NATS server's disk, and whether a majority of its cluster runs"
			}
			found = append(found, o)
		}
	}
	m.outages.set(LogRefusesWrites, found...)
	m.heal(len(refusing.list) > 0)
}

// restartServer is what a stream of a server elsewhere needs whose write failed.
const restartServer = " and restart the server: in nats-server, a stream whose write failed once takes none until then"

// Refused are the outages of what refuses writes, by the words of the log's server. own is a server
// in this process, which is opened again by itself.
func Refused(list []embedded.Refusal, own bool) (found []Outage) {
	for _, r := range list {
		do := "see to the disk of the NATS server, which need not be full"
		if noSpace.MatchString(r.Reason) {
			do = "make room on the disk of the NATS server"
		}
		if own {
			do += ": the log is opened again by itself when its disk takes writes"
		} else {
			do += restartServer
		}
		found = append(found, Outage{Kind: LogRefusesWrites, Of: r.Stream, Since: time.Now(), Reason: r.Reason, Do: do})
	}
	return found
}

// noSpace matches the words of a server whose disk, quota or own limit leaves no room.
var noSpace = regexp.MustCompile(`(?i)no space left|quota exceeded|disk (is )?full|insufficient (storage )?resources|resource limits exceeded`)

// makeRoom is what a person can do where a stream is at its limit.
const makeRoom = "the stream or its disk is at its limit: archive and delete runs (rondo gc --runs-older-than), give the server more storage, and go on in a new run with a larger log.max_bytes"

// hasRoom reports whether a stream that was full takes appends again, of which nobody has to try
// one: a run at its limit may be closed, or deleted.
func (m *Monitor) hasRoom(ctx context.Context, run string) bool {
	room, err := m.o.Log.HasRoom(ctx, run)
	if err == nil && room {
		m.o.Log.Forget(run)
	}
	return err == nil && room
}

// askRefusing asks the log's server which streams refuse writes.
func (m *Monitor) askRefusing(ctx context.Context) (refusals, error) {
	return m.refusing.ask(ctx, func(ctx context.Context) (refusals, error) {
		switch {
		case m.o.Server != nil:
			return refusals{m.o.Server.Refusing(), true}, nil
		case m.o.NATSMonitor != "":
			list, err := AskMonitor(ctx, m.o.NATSMonitor)
			return refusals{list, err == nil}, nil // one that is away says nothing of streams
		}
		return refusals{}, nil
	})
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

// AskMonitor asks the monitoring ports of NATS servers, by their base URLs with commas between
// them, which streams refuse writes. Each server of a cluster tells of its own copies. One that is
// away tells nothing, which is an error when no other one answers.
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
	request, err := http.NewRequestWithContext(ctx, http.MethodGet,
		strings.TrimSuffix(base, "/")+"/healthz?details=true", nil)
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
