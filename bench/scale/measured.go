// Package scale derives what a plane of some size takes from what a small one was measured to take.
//
// All of it is arithmetic over the JSON that rondo-bench pipeline, long, sandbox and feed
// print. Each figure says how it comes about, so a reader with other measurements, prices
// or loads can make it anew.
package scale

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/rondo-rl/rondo/bench/feed"
	"github.com/rondo-rl/rondo/bench/long"
	"github.com/rondo-rl/rondo/bench/rollouts"
	"github.com/rondo-rl/rondo/bench/sandbox"
)

//go:embed measured/*.json
var recorded embed.FS

// Recorded are the results from which docs/scale.md is derived.
func Recorded() (Measured, error) {
	dir, err := fs.Sub(recorded, "measured")
	if err != nil {
		return Measured{}, err
	}
	return Read(dir)
}

// Measured are the results of the benchmarks.
type Measured struct {
	Pipeline rollouts.Result
	Long     long.Result
	Sandbox  sandbox.Result
	Feed     feed.Result
}

// Read reads pipeline.json, long.json, sandbox.json and feed.json, as
// `rondo-bench NAME --json` prints them.
func Read(dir fs.FS) (m Measured, err error) {
	for _, f := range []struct {
		name string
		into any
	}{{"pipeline", &m.Pipeline}, {"long", &m.Long}, {"sandbox", &m.Sandbox}, {"feed", &m.Feed}} {
		data, err := fs.ReadFile(dir, f.name+".json")
		if err == nil {
			err = json.Unmarshal(data, f.into)
		}
		if err != nil {
			return m, fmt.Errorf("the result of rondo-bench %s --json: %w", f.name, err)
		}
	}
	return m, m.validate()
}

func (m *Measured) validate() error {
	p := &m.Pipeline
	switch {
	case !(p.RolloutsPerSecond > 0 && p.EventsPerSecond > 0 && p.StoreWrites > 0 && p.StoreReads > 0 &&
		p.Turns > 0 && p.CPUs > 0):
		return errors.New("pipeline.json: a figure is missing or not positive")
	case !(p.OpenGiB100k > 0):
		return errors.New("pipeline.json: gib_at_100k_open is missing: measure with --open 100000")
	case len(m.Long.Lengths) == 0 || !(m.Long.LogPerToken > 0) || m.Long.Tokens < 1:
		return errors.New("long.json: a figure is missing or not positive")
	case !(m.Sandbox.HeldMiB > 0):
		return errors.New("sandbox.json: held_mib_each is missing or not positive")
	case len(m.Feed.Turns) == 0:
		return errors.New("feed.json: it has no turns")
	}
	for _, l := range m.Long.Lengths {
		if !(l.Own > 0 && l.Requests > 0 && l.Bytes > float64(m.Long.Tokens)*m.Long.LogPerToken) {
			return fmt.Errorf("long.json: %d turns: a figure is missing or too small", l.Turns)
		}
	}
	for _, t := range m.Feed.Turns {
		if t.Tokens < 1 || !(t.FilePerToken > 0) {
			return errors.New("feed.json: a figure is missing or not positive")
		}
	}
	return nil
}

// long is what was measured of rollouts of that many turns or the next longer ones, and of the
// longest where there are none.
func (m *Measured) long(turns int) long.Length {
	best := m.Long.Lengths[0]
	for _, l := range m.Long.Lengths {
		if best.Turns < turns && l.Turns > best.Turns || l.Turns >= turns && l.Turns < best.Turns {
			best = l
		}
	}
	return best
}

// filePerToken is what a token takes in a trajectory's file, in bytes, by the longest measured
// trajectories that are no longer than these, or the shortest.
func (m *Measured) filePerToken(tokens float64) float64 {
	best := m.Feed.Turns[0]
	for _, t := range m.Feed.Turns {
		if float64(best.Tokens) > tokens && t.Tokens < best.Tokens ||
			float64(t.Tokens) <= tokens && t.Tokens > best.Tokens {
			best = t
		}
	}
	return best.FilePerToken
}
