package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// stream is a response of server-sent events. A client that does not read keeps the gateway waiting for writeTime, then loses
// its connection; the turn is on the log by then.
type stream struct {
	http.ResponseWriter
	control *http.ResponseController
	begun   bool
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
	s.control.SetWriteDeadline(time.Now().Add(writeTime))
	defer s.control.SetWriteDeadline(time.Time{}) // the connection's next answer has its own
	if _, err := s.Write([]byte(text)); err != nil {
		return err
	}
	return s.control.Flush()
}

// wait tells proxies and clients that the connection is alive.
func (s *stream) wait() error { return s.send(": waiting for the model\n\n") }

// event sends a piece: a text as it is, all else as JSON.
func (s *stream) event(p piece) error {
	text, ok := p.data.(string)
	if !ok {
		body, err := json.Marshal(p.data)
		if err != nil {
			return fmt.Errorf("encode a piece: %w", err)
		}
		text = string(body)
	}
	named := ""
	if p.name != "" {
		named = "event: " + p.name + "\n"
	}
	return s.send(named + "data: " + text + "\n\n")
}
