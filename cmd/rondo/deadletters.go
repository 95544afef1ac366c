package main

import (
	"context"
	"errors"
	"fmt"
	"io"
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

// deadLetters lists what was refused at the door or given up for one run, and the versions of its policy that were
// rejected. For the catalogue itself it lists everything, also what belongs to no run.
func deadLetters(ctx context.Context, log *eventlog.Log, run string) ([]deadLetter, error) {
	letters := []deadLetter{}
	policy := ""
	if run != events.Catalogue {
		cfg, err := log.RecordedConfig(ctx, run)
		if err != nil && !errors.Is(err, eventlog.ErrNotFound) && !errors.Is(err, events.ErrMalformed) {
			return nil, err
		}
		policy = cfg.Policy // "" where the run was never opened
	}
	for e, err := range log.All(ctx, events.Catalogue, 1) {
		if err != nil {
			return nil, err
		}
		letter, ok, err := readLetter(e)
		if err != nil {
			return nil, err
		}
		if ok && (run == events.Catalogue || letter.concerns(run, policy)) {
			letters = append(letters, letter)
		}
	}
	return letters, nil
}

// readLetter reads an event of the catalogue that says that something was not done.
func readLetter(e events.Event) (letter deadLetter, ok bool, err error) {
	switch e.Type {
	case events.DeadLetteredType:
		d, err := events.Data[events.DeadLettered](e)
		return deadLetter{Stream: d.Stream, Sequence: d.Sequence, Subject: d.Subject, Reason: d.Reason}, true, err
	case events.WeightsRejectedType:
		r, err := events.Data[events.WeightsRejected](e)
		return deadLetter{
			Stream: events.CatalogueStream, Sequence: e.Seq, Subject: e.Subject(), Reason: fmt.Sprintf("version %d: %s", r.Version, r.Reason),
		}, true, err
	}
	return deadLetter{}, false, nil
}

// concerns reports whether a letter is about a run, or about the weights of its policy.
func (d deadLetter) concerns(run, policy string) bool {
	weights := events.Event{Run: events.Catalogue, Type: "weights.", Entity: policy}.Subject()
	return d.Stream == events.RunStream(run) || strings.HasPrefix(d.Subject, events.DoorPrefix+run+".") ||
		policy != "" && (strings.HasPrefix(d.Subject, weights) || strings.HasPrefix(d.Subject, events.DoorSubject(events.Catalogue, "weights.", policy)))
}

func printLetters(w io.Writer, letters []deadLetter) {
	for _, d := range letters {
		fmt.Fprintf(w, "dead letter: %s at sequence %d of %s: %s\n", d.Subject, d.Sequence, d.Stream, d.Reason)
	}
}

func listLetters(w io.Writer, g *global, letters []deadLetter) error {
	if g.json {
		return printJSON(w, map[string]any{"run": events.Catalogue, "dead_letters": letters})
	}
	printLetters(w, letters)
	_, err := fmt.Fprintf(w, "%d dead letters\n", len(letters))
	return err
}
