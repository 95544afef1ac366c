package dashboard

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/nats-io/nats.go"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
)

const (
	// longestComment bounds the comment of a mark, in characters.
	longestComment = 2000
	// maxMarkForm bounds what the form of a mark sends: a character takes up to 12 bytes there.
	maxMarkForm = 32 << 10
)

// mark is what people said of a rollout last.
type mark struct {
	Marked  bool
	Comment string // the last one that is not empty
}

// mark folds what a person said of a rollout.
func (s *runState) mark(e events.Event) error {
	said, err := events.Data[events.MarkRecorded](e)
	if err != nil {
		return err
	}
	m := s.marks[e.Entity]
	if m.Marked = said.Marked; said.Text != "" {
		m.Comment = said.Text
	}
	s.marks[e.Entity] = m
	return nil
}

// comment marks a rollout, or takes the mark away, for who shows the token.
func (d *Dashboard) comment(w http.ResponseWriter, r *http.Request) error {
	r.Body = http.MaxBytesReader(w, r.Body, maxMarkForm)
	if err := r.ParseForm(); err != nil {
		return &refusal{http.StatusBadRequest, "The form cannot be read."}
	}
	if !d.keys.mayAct(r) {
		return errToken
	}
	run, rollout, action := r.PathValue("run"), r.PathValue("rollout"), r.PostForm.Get("action")
	text := strings.TrimSpace(strings.ReplaceAll(r.PostForm.Get("text"), "\r\n", "\n"))
	switch {
	case !events.ValidRun(run) || !runfile.ValidToken(rollout) || action != "mark" && action != "unmark":
		return errNone
	case !utf8.ValidString(text) || utf8.RuneCountInString(text) > longestComment:
		return &refusal{http.StatusBadRequest, "A comment has at most 2000 characters."}
	}
	ctx, cancel := context.WithTimeout(r.Context(), intakeTime)
	defer cancel()
	said := events.MarkRecorded{Marked: action == "mark", Text: text}
	_, err := d.intake.Submit(ctx, eventlog.Submission{Run: run, Type: events.MarkRecordedType, Entity: rollout,
		Data: said, ID: nats.NewInbox()[7:], Source: "dashboard"})
	switch {
	case errors.Is(err, eventlog.ErrRefused):
		return &refusal{http.StatusConflict, clip(err.Error(), 1000)}
	case errors.Is(err, context.DeadlineExceeded):
		return &refusal{http.StatusServiceUnavailable,
			"The intake does not answer. Look at the rollout again before you repeat this."}
	case err != nil:
		return err
	}
	http.Redirect(w, r, "/runs/"+run+"/rollouts/"+rollout+"#mark-h", http.StatusSeeOther)
	return nil
}
