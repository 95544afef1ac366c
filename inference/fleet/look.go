package fleet

import (
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"
)

// State is what this process knows of an inference server.
type State struct {
	URL               string // without a password
	Engine            string // its kind, "" while that is not known
	Resting, Open     bool   // it asked to be left alone; its requests have failed in a row
	InFlight, Allowed int    // requests
	Reduced           string // why its ramp was reduced last, as long as it has not come back to what it allowed before
	Failures          int    // in a row
	Away              string // the last of these failures, where nobody takes a connection or its circuit is open
	Versions          map[string]int64
	Used              time.Time
}

// awayFor is how long a server counts as away that nobody asks any more.
const awayFor = 2 * time.Minute

// Look lists the servers that are known, by their addresses, and counts the
// calls that wait for one.
func (f *Fleet) Look() (states []State, waiting int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	for _, r := range f.replicas {
		reduced := ""
		if r.reduced > 0 {
			reduced = r.reducedBy
		}
		away := ""
		if now.Sub(r.used) < awayFor && r.last != nil && r.failures > 0 && (r.open || unreachable(r.last)) {
			away = r.last.Error()
		}
		states = append(states, State{
			Reduced: reduced, Away: away,
			URL: withoutPassword(r.url), Engine: r.engine, Resting: now.Before(r.until), Open: r.open,
			InFlight: r.inFlight, Allowed: r.room(), Failures: r.failures,
			Versions: maps.Clone(r.versions), Used: r.used,
		})
	}
	slices.SortFunc(states, func(a, b State) int { return strings.Compare(a.URL, b.URL) })
	return states, len(f.waiting)
}

func withoutPassword(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "an address that is none"
	}
	return u.Redacted()
}
