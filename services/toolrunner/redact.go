package toolrunner

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pelletier/go-toml/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/zricethezav/gitleaks/v8/config"
	"github.com/zricethezav/gitleaks/v8/detect"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runtime"
	"github.com/rondo-rl/rondo/sandbox/tools"
)

const (
	// redactWithin bounds the search of one turn: 160 KiB take milliseconds, or most of a minute where they are made for that.
	redactWithin = time.Minute
	// window is what is searched at once, as some rules take the square of it; overlap is more than a PEM key of 8192 bits has.
	window, overlap = 16 << 10, 8 << 10
)

// secrets finds them by the default rules of gitleaks. It is made for the first run that wants it, as its rules take 12 MB.
var secrets = sync.OnceValues(func() (*detect.Detector, error) {
	// Not by detect.NewDetectorDefaultConfig, which goes by way of settings that the whole process shares.
	var rules config.ViperConfig
	if err := toml.Unmarshal([]byte(config.DefaultConfig), &rules); err != nil {
		return nil, fmt.Errorf("read the rules for secrets: %w", err)
	}
	cfg, err := rules.Translate()
	if err != nil {
		return nil, fmt.Errorf("read the rules for secrets: %w", err)
	}
	d := detect.NewDetector(cfg)
	d.IgnoreGitleaksAllow = true // a comment beside a secret is no reason to let it out
	return d, nil
})

// redact takes the secrets out of what the calls of a turn answered, and returns how many by rule, nil for none. What is left of a
// text follows from the text alone, except that texts that cannot be searched in time are withheld as a whole.
func redact(ctx context.Context, results []events.ToolResult, within time.Duration) (map[string]int, error) {
	d, err := secrets()
	if err != nil {
		return nil, err
	}
	searching, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	counts := map[string]int{}
	for i := range results {
		text := &results[i].Content
		if *text == "" {
			continue
		}
		found, err := search(searching, d, *text)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil:
			found = []span{{0, len(*text), events.Unsearched}}
		}
		if len(found) == 0 {
			continue
		}
		*text = tools.Bounded(masked(*text, found))
		for _, s := range found {
			counts[s.rule]++
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

// span is a part of a text that is a secret by a rule.
type span struct {
	start, end int
	rule       string
}

// search finds every occurrence of every secret of a text, in order, those that touch each other as one. What a rule knows by the
// words around it is found where it stands without them, too.
func search(ctx context.Context, d *detect.Detector, text string) ([]span, error) {
	rules := map[string]string{}
	for _, part := range windows(text) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		for _, f := range d.DetectString(part) {
			secret := cmp.Or(f.Secret, f.Match)
			if rule, known := rules[secret]; secret != "" && (!known || f.RuleID < rule) { // findings are in no order
				rules[secret] = f.RuleID
			}
		}
	}
	var all []span
	for secret, rule := range rules {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		for at := 0; ; {
			next := strings.Index(text[at:], secret)
			if next < 0 {
				break
			}
			all = append(all, span{at + next, at + next + len(secret), rule})
			at += next + 1
		}
	}
	return merged(all), nil
}

// windows are parts of a text that overlap, most often at the end of a line.
func windows(text string) (parts []string) {
	for len(text) > window {
		const last = window * 3 / 4
		end := window
		if line := strings.LastIndexByte(text[last:end], '\n'); line >= 0 {
			end = last + line + 1
		}
		parts = append(parts, text[:end])
		text = text[end-overlap:]
	}
	return append(parts, text)
}

func merged(all []span) (apart []span) {
	slices.SortFunc(all, func(a, b span) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(b.end, a.end), strings.Compare(a.rule, b.rule))
	})
	for _, s := range all {
		if last := len(apart) - 1; last >= 0 && s.start <= apart[last].end {
			apart[last].end = max(apart[last].end, s.end)
			continue
		}
		apart = append(apart, s)
	}
	return apart
}

// masked is the text with a marker in the place of each span.
func masked(text string, found []span) string {
	var out strings.Builder
	at := 0
	for _, s := range found {
		out.WriteString(text[at:s.start])
		out.WriteString("[redacted: " + s.rule + "]")
		at = s.end
	}
	out.WriteString(text[at:])
	return out.String()
}
