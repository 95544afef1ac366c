package gc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/yamltext"
)

// Policy is what a plane keeps by itself: the setting `retention`. What it leaves out is kept for
// ever, but for objects that nothing refers to.
type Policy struct {
	// Every is how often it is looked at.
	Every runfile.Duration `yaml:"every"`
	// Streams deletes the streams of runs that were closed that long ago, when they are archived.
	// The KeepStreams that were closed last stay.
	Streams     runfile.Duration `yaml:"streams"`
	KeepStreams int              `yaml:"keep_streams"`
	// Unread keeps streams that long in which a feed has batches that no trainer consumed: trainers
	// read streams, and no archives. No file says it.
	Unread runfile.Duration `yaml:"-"`
	// Archives forgets archived runs that were closed that long ago, and MaxBytes the oldest ones
	// until the files of the others take no more. The KeepRuns that were closed last stay.
	Archives runfile.Duration `yaml:"archives"`
	MaxBytes runfile.Size     `yaml:"max_bytes"`
	KeepRuns int              `yaml:"keep_runs"`
	// Weights collects versions of weights that were replaced that long ago, but for the
	// KeepWeights newest ones of each policy.
	Weights     runfile.Duration `yaml:"weights"`
	KeepWeights int              `yaml:"keep_weights"`
	// Objects deletes what nothing refers to and is that old; 0, which no
	// file can say, deletes none.
	Objects runfile.Duration `yaml:"objects"`
	// Referred keeps runs that others continue or replay. A file says so always.
	Referred bool `yaml:"-"`
}

// Defaults of a Policy.
const (
	DefaultEvery   = time.Hour
	DefaultObjects = 24 * time.Hour
	DefaultKeep    = 20 // versions of weights
)

// DefaultPolicy is what a plane does that is told nothing. What it deletes is in the archive, from
// which `rondo archive restore` makes the stream again.
func DefaultPolicy() Policy {
	return Policy{Every: runfile.Duration(DefaultEvery), Streams: runfile.Duration(6 * time.Hour), KeepStreams: 20,
		Unread: runfile.Duration(24 * time.Hour)}
}

// leastEvery bounds how often: each time reads what is new in all histories, and lists the store.
const leastEvery = time.Minute

// ReadPolicy reads a file with the key retention.
func ReadPolicy(name string) (Policy, error) {
	var file struct {
		Retention *Policy `yaml:"retention"`
	}
	text, err := os.ReadFile(name)
	if err == nil {
		err = yamltext.Strict(text, &file)
	}
	if err == nil && file.Retention == nil {
		err = errors.New("it has no retention")
	}
	if err != nil {
		return Policy{}, fmt.Errorf("retention file %s: %w", name, err)
	}
	p := *file.Retention
	p.Every, p.Objects = cmp.Or(p.Every, runfile.Duration(DefaultEvery)),
		cmp.Or(p.Objects, runfile.Duration(DefaultObjects))
	p.KeepWeights, p.Referred = cmp.Or(p.KeepWeights, DefaultKeep), true
	if err := p.validate(); err != nil {
		return Policy{}, fmt.Errorf("retention file %s: %w", name, err)
	}
	return p, nil
}

func (p Policy) validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(time.Duration(p.Every) >= leastEvery, "every %s: must be at least %s", time.Duration(p.Every), leastEvery)
	check(time.Duration(p.Objects) >= LeastAge,
		"objects %s: must be at least %s, as uploads may be on their way to the log",
		time.Duration(p.Objects), LeastAge)
	check(p.KeepStreams == 0 || p.KeepStreams > 0 && p.Streams > 0,
		"keep_streams %d: name at least 0 runs, beside streams", p.KeepStreams)
	for name, d := range map[string]runfile.Duration{"streams": p.Streams, "archives": p.Archives} {
		check(d >= 0, "%s %s: must be positive", name, time.Duration(d))
	}
	check(p.Weights == 0 || time.Duration(p.Weights) >= LeastAge,
		"weights %s: must be at least %s", time.Duration(p.Weights), LeastAge)
	check(p.KeepWeights >= LeastVersions, "keep_weights %d: must be at least %d", p.KeepWeights, LeastVersions)
	check(p.MaxBytes >= 0, "max_bytes %d: must be positive", p.MaxBytes)
	forgets := p.Archives > 0 || p.MaxBytes > 0
	check(p.KeepRuns == 0 || p.KeepRuns > 0 && forgets,
		"keep_runs %d: name at least 0 runs, beside archives or max_bytes", p.KeepRuns)
	check(forgets || p.Streams > 0 || p.Weights > 0, "name at least one of streams, archives, max_bytes and weights")
	return errors.Join(errs...)
}

// Report is what was removed, or would be.
type Report struct {
	OlderThan runfile.Duration `json:"older_than"`
	// Deletes is false for a dry run.
	Deletes   bool           `json:"deletes"`
	Kinds     []KindReport   `json:"kinds"`
	Runs      []OldRun       `json:"runs,omitempty"`
	Forgotten []ForgottenRun `json:"forgotten,omitempty"`
	// Weights are what retention finds of each policy, where it says how old they may be.
	Weights []WeightsReport `json:"weights,omitempty"`
	// Objects are those that nothing reaches, where they are asked for.
	Objects []Candidate `json:"objects,omitempty"`
	// Unfinished are uploads that were removed, as their writers never finished them.
	Unfinished int `json:"unfinished,omitempty"`
}

// Retain does what a policy says, with a collector whose log, store and age of objects it sets;
// without remove it finds what it would do. Each step is one that may be killed at any moment.
func Retain(ctx context.Context, log *eventlog.Log, p Policy, c *Collector, remove bool) (r Report, err error) {
	now := time.Now()
	ago := func(d runfile.Duration) time.Time { return now.Add(-time.Duration(d)) }
	r.OlderThan, r.Deletes = p.Objects, remove
	if p.Streams > 0 {
		keep := StreamRetention{ClosedBefore: ago(p.Streams), Keep: p.KeepStreams}
		if p.Unread > 0 {
			keep.UnreadBefore = ago(p.Unread)
		}
		if r.Runs, err = RetireRuns(ctx, log, keep, remove); err != nil {
			return r, err
		}
	}
	if p.Archives > 0 || p.MaxBytes > 0 {
		keep := Retention{MaxBytes: int64(p.MaxBytes), Keep: p.KeepRuns, Referred: p.Referred}
		if p.Archives > 0 {
			keep.ClosedBefore = ago(p.Archives)
		}
		if r.Forgotten, err = Forget(ctx, log.Appender, keep, remove); err != nil {
			return r, err
		}
		for _, run := range r.Forgotten {
			c.Forgotten = append(c.Forgotten, run.Run)
		}
	}
	if p.Weights > 0 {
		keep := WeightRetention{ReplacedBefore: ago(p.Weights), Keep: p.KeepWeights, Cutoff: ago(p.Objects)}
		if r.Weights, err = CollectAllWeights(ctx, log.Archive, keep, remove); err != nil {
			return r, err
		}
	}
	if p.Objects == 0 {
		return r, nil
	}
	c.Log, c.Store, c.Cutoff = log.Archive, log.Store(), ago(p.Objects)
	r.Kinds, err = c.Run(ctx, remove)
	r.Unfinished = c.Unfinished
	return r, err
}

// referred are the runs that others, which are not forgotten, continue or replay.
func referred(ctx context.Context, log eventlog.Reader) (named map[string]bool, err error) {
	known, err := log.AllRuns(ctx, events.RunOpenedType)
	if err != nil {
		return nil, err
	}
	named = map[string]bool{}
	for e, err := range log.All(ctx, events.Catalogue, 1) {
		if err != nil {
			return nil, err
		}
		if e.Type != events.RunOpenedType || !slices.Contains(known, e.Entity) {
			continue
		}
		opened, err := events.Data[events.RunOpened](e)
		if err != nil {
			return nil, err
		}
		if opened.Continues != nil {
			named[opened.Continues.Run] = true
		}
		if opened.Replays != nil {
			named[opened.Replays.Run] = true
		}
	}
	return named, nil
}
