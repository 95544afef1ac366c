// Package agent measures what an agent of one's own costs beside the plane's own loop, and what the
// gateway adds to its requests.
//
// The services are the real ones, on an embedded log, a store and sandboxes of this machine, but
// for the scorer, which answers at once. The inference server is scripted and in this process. The
// null agent is this program in the sandboxes: it asks for turns by the gateway's address of the
// loopback and reads the lines of a file that each of them but the last one calls for. The loop has
// the same prompt, the same tools and the same answers.
//
// Loop and agents take turns, each on a plane of its own. Processor time is that of this process
// and of all processes in its sandboxes, less what the null agents have used themselves, as they
// say at their ends. Then agents are asked with a model that takes so long that turns come at half
// the pace. Beside them the same conversations are held in this process, with the same server
// behind a bare proxy. At last harnesses hold conversations by streams, by the gateway and by a
// bare proxy, at full pace and at half of it.
package agent

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/rondo-rl/rondo/bench/figures"
)

// Options of a measurement. The zero value is the documented default.
type Options struct {
	// Rollouts of one side of a pair, and of a measurement at half load.
	Rollouts int `json:"rollouts"` // default 32
	// Turns of a rollout: in all but the last one a tool is called.
	Turns int `json:"turns"` // default 20
	// Tokens that are sampled in a turn.
	Tokens int `json:"tokens"` // default 128
	// AtOnce is how many rollouts are under way at once.
	AtOnce int `json:"at_once"` // default 4
	// Pairs of turns of both sides: loop, agents, loop, agents, …
	Pairs int `json:"pairs"` // default 3
	// Dir holds the files while they are needed; "" is a temporary directory.
	Dir string `json:"-"`
	// AllowInsecure runs tools and agents without isolation where the kernel refuses it.
	AllowInsecure bool `json:"-"`
}

// groupSize is that of all runs.
const groupSize = 4

func (o Options) withDefaults() (Options, error) {
	o.Rollouts, o.Turns, o.Tokens = cmp.Or(o.Rollouts, 32), cmp.Or(o.Turns, 20), cmp.Or(o.Tokens, 128)
	o.AtOnce, o.Pairs = cmp.Or(o.AtOnce, 4), cmp.Or(o.Pairs, 3)
	if o.Rollouts < groupSize || o.Rollouts > 10_000 || o.Rollouts%groupSize != 0 ||
		o.Turns < 2 || o.Turns > 1000 || o.Tokens < 16 || o.Tokens > 4096 {
		return o, fmt.Errorf("%d rollouts of %d turns of %d tokens: must be a multiple of %d up to 10000, of 2 to 1000, of 16 to 4096",
			o.Rollouts, o.Turns, o.Tokens, groupSize)
	}
	if o.AtOnce < 1 || o.AtOnce > 256 || o.Pairs < 1 || o.Pairs > 100 {
		return o, fmt.Errorf("%d rollouts at once, %d pairs: must be 1 to 256, 1 to 100", o.AtOnce, o.Pairs)
	}
	return o, nil
}

// Result of a measurement.
type Result struct {
	Options
	Go   string `json:"go"`
	CPUs int    `json:"cpus"`
	// Loop and Agent are the medians of both sides.
	Loop  Side `json:"loop"`
	Agent Side `json:"agent"`
	// Ratio is the median over the pairs of the processor time of an agent's rollout, without the
	// agent's own, to that of the loop's.
	Ratio float64 `json:"agent_vs_loop_cpu"`
	// RestartSeconds is how long an agent takes that is started anew, from its start to its first
	// new request, for each recorded turn: there are Recorded.
	RestartSeconds float64 `json:"restart_s_per_turn"`
	Recorded       int     `json:"recorded_turns"`
	// Whole is until the end of an answer, at half load: as agents see it, and by a bare proxy.
	Whole    Beside  `json:"whole_answers"`
	AddedP50 float64 `json:"gateway_added_ms_p50"`
	AddedP99 float64 `json:"gateway_added_ms_p99"`
	// First is until the first words of a stream, at half load.
	First      Beside  `json:"first_tokens"`
	FirstAdded float64 `json:"gateway_first_token_added_ms_p50"`
	FirstP99   float64 `json:"gateway_first_token_added_ms_p99"`
}

// Side is the plane's own loop, or agents.
type Side struct {
	RolloutsPerSecond float64 `json:"rollouts_s"`
	// CPU is the processor time of a rollout in ms: of this process, log and scripted server
	// included, and of all that runs in sandboxes but the agents themselves, which use Own.
	CPU float64 `json:"cpu_ms_per_rollout"`
	Own float64 `json:"own_cpu_ms_per_rollout,omitempty"`
}

// Beside is what took some time by the gateway, beside the same by a bare proxy in the same run.
type Beside struct {
	// PerSecond is how many turns came by the gateway.
	PerSecond float64         `json:"turns_s"`
	Gateway   figures.Latency `json:"gateway"`
	Proxy     figures.Latency `json:"proxy"`
}

func (b Beside) added() (p50, p99 float64) {
	return b.Gateway.P50 - b.Proxy.P50, b.Gateway.P99 - b.Proxy.P99
}

// Run measures. Lines say what was measured, and now is what is going on.
func Run(ctx context.Context, o Options, line, now func(string)) (r Result, err error) {
	if o, err = o.withDefaults(); err != nil {
		return Result{}, err
	}
	if o.Dir == "" {
		if o.Dir, err = os.MkdirTemp("", "rondo-bench-"); err != nil {
			return Result{}, err
		}
		defer os.RemoveAll(o.Dir)
	}
	o.Dir, err = filepath.Abs(o.Dir)
	if err != nil {
		return Result{}, err
	}
	now("putting the null agent into a layer")
	l, err := makeLayer(ctx, o.Dir)
	if err != nil {
		return Result{}, fmt.Errorf("make the null agent's layer: %w", err)
	}
	r = Result{Options: o, Go: runtime.Version(), CPUs: runtime.GOMAXPROCS(0), Recorded: restartTurns}
	begin, err := sides(ctx, l, &r, line, now)
	if err != nil {
		return r, err
	}
	for _, part := range []struct {
		name string
		run  func(context.Context, layer, beginning, *Result, func(string)) error
	}{{"start an agent anew", restart}, {"agents at half load", half}, {"streams at half load", streams}} {
		if err := part.run(ctx, l, begin, &r, now); err != nil {
			return r, fmt.Errorf("%s: %w", part.name, err)
		}
	}
	r.AddedP50, r.AddedP99 = r.Whole.added()
	r.FirstAdded, r.FirstP99 = r.First.added()
	return r, nil
}

// sides measures loop and agents in pairs, and gives what the loop's conversations begin with.
func sides(ctx context.Context, l layer, r *Result, line, now func(string)) (begin beginning, err error) {
	var loops, agents []Side
	var ratios []float64
	for pair := range r.Pairs {
		loop, begun, err := side(ctx, r.Options, l, nil, now)
		if err != nil {
			return begin, fmt.Errorf("pair %d, the plane's own loop: %w", pair+1, err)
		}
		begin = begun
		agent, _, err := side(ctx, r.Options, l, &begin, now)
		if err != nil {
			return begin, fmt.Errorf("pair %d, agents: %w", pair+1, err)
		}
		loops, agents, ratios = append(loops, loop), append(agents, agent), append(ratios, agent.CPU/loop.CPU)
		line(fmt.Sprintf("pair %d of %d: loop %.1f rollouts/s, %.1f ms each; agents %.1f rollouts/s, %.1f ms each and %.1f ms of their own; ratio %.2f",
			pair+1, r.Pairs, loop.RolloutsPerSecond, loop.CPU, agent.RolloutsPerSecond, agent.CPU,
			agent.Own, ratios[pair]))
	}
	r.Loop, r.Agent, r.Ratio = median(loops), median(agents), figures.Median(ratios)
	return begin, nil
}

func median(sides []Side) Side {
	of := func(field func(Side) float64) float64 {
		var values []float64
		for _, s := range sides {
			values = append(values, field(s))
		}
		return figures.Median(values)
	}
	return Side{
		of(func(s Side) float64 { return s.RolloutsPerSecond }), of(func(s Side) float64 { return s.CPU }),
		of(func(s Side) float64 { return s.Own }),
	}
}
