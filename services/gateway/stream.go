package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/services/gateway/dialects"
)

// stream is a response of server-sent events. A client that does not read keeps the gateway waiting
// for writeTime, and one that reads slowly for takeTime behind the end of the answer; then it loses
// its connection. Neither keeps the turn from the log meanwhile.
type stream struct {
	http.ResponseWriter
	control *http.ResponseController
	begun   bool
	until   time.Time       // the client has all of the answer by then; zero: it is not there yet
	answer  dialects.Stream // the answer that is told, nil before its first piece
	live    *live           // what comes of it, nil before that
	failed  error           // to tell it
}

// patient sets the time that the client has for the next piece.
func (s *stream) patient() {
	deadline := time.Now().Add(writeTime)
	if s.until.IsZero() && s.live != nil {
		s.until = s.live.until()
	}
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

// tells is the stream of the answer, which begins with the first call.
func (s *stream) tells(d dialects.Dialect, a *ask, head *dialects.Answer) dialects.Stream {
	if s.answer == nil {
		s.answer = d.Stream(a.Request, head, func(p dialects.Piece) {
			if s.failed == nil {
				s.failed = s.event(p)
			}
		})
	}
	return s.answer
}

// tell tells what has come of an answer under way.
func (s *stream) tell(d dialects.Dialect, a *ask, l *live) error {
	s.live = l
	head, said := l.take()
	for _, w := range said {
		if to := s.tells(d, a, head); w.thought {
			to.Reason(string(w.text))
		} else {
			to.Say(string(w.text))
		}
	}
	return s.failed
}

// live is an answer under way whose client wants a stream. What comes of it is kept until the
// client reads, for which the inference server does not wait.
type live struct {
	follows bool
	came    chan struct{} // has a place for the news

	mu    sync.Mutex
	head  dialects.Answer
	said  []words
	ended time.Time // zero: it is under way
}

// words were said, or thought.
type words struct {
	thought bool
	text    []byte
}

// newLive follows where the answer is told while it comes. By tokens, and with columns beside the
// tokens, servers are asked for whole answers. So is an agent's of the run's own: nobody reads
// along, and an answer that breaks off is asked for again where nothing of it was told.
func newLive(t *tenant, a *ask) *live {
	follows := a.Stream && t.agent == nil && a.cfg.EndpointAPI != runfile.APITokens && a.cfg.TokenColumns == nil
	return &live{follows: follows, came: make(chan struct{}, 1)}
}

// begin names the answer by its seed, which another of the rollout under way at once does not have,
// as the turn has no number yet.
func (l *live) begin(ro *rollout, a *ask, seed int64) {
	model := ro.cfg.Policy
	if a.server != nil {
		model = a.server.Model
	}
	l.head = dialects.Answer{ID: fmt.Sprintf("%s-s%x", name(ro.Run, ro.ID), seed), Model: model, Created: time.Now()}
}

// follow takes what an inference server says.
func (l *live) follow(d inference.Delta) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.head.Turn.PromptTokens = max(l.head.Turn.PromptTokens, d.Prompt)
	for _, w := range []words{{true, []byte(d.Reasoning)}, {false, []byte(d.Content)}} {
		if len(w.text) == 0 {
			continue
		}
		if n := len(l.said); n > 0 && l.said[n-1].thought == w.thought {
			l.said[n-1].text = append(l.said[n-1].text, w.text...)
		} else {
			l.said = append(l.said, w)
		}
	}
	select {
	case l.came <- struct{}{}:
	default:
	}
}

// end says that no more comes.
func (l *live) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = time.Now()
}

// until is when the client must have all of the answer; zero while that is under way.
func (l *live) until() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended.IsZero() {
		return time.Time{}
	}
	return l.ended.Add(takeTime)
}

// take gives what has come since the last time.
func (l *live) take() (head *dialects.Answer, said []words) {
	l.mu.Lock()
	defer l.mu.Unlock()
	said, l.said = l.said, nil
	return new(l.head), said
}

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
