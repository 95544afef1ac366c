package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/storage"
)

// redrive submits a refused submission again, as it was, for who shows the token: after its cause
// was mended. The intake judges it anew. Its id follows from the letter, so that a letter is taken
// in once however often the button is pressed.
func (d *Dashboard) redrive(w http.ResponseWriter, r *http.Request) error {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		return &refusal{http.StatusBadRequest, "The form cannot be read."}
	}
	if !d.keys.mayAct(r) {
		return errToken
	}
	seq, err := strconv.ParseUint(r.PostForm.Get("letter"), 10, 64)
	if err != nil {
		return errNone
	}
	b, _, release, err := d.openCatalogue(r, 0)
	if err != nil {
		return err
	}
	defer release()
	b.mu.Lock()
	at := slices.IndexFunc(b.state.letters, func(l letter) bool { return l.Seq == seq })
	var l letter
	if at >= 0 {
		l = b.state.letters[at]
	}
	b.mu.Unlock()
	if at < 0 || !l.Redrivable() {
		return errNone
	}
	ctx, cancel := context.WithTimeout(r.Context(), intakeTime)
	defer cancel()
	s, err := d.submission(ctx, l)
	if err == nil {
		_, err = d.intake.Submit(ctx, s)
	}
	switch {
	case errors.Is(err, eventlog.ErrRefused), storage.IsUnusable(err), errors.Is(err, events.ErrMalformed):
		return &refusal{http.StatusConflict, clip(err.Error(), 1000)}
	case errors.Is(err, context.DeadlineExceeded):
		return &refusal{http.StatusServiceUnavailable,
			"The intake does not answer. Look at the run again before you repeat this."}
	case err != nil:
		return err
	}
	d.logger.Info("dead letter submitted again", "letter", seq, "subject", l.Subject)
	http.Redirect(w, r, fmt.Sprintf("/plane?redriven=%d#letters-h", seq), http.StatusSeeOther)
	return nil
}

// submission is what a letter holds.
func (d *Dashboard) submission(ctx context.Context, l letter) (s eventlog.Submission, err error) {
	run, typ, entity, err := events.ParseIntakeSubject(l.Subject)
	if err != nil {
		return s, fmt.Errorf("%w: %w", events.ErrMalformed, err)
	}
	body, err := storage.GetBlob(ctx, d.log.Store(), *l.Body)
	if err != nil {
		return s, err
	}
	var ref storage.Ref // in place of a body that was too large for a message
	if json.Unmarshal(body, &ref) == nil && topology.CheckBlob(ref) == nil {
		if ref.Size > maxTrajectory {
			return s, fmt.Errorf("the submission: %w", storage.ErrTooLarge)
		}
		if body, err = storage.GetBlob(ctx, d.log.Store(), ref); err != nil {
			return s, err
		}
	}
	if !json.Valid(body) {
		return s, fmt.Errorf("%w: the submission is no JSON", events.ErrMalformed)
	}
	return eventlog.Submission{Run: run, Type: typ, Entity: entity, Data: json.RawMessage(body),
		ID: fmt.Sprintf("redrive-%d", l.Seq), Source: "dashboard"}, nil
}
