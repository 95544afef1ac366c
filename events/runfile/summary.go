package runfile

import (
	"cmp"
	"fmt"
	"strings"
)

// What Limits.ContextFull may be.
const (
	// ContextTruncate ends the rollout, which is scored as it stands.
	ContextTruncate = "truncate"
	// ContextSummarise asks the model to sum its work up, and goes on with the summary in
	// place of the conversation.
	ContextSummarise = "summarise"
)

// DefaultSummaries is how often a rollout sums its work up where its run does not say.
const DefaultSummaries = 4

// DefaultSummaryPrompt asks a model to sum its work up.
const DefaultSummaryPrompt = "The context is full. Everything above will be removed, and you will go on with the task from your answer to this message alone. " +
	"Write down what you need for that: what you have found out, with the names of files and functions; what you have changed; which commands you " +
	"ran and what they showed; what does not work; and what is left to do, in order. The files stay as you left them. Be complete and short. Call no tools."

// Bounds of a run's summaries.
const (
	maxSummaries     = 1000
	maxSummaryPrompt = 16 << 10 // bytes
)

// Summaries is how often a rollout of the run may sum its work up.
func (c *RunConfig) Summaries() int {
	if c.Limits.ContextFull != ContextSummarise {
		return 0
	}
	return cmp.Or(c.Limits.Summaries, DefaultSummaries)
}

// SummaryRequest is the message that asks for a summary.
func (c *RunConfig) SummaryRequest() string { return cmp.Or(c.SummaryPrompt, DefaultSummaryPrompt) }

func (c *RunConfig) validateSummaries() (errs []error) {
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	l := c.Limits
	summarise := l.ContextFull == ContextSummarise
	check(l.ContextFull == "" || l.ContextFull == ContextTruncate ||
		summarise, "limits.context_full %.80q: must be %s or %s", l.ContextFull, ContextTruncate, ContextSummarise)
	check(l.Summaries >= 0 && l.Summaries <= maxSummaries, "limits.summaries %d: must be 0 to %d; 0 is %d", l.Summaries,
		maxSummaries, DefaultSummaries)
	check(summarise || l.Summaries == 0, "limits.summaries %d: it is for limits.context_full: %s", l.Summaries,
		ContextSummarise)
	check(summarise || c.SummaryPrompt == "", "summary_prompt: it is for limits.context_full: %s", ContextSummarise)
	check(c.SummaryPrompt == "" || strings.TrimSpace(c.SummaryPrompt) != "",
		"summary_prompt: it has no text; leave it out for the default")
	check(len(c.SummaryPrompt) <= maxSummaryPrompt, "summary_prompt: %d bytes, at most %d", len(c.SummaryPrompt),
		maxSummaryPrompt)
	check(!l.TellRoom ||
		!c.External, "limits.tell_room: the harness of an external run decides what its prompts hold; leave it out")
	check(!summarise || !c.External,
		"limits.context_full %s: the harness of an external run decides what its prompts hold; leave it out",
		ContextSummarise)
	return errs
}
