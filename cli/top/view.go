package top

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/evaluation/steps"
)

const readingLog = "reading the log …"

const maxConsumers = 12 // rows, the longest backlog first

// lines are a snapshot as text, without an end: who shows it cuts and scrolls. Texts of others are
// made fit for a terminal.
func (s Snapshot) lines() []app.Row {
	rows := []app.Row{s.head()}
	for _, o := range s.Outages {
		rows = append(rows, app.Row{{Text: "outage: " + app.Line(o.String(), 300), Style: app.Red}})
	}
	for _, why := range s.Unknown {
		rows = append(rows, app.Row{{Text: "not known: " + why, Style: app.Yellow}})
	}
	rows = append(rows, s.runTable()...)
	rows = append(rows, s.consumerTable()...)
	rows = append(rows, s.replicaTable()...)
	if s.DeadLetters.Total > 0 {
		rows = append(rows, app.Row{}, app.Row{{Text: "dead letters", Style: app.Bold}},
			app.Row{{Text: fmt.Sprintf("%d in all, the last one %s ago: %s", s.DeadLetters.Total,
				ago(s.At, s.DeadLetters.At), app.Line(s.DeadLetters.Last, 300)), Style: app.Plain}})
	}
	return rows
}

func (s Snapshot) head() app.Row {
	open, flying := 0, 0
	for _, r := range s.Runs {
		if r.State == "open" || r.State == "paused" {
			open++
		}
		for _, stage := range steps.Stages[:3] {
			flying += r.Stages[stage]
		}
	}
	where := app.Span{Text: app.Line(s.Where, 80), Style: app.Bold}
	if s.Reading {
		return app.Row{where, {Text: "   " + s.At.Format(time.TimeOnly) + "   " + readingLog}}
	}
	letters := app.Span{Text: fmt.Sprintf("   dead letters %d", s.DeadLetters.Total)}
	if s.DeadLetters.Total > 0 {
		letters.Style = app.Yellow
	}
	return app.Row{where, {Text: fmt.Sprintf("   %s   open runs %d   rollouts at work %d", s.At.Format(time.TimeOnly),
		open, flying)}, letters}
}

// section is a table under a title.
func section(title string, t *app.Table) []app.Row {
	rows := []app.Row{{}, {{Text: title, Style: app.Bold}}}
	for i, line := range t.Lines() {
		style := app.Plain
		if i == 0 {
			style = app.Faint
		}
		rows = append(rows, app.Row{{Text: line, Style: style}})
	}
	return rows
}

func note(title, text string) []app.Row {
	return []app.Row{{}, {{Text: title, Style: app.Bold}}, {{Text: text, Style: app.Faint}}}
}

func (s Snapshot) runTable() []app.Row {
	if len(s.Runs) == 0 && s.Reading {
		return note("runs", readingLog)
	}
	if len(s.Runs) == 0 {
		return note("runs", "none yet: `rondo run open` opens one")
	}
	t := app.NewTable("RUN", "STATE", "STEP", "REWARD", "", "STALENESS", "VERSION", "MODEL", "TOOLS", "VERIFIER",
		"GROUP", "FEED", "TRAINER", "OLDEST", "TOKENS/S", "NOTE")
	for _, r := range s.Runs {
		cells := []any{r.Name, r.State}
		if r.Last == nil {
			cells = append(cells, "-", "-", "", "-")
		} else {
			cells = append(cells, r.Last.Step, r.Last.Figures["reward/mean"], spark(r.Rewards),
				r.Last.Figures["staleness/max"])
		}
		cells = append(cells, r.Version)
		for _, stage := range steps.Stages {
			cells = append(cells, r.Stages[stage])
		}
		oldest, tokens := any("-"), any("-")
		if !r.Oldest.IsZero() {
			oldest = ago(s.At, r.Oldest)
		}
		if r.Last != nil {
			tokens = strconv.FormatFloat(r.Last.Figures["throughput/sampled_tokens_per_second"], 'f', 0, 64)
		}
		why := r.Reason
		if r.Unreadable != "" {
			why = "unreadable: " + r.Unreadable
		}
		t.Row(append(cells, oldest, tokens, app.Line(why, 120))...)
	}
	rows := section("runs", t)
	if s.More > 0 {
		rows = append(rows, app.Row{{Text: fmt.Sprintf("and %d more: `rondo run list` lists them", s.More),
			Style: app.Faint}})
	}
	return rows
}

func (s Snapshot) consumerTable() []app.Row {
	busy := slices.DeleteFunc(slices.Clone(s.Consumers),
		func(c Consumer) bool { return c.Waiting == 0 && c.Taken == 0 })
	if len(busy) == 0 {
		return note("backlog", fmt.Sprintf("none: %d consumers have nothing to do", len(s.Consumers)))
	}
	t := app.NewTable("CONSUMER", "STREAM", "WAITING", "TAKEN", "AGAIN")
	for _, c := range busy[:min(len(busy), maxConsumers)] {
		t.Row(c.Name, c.Stream, c.Waiting, c.Taken, c.Again)
	}
	rows := section("backlog", t)
	if more := len(busy) - maxConsumers; more > 0 {
		rows = append(rows, app.Row{{Text: fmt.Sprintf("and %d more consumers", more), Style: app.Faint}})
	}
	return rows
}

func (s Snapshot) replicaTable() []app.Row {
	if len(s.Replicas) == 0 {
		return nil
	}
	t := app.NewTable("REPLICA", "POLICY", "VERSION", "BEHIND", "SAID", "STATE")
	for _, r := range s.Replicas {
		state := "serves"
		if r.Lost {
			state = "lost"
		}
		t.Row(app.Line(r.Name, 80), r.Policy, r.Version, r.Behind, ago(s.At, r.At)+" ago", state)
	}
	return section("replicas", t)
}

// ago is a time in the past in its largest unit, such as 5m.
func ago(now, then time.Time) string {
	d := max(0, now.Sub(then))
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}

const maxSpark = 16 // columns, one for each of the last steps

// spark draws values as blocks, from the lowest of them to the highest.
func spark(values []float64) string {
	values = values[max(0, len(values)-maxSpark):]
	if len(values) < 2 {
		return ""
	}
	blocks := []rune("▁▂▃▄▅▆▇█")
	low, high := slices.Min(values), slices.Max(values)
	var b strings.Builder
	for _, v := range values {
		level := 0
		if high > low {
			level = int((v - low) / (high - low) * float64(len(blocks)-1))
		}
		b.WriteRune(blocks[min(max(level, 0), len(blocks)-1)])
	}
	return b.String()
}
