package main

import (
	"context"
	"strings"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
)

// deadLetter is a message that was refused or given up.
type deadLetter struct {
	Stream   string `json:"stream"`
	Sequence uint64 `json:"sequence"`
	Subject  string `json:"subject"`
	Reason   string `json:"reason"`
}

// deadLetters lists what was refused at the door or given up, for one run.
func deadLetters(ctx context.Context, log *eventlog.Log, run string) ([]deadLetter, error) {
	letters := []deadLetter{}
	for e, err := range log.All(ctx, events.Catalogue, 1) {
		if err != nil {
			return nil, err
		}
		if e.Type != events.DeadLetteredType {
			continue
		}
		d, err := events.Data[events.DeadLettered](e)
		if err != nil {
			return nil, err
		}
		atDoor := strings.HasPrefix(d.Subject, "rondo.in."+run+".")
		if d.Stream == events.RunStream(run) || atDoor {
			letters = append(letters, deadLetter{Stream: d.Stream, Sequence: d.Sequence, Subject: d.Subject, Reason: d.Reason})
		}
	}
	return letters, nil
}
