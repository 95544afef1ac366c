package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
)

// DeadLetter is a message that was refused or given up.
type DeadLetter struct {
	Stream   string `json:"stream"`
	Sequence uint64 `json:"sequence"`
	Subject  string `json:"subject"`
	Reason   string `json:"reason"`
}

// deadLetters lists what the intake refused and what was given up for one run, and the
// versions of its policy that were rejected. For the catalogue itself it lists everything,
// also what belongs to no run.
func deadLetters(ctx context.Context, log *eventlog.Log, run string) ([]DeadLetter, error) {
	letters := []DeadLetter{}
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
		if ok && (run == events.Catalogue || letter.Concerns(run, policy)) {
			letters = append(letters, letter)
		}
	}
	return letters, nil
}

// readLetter reads an event of the catalogue that says that something was not done.
func readLetter(e events.Event) (letter DeadLetter, ok bool, err error) {
	switch e.Type {
	case events.DeadLetteredType:
		d, err := events.Data[events.DeadLettered](e)
		return DeadLetter{Stream: d.Stream, Sequence: d.Sequence, Subject: d.Subject, Reason: d.Reason}, true, err
	case events.WeightsRejectedType:
		r, err := events.Data[events.WeightsRejected](e)
		return DeadLetter{
			Stream: events.CatalogueStream, Sequence: e.Seq, Subject: e.Subject(),
			Reason: fmt.Sprintf("version %d: %s", r.Version, r.Reason),
		}, true, err
	}
	return DeadLetter{}, false, nil
}

// Concerns reports whether a letter is about a run, or about the weights of its policy.
func (d DeadLetter) Concerns(run, policy string) bool {
	weights := events.Event{Run: events.Catalogue, Type: "weights.", Entity: policy}.Subject()
	return d.Stream == events.RunStream(run) || strings.HasPrefix(d.Subject, events.IntakePrefix+run+".") ||
		policy != "" && (strings.HasPrefix(d.Subject, weights) ||
			strings.HasPrefix(d.Subject, events.IntakeSubject(events.Catalogue, "weights.", policy)))
}

func printLetters(w io.Writer, letters []DeadLetter) {
	for _, d := range letters {
		fmt.Fprintf(w, "dead letter: %s at sequence %d of %s: %s\n", app.Line(d.Subject, 200), d.Sequence, d.Stream,
			app.Line(d.Reason, 400))
	}
}

func listLetters(w io.Writer, g *app.Global, letters []DeadLetter) error {
	if g.JSON {
		return app.PrintJSON(w, map[string]any{"run": events.Catalogue, "dead_letters": letters})
	}
	printLetters(w, letters)
	_, err := fmt.Fprintf(w, "%d dead letters\n", len(letters))
	return err
}
