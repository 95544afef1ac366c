// Package audit proves or refutes, from a log and a store alone, what Rondo promises of a run:
// chains without gaps or forks, no event twice, one outcome for each rollout, no rollout trained
// twice, every referenced object present with its digest, and books that add up.
package audit

import (
	"context"
	"fmt"

	"github.com/rondo-rl/rondo/books"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/storage"
)

// The rules, by the names that findings carry.
const (
	RuleChain     = "chain"     // an event's prev is the sequence of its entity's last event
	RuleDuplicate = "duplicate" // an event's id stands once
	RuleIdentity  = "identity"  // an event's id and subject say the same
	RuleTurns     = "turns"     // turns and their answers follow each other without gaps
	RuleOutcome   = "outcome"   // a rollout has one outcome, and nothing happens after it
	RuleGroup     = "group"     // a completed group has the rewards that were scored
	// steps have no gaps, no rollout stands in two batches of a feed, files hold what facts say
	RuleBatch = "batch"
	// every scored member of a batched group is trained on or masked, for the reason that holds
	RuleMembers   = "members"
	RuleStaleness = "staleness" // the first feed's rollouts are not older than the bound when their batch is consumed
	RuleAdvantage = "advantage" // advantages and annotations in a batch's files follow from the facts
	RuleObject    = "object"    // referenced objects are there with their digest
	RuleDecision  = "decision"  // a decision was made on what stood on the log before it
	RuleArchive   = "archive"   // catalogue, stream and archive of the run agree
	RuleLedger    = "ledger"    // started = trained + stale + filtered + failed + in flight
)

// Finding is one broken promise.
type Finding struct {
	Rule     string `json:"rule"`
	Event    string `json:"event"`
	Sequence uint64 `json:"sequence"`
	Message  string `json:"message"`
}

func (f Finding) String() string {
	return fmt.Sprintf("%s: %s at sequence %d: %s", f.Rule, f.Event, f.Sequence, f.Message)
}

// Report is the verdict on one run.
type Report struct {
	Run        string          `json:"run"`
	Events     int64           `json:"events"`
	Objects    int             `json:"objects"`
	Duplicates int             `json:"duplicates"`
	Feeds      []books.Balance `json:"feeds"`
	Findings   []Finding       `json:"findings"`
}

// maxFindings bounds a report: a log that broken needs no more lines.
const maxFindings = 1000

// Checker takes a run's events in the order of the log.
type Checker struct {
	ctx      context.Context
	store    storage.Store
	report   Report
	books    *books.Run
	ids      map[string]uint64
	tails    map[string]uint64
	rollouts map[string]*rolloutState
	groups   map[string]*groupState
	steps    map[string]int64            // feed → last step
	batched  map[string]map[string]int64 // feed → rollout → step
	objects  map[string]bool             // keys that were looked at
	policy   progress
	ready    map[int64]composed // step → batch of the first feed that nobody has consumed
}

// New makes a checker for one run.
func New(ctx context.Context, run string, store storage.Store) *Checker {
	return &Checker{
		ctx: ctx, store: store, report: Report{Run: run, Findings: []Finding{}}, books: books.New(run),
		ids: map[string]uint64{}, tails: map[string]uint64{},
		rollouts: map[string]*rolloutState{}, groups: map[string]*groupState{},
		steps: map[string]int64{}, batched: map[string]map[string]int64{}, objects: map[string]bool{},
		ready: map[int64]composed{},
	}
}

// Check reads a run's whole stream and its objects.
func Check(ctx context.Context, log eventlog.Reader, run string) (Report, error) {
	c := New(ctx, run, log.Store())
	for e, err := range log.All(ctx, run, 1) {
		if err != nil {
			return c.report, fmt.Errorf("check run %s: %w", run, err)
		}
		if err := c.Event(e); err != nil {
			return c.report, fmt.Errorf("check run %s: %w", run, err)
		}
	}
	return c.Finish(), nil
}

// Event takes the next event in. The error is a store that cannot be asked; what is wrong
// with the run is a finding.
func (c *Checker) Event(e events.Event) error {
	c.report.Events++
	c.identity(e)
	c.chain(e)
	if err := c.books.Apply(e); err != nil {
		c.find(RuleIdentity, e, "%v", err)
		return nil
	}
	switch e.Type.Kind() {
	case "rollout":
		c.rollout(e)
	case "group":
		c.group(e)
	case events.WeightsPublishedType.Kind():
		c.published(e)
	case events.RunOpenedType.Kind():
		if e.Type == events.RunOpenedType {
			opened, err := events.Data[events.RunOpened](e)
			if err != nil {
				c.find(RuleIdentity, e, "%v", err)
			}
			c.policy.version = opened.BeginsAt()
		}
	case "batch":
		if err := c.batch(e); err != nil {
			return err
		}
	}
	return c.references(e)
}

// Finish closes the books.
func (c *Checker) Finish() Report {
	for _, feed := range c.books.Feeds() {
		b := c.books.Balance(feed)
		c.report.Feeds = append(c.report.Feeds, b)
		if !b.AddsUp() || b.Started != len(c.rollouts) {
			c.find(RuleLedger, events.Event{ID: c.report.Run},
				"feed %s: %d started, but %d trained + %d stale + %d filtered + %d failed + %d in flight",
				feed, len(c.rollouts), b.Trained, b.Stale, b.Filtered, b.Failed, b.InFlight)
		}
	}
	c.report.Objects = len(c.objects)
	return c.report
}

// Books are the run's books as far as they were read.
func (c *Checker) Books() *books.Run { return c.books }

func (c *Checker) find(rule string, e events.Event, format string, args ...any) {
	if rule == RuleDuplicate {
		c.report.Duplicates++
	}
	if len(c.report.Findings) < maxFindings {
		c.report.Findings = append(c.report.Findings, Finding{Rule: rule, Event: e.ID, Sequence: e.Seq,
			Message: fmt.Sprintf(format, args...)})
	}
}

// identity checks that the event is there once and is what its subject says.
func (c *Checker) identity(e events.Event) {
	if first, ok := c.ids[e.ID]; ok {
		c.find(RuleDuplicate, e, "it stands at sequence %d already", first)
	}
	c.ids[e.ID] = e.Seq
	prefix := events.ID(e.Run, e.Type, e.Entity, "")
	if len(e.ID) <= len(prefix) || e.ID[:len(prefix)] != prefix {
		c.find(RuleIdentity, e, "its subject %s belongs to %s…", e.Subject(), prefix)
	}
	if !e.DecidedAt.IsZero() && e.AsOf >= e.Seq {
		c.find(RuleDecision, e, "it was decided as of sequence %d", e.AsOf)
	}
}

// chain checks that the event follows its entity's last one.
func (c *Checker) chain(e events.Event) {
	tail := c.tails[e.Chain()]
	if e.Prev != tail {
		c.find(RuleChain, e, "it follows sequence %d, but the last event of its chain is %d", e.Prev, tail)
	}
	c.tails[e.Chain()] = e.Seq
}
