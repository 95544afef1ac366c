package dashboard

import (
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/books"
)

const (
	// longestTask bounds the part of a task's name that is searched for, in bytes.
	longestTask = 200
	// maxExported bounds the rows of a file.
	maxExported = 100_000
)

// filter chooses rollouts of a run, as the address says. What is empty chooses all.
type filter struct {
	Outcome     books.Outcome
	Task        string // a part of the task's name, whatever its case
	Least, Most *float64
	FailedCalls bool // at least one call of a tool has failed
	Marked      bool // a person has marked it
}

// filterOf reads a filter. What it cannot read is refused: a filter that is left out would
// show what nobody asked for.
func filterOf(q url.Values) (f filter, err error) {
	f.Outcome, f.Task = books.Outcome(q.Get("outcome")), strings.TrimSpace(q.Get("task"))
	f.FailedCalls, f.Marked = q.Get("calls") == "failed", q.Get("marked") == "yes"
	switch {
	case f.Outcome != "" && !slices.Contains(outcomes, f.Outcome):
		return f, &refusal{http.StatusBadRequest, "There is no such outcome."}
	case q.Get("calls") != "" && !f.FailedCalls:
		return f, &refusal{http.StatusBadRequest, "Rollouts can be chosen by calls=failed alone."}
	case q.Get("marked") != "" && !f.Marked:
		return f, &refusal{http.StatusBadRequest, "Rollouts can be chosen by marked=yes alone."}
	case len(f.Task) > longestTask:
		return f, &refusal{http.StatusBadRequest, fmt.Sprintf("A part of a task's name has at most %d bytes.",
			longestTask)}
	}
	for name, bound := range map[string]**float64{"least": &f.Least, "most": &f.Most} {
		text := strings.TrimSpace(q.Get(name))
		if text == "" {
			continue
		}
		v, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
			return f, &refusal{http.StatusBadRequest, "The " + name + " reward must be a number."}
		}
		*bound = &v
	}
	if f.Least != nil && f.Most != nil && *f.Least > *f.Most {
		return f, &refusal{http.StatusBadRequest, "The least reward is above the most."}
	}
	return f, nil
}

// match is what a filter asks of a rollout beside its outcome; nil asks for nothing.
func (f filter) match(s *runState) func(books.Rollout) bool {
	if f.Task == "" && f.Least == nil && f.Most == nil && !f.FailedCalls && !f.Marked {
		return nil
	}
	part := strings.ToLower(f.Task)
	return func(r books.Rollout) bool {
		if (f.Least != nil || f.Most != nil) && !r.Scored {
			return false
		}
		return strings.Contains(strings.ToLower(r.Task), part) && (f.Least == nil || r.Reward >= *f.Least) &&
			(f.Most == nil || r.Reward <= *f.Most) &&
			(!f.FailedCalls || s.failing[r.ID] > 0) && (!f.Marked || s.marks[r.ID].Marked)
	}
}

// exported gives the rollouts that a filter chooses as a file, the newest first.
func (d *Dashboard) exported(w http.ResponseWriter, r *http.Request) error {
	f, err := filterOf(r.URL.Query())
	if err != nil {
		return err
	}
	b, release, err := d.folded(r)
	if err != nil {
		return err
	}
	defer release()
	b.mu.Lock()
	text, err := b.state.table(f)
	b.mu.Unlock()
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	w.Header().Set("Content-Disposition", `attachment; filename="`+b.run+`-rollouts.csv"`)
	_, _ = w.Write(text) // nobody listens where it fails
	return nil
}

// folded holds the book that a request is about, folded to its end: half of a run
// would look like all of it.
func (d *Dashboard) folded(r *http.Request) (b *book[runState], release func(), err error) {
	b, in, target, release, err := d.hold(r)
	if err != nil || b.has(in, target) {
		return b, release, err
	}
	d.shelf.follow(b)
	ctx, cancel := context.WithTimeout(r.Context(), answerTime)
	defer cancel()
	if b.await(ctx, target); !b.has(in, target) && !b.isOver() {
		release()
		return nil, nil, &refusal{http.StatusServiceUnavailable,
			fmt.Sprintf("Event %d of %d is read. Ask again when the run's page has all.", b.position(), target)}
	}
	return b, release, nil
}

// columns of the file. A cell without a value is empty.
var columns = []string{
	"rollout", "group", "task", "outcome", "reason", "stage", "reward", "advantage", "turns", "tokens",
	"sampled_tokens", "failed_calls", "policy_version", "step",
	"stop_reason", "forfeit", "failed_stage", "failed_class", "started_at", "ended_at", "marked", "comment",
}

func (s *runState) table(f filter) ([]byte, error) {
	rollouts, err := s.stands.chosen(f.Outcome, f.match(s), func(rows int) (int, int, error) {
		if rows > maxExported {
			return 0, 0, &refusal{http.StatusBadRequest,
				fmt.Sprintf("These are %d rollouts, and a file has at most %d: choose fewer.", rows, maxExported)}
		}
		return 0, rows, nil
	})
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	out := csv.NewWriter(&b)
	err = out.Write(columns)
	for _, r := range rollouts {
		row := entryOf(s.books, r)
		err = cmp.Or(err, out.Write([]string{
			r.ID, r.Group, inert(r.Task), string(row.Outcome), inert(row.Reason), row.Stage,
			figureIf(r.Scored, r.Reward), figureIf(r.Compared(), r.Advantage()), strconv.Itoa(r.Turns),
			wholeIf(r.Finished, int64(r.Tokens)), wholeIf(r.Finished, int64(r.Sampled)),
			strconv.FormatInt(s.failing[r.ID], 10), strconv.FormatInt(r.PolicyVersion, 10),
			wholeIf(row.Step > 0, row.Step),
			inert(r.StopReason), inert(r.Forfeit), inert(r.FailedStage), inert(r.Class),
			moment(r.Began), moment(r.Ended),
			strconv.FormatBool(s.marks[r.ID].Marked), inert(s.marks[r.ID].Comment),
		}))
	}
	out.Flush()
	return b.Bytes(), cmp.Or(err, out.Error())
}

// inert is a text that no program for tables takes for a formula.
func inert(text string) string {
	if text = clean(text); text != "" && strings.ContainsRune("=+-@\t\r", rune(text[0])) {
		return "'" + text
	}
	return text
}

func figureIf(known bool, v float64) string {
	if !known {
		return ""
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

func wholeIf(known bool, v int64) string {
	if !known {
		return ""
	}
	return strconv.FormatInt(v, 10)
}

func moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}
