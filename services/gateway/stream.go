package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/rondo-rl/rondo/services/gateway/dialects"
)

// stream is a response of server-sent events. A client that does not read keeps the gateway waiting for writeTime, and one that reads
// slowly for takeTime; then it loses its connection. The turn is on the log by then.
type stream struct {
	http.ResponseWriter
	control *http.ResponseController
	begun   bool
	until   time.Time // the client has all of the answer by then; zero: it is not there yet
}

// patient sets the time that the client has for the next piece.
func (s *stream) patient() {
	deadline := time.Now().Add(writeTime)
	if !s.until.IsZero() && s.until.Before(deadline) {
		deadline = s.until
	}
	s.control.SetWriteDeadline(deadline)
}

func newStream(w http.ResponseWriter) *stream {
	return &stream{ResponseWriter: w, control: http.NewResponseController(w)}
}

func (s *stream) Unwrap() http.ResponseWriter { return s.ResponseWriter }

func (s *stream) send(text string) error {
	if !s.begun {
		s.begun = true
		s.Header().Set("Content-Type", "text/event-stream")
		s.Header().Set("Cache-Control", "no-cache")
		s.WriteHeader(http.StatusOK)
	}
	s.patient()
	defer s.control.SetWriteDeadline(time.Time{}) // the connection's next answer has its own
	if _, err := s.Write([]byte(text)); err != nil {
		return err
	}
	return s.control.Flush()
}

// wait tells proxies and clients that the connection is alive.
func (s *stream) wait() error { return s.send(": waiting for the model\n\n") }

// event sends a piece: a text as it is, all else as JSON.
func (s *stream) event(p dialects.Piece) error {
	text, ok := p.Data.(string)
	if !ok {
		body, err := json.Marshal(p.Data)
		if err != nil {
			return fmt.Errorf("encode a piece: %w", err)
		}
		text = string(body)
	}
	named := ""
	if p.Name != "" {
		named = "event: " + p.Name + "\n"
	}
	return s.send(named + "data: " + text + "\n\n")
}
