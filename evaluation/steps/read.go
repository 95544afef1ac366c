package steps

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
)

// Run is what rows are about.
type Run struct {
	Run    string `json:"run"`
	Feed   string `json:"feed"`
	Policy string `json:"policy"`
	// Opened is when the run was opened: a run of the same name on another plane
	// was opened at another time.
	Opened time.Time `json:"opened"`
	// Config are the settings that trackers sort runs by.
	Config map[string]any `json:"config"`
}

// Describe finds a run and its feed, the first one for the name "".
func Describe(ctx context.Context, log eventlog.Reader, run, feed string) (Run, error) {
	cfg, err := log.RecordedConfig(ctx, run)
	if err != nil {
		return Run{}, err
	}
	if len(cfg.Feeds) == 0 {
		return Run{}, fmt.Errorf("run %s is an evaluation without feeds: it has no training steps", run)
	}
	at := 0
	if feed != "" {
		at = slices.IndexFunc(cfg.Feeds, func(f runfile.Feed) bool { return f.Name == feed })
	}
	if at < 0 {
		var names []string
		for _, f := range cfg.Feeds {
			names = append(names, f.Name)
		}
		return Run{}, fmt.Errorf("run %s has no feed %q: it has %s", run, feed, strings.Join(names, ", "))
	}
	r := Run{Run: run, Feed: cfg.Feeds[at].Name, Policy: cfg.Policy, Config: map[string]any{
		"policy": cfg.Policy, "estimator": cfg.Advantage.Estimator, "group_size": cfg.GroupSize,
		"groups_per_batch": cfg.Feeds[at].GroupsPerBatch, "tasks": len(cfg.Tasks),
		"staleness_max": cfg.Staleness.Max, "temperature": cfg.Sampling.Temperature, "seed": cfg.Seed,
	}}
	for e, err := range log.All(ctx, run, 1) {
		if err != nil {
			return r, err
		}
		if e.Type == events.RunOpenedType {
			r.Opened = e.Time.UTC()
			return r, nil
		}
	}
	return r, fmt.Errorf("run %s: its log does not begin with its opening", run)
}

// errEnded ends the reading of a run whose rows are complete.
var errEnded = errors.New("no step can follow")

// Read gives the rows of a run, from its stream or its archive. Where it follows the run, it goes
// on until no row can follow. It reports whether the rows are complete.
func Read(ctx context.Context, log eventlog.Reader, r Run, follow bool, emit func(Row) error) (ended bool, err error) {
	fold := New(r.Feed, emit)
	take := func(e events.Event) error {
		if err := fold.Apply(e); err != nil {
			return err
		}
		if fold.Ended() {
			return errEnded
		}
		return nil
	}
	if follow {
		err = log.Follow(ctx, r.Run, 1, "", take)
		if !errors.Is(err, eventlog.ErrNotFound) {
			return errors.Is(err, errEnded), notEnded(err)
		}
		fold = New(r.Feed, emit) // of its archive
	}
	for e, err := range log.All(ctx, r.Run, 1) {
		if err == nil {
			err = take(e)
		}
		if err != nil {
			return errors.Is(err, errEnded), notEnded(err)
		}
	}
	return false, nil
}

func notEnded(err error) error {
	if errors.Is(err, errEnded) {
		return nil
	}
	return err
}
