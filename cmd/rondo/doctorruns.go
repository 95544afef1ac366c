package main

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/storage/open"
)

// tryRuns looks for runs that are paused. That log or store cannot be reached, others tell.
func tryRuns(ctx context.Context, url string, access natsAccess, storeURL string) []finding {
	options, err := access.options()
	if err != nil {
		return nil
	}
	nc, err := nats.Connect(url, append(options, nats.Name("rondo doctor"), nats.Timeout(5*time.Second))...)
	if err != nil {
		return nil
	}
	defer nc.Close()
	store, err := open.Open(ctx, storeURL)
	if err != nil {
		return nil
	}
	defer store.Close()
	log, err := eventlog.New(nc, store)
	if err != nil {
		return nil
	}
	names, err := allRuns(ctx, log)
	if errors.Is(err, eventlog.ErrNotFound) {
		return nil // no plane has used this server
	}
	if err != nil {
		return []finding{trouble("runs", err, "")}
	}
	var findings []finding
	for _, run := range names {
		switch state, reason, err := runState(ctx, log, run); {
		case err != nil:
			findings = append(findings, trouble("runs", err, ""))
		case state == "paused":
			findings = append(findings, finding{"runs", levelWarning, "run " + run + " is paused: " + clean(reason), "when that is seen to: rondo run resume " + run})
		case state == "open":
			findings = append(findings, unserved(ctx, log, run)...)
		}
	}
	if findings == nil {
		return []finding{ok("runs", "%d, none of them paused, and tool runners for all of their tasks", len(names))}
	}
	return findings
}

// unserved looks for tasks of a run whose needs no tool runner meets: their rollouts wait until their deadline.
func unserved(ctx context.Context, log *eventlog.Log, run string) (findings []finding) {
	cfg, err := log.Config(ctx, run)
	if err != nil {
		return []finding{trouble("runs", err, "")}
	}
	if cfg.External {
		return nil
	}
	spec := events.ConsumersOf(events.ToolRunner)[0]
	for _, needs := range cfg.DifferentNeeds() {
		c, err := log.JetStream().Consumer(ctx, events.RunStream(run), spec.For(run, events.PoolRoute(cfg.Pool, needs)).Name)
		if err == nil {
			if info := c.CachedInfo(); info.NumWaiting > 0 || info.NumAckPending > 0 {
				continue
			}
		} else if !errors.Is(err, jetstream.ErrConsumerNotFound) {
			return append(findings, trouble("runs", err, ""))
		}
		what := "tasks of run " + run
		if text := needs.String(); text != "" {
			what += " that need " + text
		}
		findings = append(findings, finding{
			"runs", levelWarning, "no tool runner serves " + what,
			"start one that has it: rondo service toolrunner --pool " + cfg.Pool + labelFlags(needs.Labels),
		})
	}
	return findings
}

func labelFlags(labels []string) (flags string) {
	for _, label := range labels {
		flags += " --label " + label
	}
	return flags
}
