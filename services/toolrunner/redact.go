package toolrunner

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/redact"
	"github.com/rondo-rl/rondo/sandbox/tools"
	"github.com/rondo-rl/rondo/sandbox/toolset"
)

// redactWithin bounds the search of one turn.
const redactWithin = time.Minute

// redactResults takes the secrets out of what the calls of a turn answered, and returns how many by
// rule, nil for none. What is left of a text follows from the text alone, except that texts that
// cannot be searched in time are withheld as a whole. A variable of the shell that holds a secret
// is not kept beyond the turn.
func redactResults(ctx context.Context, results []events.ToolResult, state *toolset.State,
	within time.Duration) (map[string]int, error) {
	searching, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	counts := map[string]int{}
	find := func(text string) ([]redact.Span, error) {
		if text == "" {
			return nil, nil
		}
		found, err := redact.Find(searching, text)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil:
			found = []redact.Span{{Start: 0, End: len(text), Rule: events.Unsearched}}
		}
		for _, s := range found {
			counts[s.Rule]++
		}
		return found, nil
	}
	for i := range results {
		r := &results[i]
		found, err := find(r.Content)
		if err != nil {
			return nil, err
		}
		if len(found) > 0 {
			text, dropped := tools.Bounded(redact.Mask(r.Content, found))
			r.Content = text
			r.DroppedBytes += dropped
		}
	}
	if state.Shell != nil {
		shell, err := redactShell(*state.Shell, find)
		if err != nil {
			return nil, err
		}
		state.Shell = &shell
	}
	if len(counts) == 0 {
		return nil, nil
	}
	return counts, nil
}

// redactShell leaves out the variables, and the folder, that hold secrets.
func redactShell(shell toolset.Shell, find func(string) ([]redact.Span, error)) (toolset.Shell, error) {
	kept := toolset.Shell{Dir: shell.Dir, Unset: shell.Unset, Env: map[string]string{}}
	if found, err := find(shell.Dir); err != nil || len(found) > 0 {
		kept.Dir = ""
		if err != nil {
			return kept, err
		}
	}
	for name, value := range shell.Env {
		found, err := find(name + "=" + value)
		if err != nil {
			return kept, err
		}
		if len(found) == 0 {
			kept.Env[name] = value
		}
	}
	return kept, nil
}

// newRedacted is the count of secrets that were taken out.
func newRedacted(r prometheus.Registerer) (*prometheus.CounterVec, error) {
	return pipeline.ShareMetric(r, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "rondo_tool_redactions_total", Help: "Secrets that were taken out of what tools answered, by rule.",
	}, []string{"rule"}))
}
