package dashboard

import (
	"fmt"
	"net/http"
	"time"

	"github.com/rondo-rl/rondo/retry"
)

const (
	// pace is the shortest time between two messages to a page: each has it ask for what it shows.
	pace = time.Second
	// beat is when a page that nothing is said to hears that the line stands.
	beat = 15 * time.Second
	// sendTime is how long a page may take to accept a message.
	sendTime = 10 * time.Second
)

// live tells a page by server-sent events when its run has changed.
func (d *Dashboard) live(w http.ResponseWriter, r *http.Request) error {
	select {
	case d.streams <- struct{}{}:
		defer func() { <-d.streams }()
	default:
		return errBusy
	}
	b, release, err := d.open(r)
	if err != nil {
		return err
	}
	defer release()
	d.shelf.follow(b)
	w.Header().Set("Content-Type", "text/event-stream")
	control := http.NewResponseController(w)
	send := func(text string) error {
		if err := control.SetWriteDeadline(time.Now().Add(sendTime)); err != nil {
			return err
		}
		if _, err := fmt.Fprint(w, text); err != nil {
			return err
		}
		return control.Flush()
	}
	for said := uint64(0); ; {
		text := ": here\n\n"
		over := b.until > 0 && b.isOver() // looked at first: what is folded by then is told
		if last := b.position(); last > said {
			said, text = last, fmt.Sprintf("event: change\ndata: %d\n\n", last)
		}
		if over {
			text += "event: over\ndata: \n\n" // the past changes no more
		}
		if send(text) != nil || over {
			return nil
		}
		retry.Sleep(r.Context(), pace)
		if !d.changed(r, b, said) {
			return nil
		}
	}
}

// isOver reports whether there is nothing more to fold.
func (b *book[S]) isOver() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ended
}

// changed waits for something new, or for the next beat. It reports false when nobody
// wants to hear it any more.
func (d *Dashboard) changed(r *http.Request, b *book[runState], said uint64) bool {
	select {
	case <-r.Context().Done():
		return false
	case <-d.ctx.Done():
		return false
	default:
	}
	next, leave := b.next(said)
	defer leave()
	timer := time.NewTimer(beat)
	defer timer.Stop()
	select {
	case <-next:
	case <-timer.C:
	case <-r.Context().Done():
		return false
	case <-d.ctx.Done():
		return false
	}
	return true
}
