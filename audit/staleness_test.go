package audit

import (
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
)

func (p *tape) published(run string, version, through int64) {
	p.state(events.WeightsPublishedType, "policy", events.Ordinal(version),
		events.WeightsPublished{Policy: "policy", Version: version, Run: run, ThroughStep: through})
}

// TestStalenessWhenConsumed: the bound of goodRun is 1, and its only batch is of version 0.
func TestStalenessWhenConsumed(t *testing.T) {
	consume := func(p *tape, session string) {
		p.state(events.BatchConsumedType, "f", "1-"+session, events.BatchConsumed{Step: 1})
	}
	configure := func(p *tape, change func(*runfile.RunConfig)) {
		edit(p, events.RunOpenedType, "r", func(d *events.RunOpened) { change(&d.Config) })
	}
	before := func(p *tape) { // one version before that of the dispatch
		edit(p, events.RolloutFinishedType, "g000001-0", func(d *events.RolloutFinished) { d.MinVersion = -1 })
	}
	twoVersions := func(p *tape) {
		p.published("r", 1, 1)
		p.published("r", 2, 2)
		consume(p, "a")
	}
	for _, c := range []struct {
		name   string
		happen func(*tape)
		old    bool
	}{
		{"one version", func(p *tape) { p.published("r", 1, 1); consume(p, "a") }, false},
		{"two versions", twoVersions, true},
		{"one version for two steps", func(p *tape) { p.published("r", 1, 2); consume(p, "a") }, false},
		{"another run's version on top", func(p *tape) {
			p.published("r", 1, 1)
			p.published("other", 2,
				9)
			consume(p, "a")
		}, false},
		{"another run's version, and two", func(p *tape) {
			p.published("other", 1, 9)
			p.published("r", 2, 1)
			p.published("r", 3, 2)
			consume(p, "a")
		}, true},
		{"again after a rewind", func(p *tape) { consume(p, "b"); twoVersions(p) }, false},
		{"a step further than there is", func(p *tape) {
			p.published("r", 1, 1)
			p.published("r", 2, 2)
			p.state(events.BatchConsumedType, "f", "7", events.BatchConsumed{Step: 7})
		}, true},
		{"another feed's step", func(p *tape) {
			p.published("r", 1, 1)
			p.published("r", 2, 2)
			p.state(events.BatchConsumedType, "sft", "1", events.BatchConsumed{Step: 1})
		}, false},
		{"a feed that keeps what is old", func(p *tape) {
			configure(p, func(c *runfile.RunConfig) { c.Staleness.Policy = runfile.StaleKeep })
			twoVersions(p)
		}, false},
		{"tokens from before the dispatch", func(p *tape) { before(p); p.published("r", 1, 1); consume(p, "a") },
			false},
		{"tokens from before the dispatch, where versions are required", func(p *tape) {
			configure(p, func(c *runfile.RunConfig) { c.Staleness.RequireVersions = true })
			before(p)
			p.published("r", 1, 1)
			consume(p, "a")
		}, true},
		{"an external run before its first weights", func(p *tape) {
			configure(p,
				func(c *runfile.RunConfig) { c.External = true })
			twoVersions(p)
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := goodRun(t)
			p.remove(events.BatchConsumedType, "f")
			c.happen(p)
			old := false
			for _, f := range p.check().Findings {
				if f.Rule != RuleStaleness {
					t.Errorf("unexpected finding: %v", f)
					continue
				}
				old = true
			}
			if old != c.old {
				t.Errorf("found too old: %v, want %v", old, c.old)
			}
		})
	}
}
