package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/recovery"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/retry"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/open"
)

// compare compares a run with its archive. That it cannot be compared is a finding, too; away says
// that the store does not answer, so that nothing can be compared with it.
func compare(ctx context.Context, log *eventlog.Log, run string) (findings []finding, away bool) {
	ctx, cancel := context.WithTimeout(ctx, storePatience)
	defer cancel()
	wrong, err := recovery.Compare(ctx, log.Archive, run, recovery.Ends)
	for _, f := range wrong {
		findings = append(findings, finding{"runs", levelTrouble, app.Clean(f.String()), f.Do})
	}
	switch {
	case err == nil:
	case errors.Is(err, storage.ErrUnavailable) || ctx.Err() != nil:
		away = true
		findings = append(findings, trouble("runs", fmt.Errorf(
			"run %s is not compared with its archive, nor are those behind it: %w", run, err),
			"run doctor again when the store answers"))
	default:
		findings = append(findings, trouble("runs", fmt.Errorf("run %s cannot be compared with its archive: %w", run,
			err),
			"put back what is damaged from a copy of the store or of the NATS server's disk"))
	}
	return findings, away
}

// tryRuns looks for runs that are paused. That log or store cannot be reached, others tell.
func tryRuns(ctx context.Context, url string, access app.NATSAccess, storeURL string) []finding {
	options, err := access.Options()
	if err != nil {
		return nil
	}
	ctx, refused := context.WithCancelCause(ctx)
	defer refused(nil)
	nc, err := connect(url, options, refused)
	if err != nil {
		return nil
	}
	defer nc.Close()
	store, err := open.ForReading(ctx, storeURL) // the log tells much while the store is away
	if err != nil {
		return nil
	}
	defer store.Close()
	log, err := eventlog.New(nc, store)
	if err != nil {
		return nil
	}
	names, err := log.AllRuns(ctx, events.RunOpenedType)
	if errors.Is(context.Cause(ctx), nats.ErrPermissionViolation) {
		return []finding{ok("runs", "not looked at: these credentials may not read all of them, the operator's may")}
	}
	if errors.Is(err, eventlog.ErrNotFound) {
		return nil // no plane has used this server
	}
	if err != nil {
		return []finding{trouble("runs", err, "")}
	}
	var findings []finding
	var waiting []unservedTasks
	atOnce, storeAway := map[string]int{}, false
	for _, run := range names {
		state, reason, err := log.RunState(ctx, run)
		// of an archived one nothing but the archive is left to compare
		if err == nil && state != eventlog.StateArchived && !storeAway {
			var wrong []finding
			wrong, storeAway = compare(ctx, log, run)
			findings = append(findings, wrong...)
			err = context.Cause(ctx)
		}
		switch {
		case err != nil:
			findings = append(findings, trouble("runs", err, ""))
		case state == "paused":
			findings = append(findings, finding{"runs", levelWarning, "run " + run + " is paused: " + app.Clean(reason),
				"when that is seen to: rondo run resume " + run})
		case state == "open":
			cfg, err := log.Config(ctx, run)
			if err != nil {
				findings = append(findings, trouble("runs", err, ""))
			} else if !cfg.External {
				atOnce[run] = cfg.AtOnce()
				for _, needs := range cfg.DifferentNeeds() {
					waiting = append(waiting, unservedTasks{run, cfg.Pool, needs})
				}
			}
		}
	}
	waiting, err = unserved(ctx, log, waiting)
	if err != nil {
		findings = append(findings, trouble("runs", err, ""))
	}
	for _, u := range waiting {
		findings = append(findings, u.finding())
	}
	if len(atOnce) > 0 {
		findings = append(findings, scarceSlots(atOnce, generatorSlots(ctx, nc))...)
	}
	if findings == nil {
		return []finding{ok("runs", "%d, none of them paused, and tool runners for all of their tasks", len(names))}
	}
	return findings
}

// unservedTasks are tasks of a run whose needs no tool runner has been seen to meet: their rollouts
// would wait until their deadline.
type unservedTasks struct {
	run, pool string
	needs     runfile.Needs
}

func (u unservedTasks) finding() finding {
	what := "tasks of run " + u.run
	if text := u.needs.String(); text != "" {
		what += " that need " + text
	}
	return finding{"runs", levelWarning, "no tool runner serves " + what,
		"start one that has it: rondo service toolrunner --pool " + u.pool + labelFlags(u.needs.Labels)}
}

// A runner that lives beats every two seconds, and one that has a free slot asks for work: who is
// neither heard nor seen for looksAtRunners × lookEvery is not there. A single look would miss a
// runner between two pulls, or with all its slots in work for other runs.
const (
	looksAtRunners = 13
	lookEvery      = 500 * time.Millisecond
)

// unserved looks which of the tasks no tool runner serves, again and again, until there are none or
// it has looked long enough.
func unserved(ctx context.Context, log *eventlog.Log, waiting []unservedTasks) ([]unservedTasks, error) {
	beats := make(chan *nats.Msg, 1024)
	if sub, err := log.Conn().ChanSubscribe(topology.AliveSubject+"*", beats); err == nil {
		defer sub.Unsubscribe()
	}
	alive := map[string]bool{}
	for look := 0; look < looksAtRunners && len(waiting) > 0; look++ {
		if look > 0 && !retry.Sleep(ctx, lookEvery) {
			return nil, ctx.Err()
		}
		for len(beats) > 0 {
			alive[strings.TrimPrefix((<-beats).Subject, topology.AliveSubject)] = true
		}
		var still []unservedTasks
		for _, u := range waiting {
			served, err := u.served(ctx, log, alive)
			if err != nil {
				return nil, err
			}
			if !served {
				still = append(still, u)
			}
		}
		waiting = still
	}
	return waiting, nil
}

// served reports whether a runner asks for these tasks or has some in work now, or one that lives
// serves their needs in this run, and in no other pool.
func (u unservedTasks) served(ctx context.Context, log *eventlog.Log, alive map[string]bool) (bool, error) {
	spec := topology.ConsumersOf(topology.ToolRunner)[0]
	stream := events.RunStream(u.run)
	pool := spec.For(u.run, runfile.PoolRoute(u.pool, u.needs)).Name
	c, err := log.JetStream().Consumer(ctx, stream, pool)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if info := c.CachedInfo(); info.NumWaiting > 0 || info.NumAckPending > 0 {
		return true, nil
	}
	if len(alive) == 0 {
		return false, nil
	}
	s, err := log.JetStream().Stream(ctx, stream)
	if err != nil {
		return false, err
	}
	prefix := spec.For(u.run, "").Name
	lives, otherPool := false, false
	names := s.ConsumerNames(ctx)
	for name := range names.Name() {
		route, ok := strings.CutPrefix(name, prefix)
		if !ok {
			continue
		}
		if runner, key, ok := runfile.RunnerOf(route); ok {
			lives = lives || alive[runner] && key == u.needs.Key()
		} else if route != u.pool && !strings.HasPrefix(route, u.pool+"-") {
			otherPool = true
		}
	}
	return lives && !otherPool, names.Err()
}

func labelFlags(labels []string) (flags string) {
	for _, label := range labels {
		flags += " --label " + label
	}
	return flags
}
