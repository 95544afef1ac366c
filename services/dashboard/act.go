package dashboard

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
)

const (
	// maxForm bounds what a form sends.
	maxForm = 8 << 10
	// intakeTime bounds the wait for the intake.
	intakeTime = 15 * time.Second
)

// statements are what an operator may state of a run on its page.
var statements = map[string]struct {
	typ  events.Type
	data any
}{
	"pause":  {events.RunPausedType, events.RunPaused{Reason: "paused on the dashboard"}},
	"resume": {events.RunResumedType, events.RunResumed{Reason: "resumed on the dashboard"}},
	"cancel": {events.RunClosedType, events.RunClosed{Reason: "cancelled on the dashboard"}},
}

var errToken = &refusal{http.StatusForbidden,
	"That is not the token of this dashboard. The file dashboard.token of the plane's folder has it."}

// act states a fact about a run for who shows the token.
func (d *Dashboard) act(w http.ResponseWriter, r *http.Request) error {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		return &refusal{http.StatusBadRequest, "The form cannot be read."}
	}
	if !d.keys.mayAct(r) {
		return errToken
	}
	run := r.PathValue("run")
	statement, ok := statements[r.PostForm.Get("action")]
	if !ok || !events.ValidRun(run) {
		return errNone
	}
	ctx, cancel := context.WithTimeout(r.Context(), intakeTime)
	defer cancel()
	_, err := d.intake.Submit(ctx, eventlog.Submission{Run: run, Type: statement.typ, Entity: run, Data: statement.data,
		ID: nats.NewInbox()[7:], Source: "dashboard"})
	switch {
	case errors.Is(err, eventlog.ErrRefused):
		return &refusal{http.StatusConflict, clip(err.Error(), 1000)}
	case errors.Is(err, context.DeadlineExceeded):
		return &refusal{http.StatusServiceUnavailable,
			"The intake does not answer. Look at the run again before you repeat this."}
	case err != nil:
		return err
	}
	d.logger.Info("run changed", "run", run, "action", r.PostForm.Get("action"))
	http.Redirect(w, r, "/runs/"+run, http.StatusSeeOther)
	return nil
}
