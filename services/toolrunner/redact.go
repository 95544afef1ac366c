package toolrunner

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runtime"
	"github.com/rondo-rl/rondo/events/secrets"
	"github.com/rondo-rl/rondo/sandbox/tools"
)

// redactWithin bounds the search of one turn.
const redactWithin = time.Minute

// redact takes the secrets out of what the calls of a turn answered, and returns how many by rule, nil for none. What is left of a
// text follows from the text alone, except that texts that cannot be searched in time are withheld as a whole.
func redact(ctx context.Context, results []events.ToolResult, within time.Duration) (map[string]int, error) {
	searching, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	counts := map[string]int{}
	for i := range results {
		text := &results[i].Content
		if *text == "" {
			continue
		}
		found, err := secrets.Find(searching, *text)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil:
			found = []secrets.Span{{Start: 0, End: len(*text), Rule: events.Unsearched}}
		}
		if len(found) == 0 {
			continue
		}
		*text = tools.Bounded(secrets.Mask(*text, found))
		for _, s := range found {
			counts[s.Rule]++
		}
	}
	if len(counts) == 0 {
		return nil, nil
	}
	return counts, nil
}

// newRedacted is the count of secrets that were taken out.
func newRedacted(r prometheus.Registerer) (*prometheus.CounterVec, error) {
	return runtime.ShareMetric(r, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "rondo_tool_redactions_total", Help: "Secrets that were taken out of what tools answered, by rule.",
	}, []string{"rule"}))
}
