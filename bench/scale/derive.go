package scale

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// Figure is one number with the way to it.
type Figure struct {
	Part  string  `json:"part"` // what it belongs to
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	From  string  `json:"from"`
}

// Text is the value for people, with three digits.
func (f Figure) Text() string { return Rounded(f.Value) }

// Rounded writes a number with three digits, and commas between thousands: "1,230,000", "0.46".
func Rounded(v float64) string {
	if math.Abs(v) < 999.5 {
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
	unit := math.Pow(10, math.Floor(math.Log10(math.Abs(v)))-2)
	digits := strconv.FormatFloat(math.Round(v/unit)*unit, 'f', 0, 64)
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}

// Limit is how far something goes before there must be more of it, or something else.
type Limit struct {
	What string `json:"what"`
	// Rollouts a day at which it is reached, at the peak.
	Rollouts float64 `json:"rollouts_a_day"`
	Then     string  `json:"then"`
}

// Plan is what a load takes, and its limits, the nearest first.
type Plan struct {
	Load
	Figures []Figure `json:"figures"`
	Limits  []Limit  `json:"limits"`
}

const (
	day         = 86400.0
	gib         = 1 << 30
	half        = 0.5 // of a node's cores and of measured throughput: the rest is for peaks, and for what fails over
	promptBytes = 2.0 // of a new prompt token on the log (docs/guide/context.md)
)

// Derive makes the plan of a load.
func Derive(m Measured, l Load) (Plan, error) {
	if err := l.validate(); err != nil {
		return Plan{}, err
	}
	p := Plan{Load: l}
	add := func(part, name string, value float64, unit, from string, args ...any) float64 {
		p.Figures = append(p.Figures, Figure{part, name, value, unit, fmt.Sprintf(from, args...)})
		return value
	}
	turns, one, measured := float64(l.Turns), m.Pipeline, m.long(l.Turns)

	const load = "load"
	rate := add(load, "rollouts a second", l.Rollouts/day, "1/s", "%s a day", Rounded(l.Rollouts))
	peak := add(load, "rollouts a second at the peak", rate*l.Peak, "1/s", "%g times the mean", l.Peak)
	add(load, "time of a rollout", l.Sandboxes/rate/3600, "h",
		"%s sandboxes by the rollouts a second (Little's law)", Rounded(l.Sandboxes))
	add(load, "turns a second", rate*turns, "1/s", "%d a rollout", l.Turns)
	add(load, "sampled tokens a second", rate*turns*l.Sampled, "1/s", "%g a turn", l.Sampled)

	const log = "log"
	fixed := one.EventsPerSecond/one.RolloutsPerSecond - 2*float64(one.Turns)
	events := add(log, "events of a rollout", fixed+2*turns, "",
		"2 a turn, and %.1f beside (pipeline: events_s by rollouts_s, %d turns)", fixed, one.Turns)
	eventsPeak := add(log, "events a second at the peak", events*peak, "1/s", "events of a rollout by rollouts")
	text := measured.Bytes - float64(m.Long.Tokens)*m.Long.LogPerToken
	turnBytes := add(log, "bytes of a turn", text+l.Sampled*m.Long.LogPerToken+l.Prompt*promptBytes, "B",
		"%s of texts and names, %.2f a sampled token (long), %g a new prompt token", Rounded(text),
		m.Long.LogPerToken, promptBytes)
	add(log, "bytes a second and replica at the peak", peak*turns*turnBytes/1e6, "MB/s", "bytes of a turn by turns")
	add(log, "streams of open rollouts", l.Sandboxes*turns/2*turnBytes/gib, "GiB",
		"half of the turns of each, where `log.keep: open` lets go of the others")
	subjects := add(log, "server memory for subjects", l.Sandboxes*events/2*l.Subject/gib, "GiB",
		"%g B for each event of open rollouts", l.Subject)

	const services = "services"
	own := turns * (measured.Own + measured.Requests) / 1000
	cores := add(services, "cores at the peak", peak*own, "",
		"%.1f ms a turn, requests included (long: own_ms, requests_ms of %d turns)",
		measured.Own+measured.Requests, measured.Turns)
	add(services, "nodes", math.Ceil(cores/(l.Cores*half)), "", "%g cores, half used", l.Cores)
	add(services, "memory for open rollouts", one.OpenGiB100k*l.Sandboxes/1e5, "GiB",
		"%.2f for 100,000 (pipeline)", one.OpenGiB100k)
	runRate := one.RolloutsPerSecond * float64(one.Turns) / turns
	runs := add(services, "runs side by side", math.Ceil(peak/(runRate*half)), "",
		"a run's deciders and log passed %.1f such rollouts a second on %d cores (pipeline, by turns); half of that each", runRate, one.CPUs)

	const runners = "sandboxes"
	memory := add(runners, "memory", l.Sandboxes*(m.Sandbox.HeldMiB+l.Memory)/1024, "GiB",
		"%.1f MiB for an idle one (sandbox), %g for its programs", m.Sandbox.HeldMiB, l.Memory)
	nodes := add(runners, "nodes", math.Ceil(memory/(l.NodeGiB*0.9)), "", "%g GiB, nine tenths used", l.NodeGiB)
	add(runners, "consumers of single runners", runs*nodes, "",
		"one for each node and run; by a pool for each run as many as nodes")
	add(runners, "made and destroyed a second at the peak", peak, "1/s",
		"one a rollout, %.1f ms each (sandbox: create_ms)", m.Sandbox.Create)

	const store = "store"
	writes := add(store, "writes of a rollout", one.StoreWrites+turns*l.Changing, "",
		"%.1f (pipeline), and one for each turn that changes files", one.StoreWrites)
	reads := add(store, "reads of a rollout", one.StoreReads+2, "",
		"%.1f (pipeline), and the workspace twice: the scorer, and a runner that takes it over", one.StoreReads)
	writesPeak := add(store, "writes a second at the peak", writes*peak, "1/s", "writes of a rollout by rollouts")
	tokens := turns * (l.Sampled + l.Prompt)
	bytes := add(store, "bytes of a trajectory", tokens*m.filePerToken(tokens), "B",
		"%s tokens of %.2f B (feed)", Rounded(tokens), m.filePerToken(tokens))
	kept := add(store, "kept", l.Rollouts*l.Keep*(2*bytes+turns*turnBytes)/1e12, "TB",
		"trajectory, batch and archive of %g days, the archive as large as the log; without workspaces", l.Keep)
	requests := add(store, "requests", l.Rollouts*(writes*l.Put+reads*l.Get)/1000, "USD/day",
		"%g for 1,000 writes, %g for 1,000 reads", l.Put, l.Get)
	add(store, "space", kept*1000*l.Month, "USD/month", "%g a GB and month", l.Month)
	add(store, "requests of a month", requests*30, "USD/month", "30 days")

	p.Limits = []Limit{
		{"one run: its deciders, and its stream's leader", l.Rollouts * runRate / peak,
			"more runs: each has its own stream and its own deciders, on whichever server and node"},
		{"one log server: events a second on the measured cores", l.Rollouts * one.EventsPerSecond / eventsPeak,
			"more servers: leaders of streams spread over a cluster"},
		{"one bucket prefix: writes a second", l.Rollouts * l.Prefix / writesPeak,
			"more prefixes: one for each plane, or for each run"},
		{"one log server: memory for subjects, in a quarter of a node", l.Rollouts * l.NodeGiB / 4 / subjects,
			"more clusters: a plane each, with runs of its own"},
	}
	slices.SortStableFunc(p.Limits, func(a, b Limit) int { return cmp.Compare(a.Rollouts, b.Rollouts) })
	return p, nil
}
