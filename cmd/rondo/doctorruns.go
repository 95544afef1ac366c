package main

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"

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
		}
	}
	if findings == nil {
		return []finding{ok("runs", "%d, none of them paused", len(names))}
	}
	return findings
}
