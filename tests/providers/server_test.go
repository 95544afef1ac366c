package providers

import (
	"encoding/json"
	"fmt"
	"math"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events/natstest"
)

// fault is what goes wrong with one request.
type fault int

const (
	none     fault = iota
	broken         // 500
	cut            // the connection ends within the answer
	hung           // nothing is answered
	nonsense       // an answer of 200 that is no JSON
	aborted        // a turn that the server gave up
	busy           // as its queue is full
	seconds        // 429, with Retry-After in seconds
	date           // 429, with Retry-After as a date
)

// dialect is how a kind of server speaks.
type dialect interface {
	// answer is a turn.
	answer(a ask, s spoken) any
	// refusal is the body of an error.
	refusal(status int, message string) any
	// loading says what is answered while the model is loaded; ok false is
	// nothing, as nobody listens.
	loading() (message string, ok bool)
	// full is the status of a server that has too much to do.
	full() (status int, message string)
	// health answers the path that says whether the server is ready.
	health() string
}

// ask is a request.
type ask struct {
	Model    string            `json:"model"`
	Messages []json.RawMessage `json:"messages"`
	Seed     int64             `json:"seed"`
	Logprobs bool              `json:"logprobs"`
	Stream   bool              `json:"stream"`
	TokenIDs bool              `json:"return_token_ids"`
	Prompt   bool              `json:"return_prompt_token_ids"`
	Meta     bool              `json:"return_meta_info"`
}

// server is an inference server that is stopped and comes back cold.
type server struct {
	t       *testing.T
	dialect dialect
	addr    string
	slots   int
	takes   time.Duration // for an answer
	faults  func(n int) fault
	model   func(a ask) spoken

	mu       sync.Mutex
	http     *http.Server
	asked    int                   // over all its lives
	reached  map[int]chan struct{} // closed when it was asked so often
	answered int                   // turns, over all its lives
	life     *life
}

// life is the time from a cold start to the next. It holds the ramp: who asks begins with
// one request, may send one more for each answer, and twice as many for each 2 seconds since
// the server took the first.
type life struct {
	ready    time.Time
	inFlight int
	answered int
	first    time.Time
	most     int
}

func newServer(t *testing.T, d dialect, slots int, model func(ask) spoken, faults func(n int) fault) *server {
	t.Helper()
	s := &server{
		t: t, dialect: d, slots: slots, model: model, faults: faults, takes: 20 * time.Millisecond,
		addr: fmt.Sprintf("127.0.0.1:%d", natstest.FreePorts(t, 1)[0]),
	}
	s.start(0)
	t.Cleanup(s.stop)
	return s
}

// after is closed when the server has been asked n times. Call it before the first request.
func (s *server) after(n int) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reached == nil {
		s.reached = map[int]chan struct{}{}
	}
	s.reached[n] = make(chan struct{})
	return s.reached[n]
}

func (s *server) url() string { return "http://" + s.addr + "/v1" }

// start begins a life; the model is loaded after a while.
func (s *server) start(load time.Duration) {
	l, err := net.Listen("tcp", s.addr)
	if err != nil {
		s.t.Errorf("start again: %v", err)
		return
	}
	now := &life{ready: time.Now().Add(load)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) { s.complete(now, w, r) })
	mux.HandleFunc("GET "+s.dialect.health(), func(w http.ResponseWriter, _ *http.Request) {
		if message, _ := s.dialect.loading(); time.Now().Before(now.ready) {
			s.refuse(w, http.StatusServiceUnavailable, message)
		}
	})
	server := &http.Server{Handler: mux}
	s.mu.Lock()
	s.life, s.http = now, server
	s.mu.Unlock()
	go server.Serve(l)
}

func (s *server) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.http.Close()
}

// restart ends a life, with all that is under way in it.
func (s *server) restart(down, load time.Duration) {
	s.stop()
	if _, listens := s.dialect.loading(); !listens {
		down, load = down+load, 0
	}
	time.Sleep(down)
	s.start(load)
}

func (s *server) refuse(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(s.dialect.refusal(status, message))
}

// enter counts a request in, and holds the client to the ramp.
func (s *server) enter(l *life) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked++; s.reached[s.asked] != nil {
		close(s.reached[s.asked])
	}
	l.inFlight++
	l.most = max(l.most, l.inFlight)
	steps := 0
	if l.first.IsZero() && !time.Now().Before(l.ready) {
		l.first = time.Now()
	}
	if !l.first.IsZero() {
		steps = int(time.Since(l.first)/(2*time.Second)) + 1 // clocks may be read a little apart
	}
	if allowed := min(s.slots, (1+l.answered)<<min(steps, 20)); l.inFlight > allowed {
		s.t.Errorf("%T has %d requests under way, %d answers after its start; its ramp allows %d", s.dialect,
			l.inFlight, l.answered, allowed)
	}
	return s.asked - 1
}

// leave counts a request out. It is called before the answer is written: the client may send the
// next one as soon as it has it.
func (s *server) leave(l *life, turn bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.inFlight--
	if turn {
		s.answered++
		l.answered++
	}
}

func (s *server) complete(l *life, w http.ResponseWriter, r *http.Request) {
	var a ask
	if err := json.NewDecoder(r.Body).Decode(&a); err != nil {
		s.refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	if a.Stream || !a.Logprobs || !a.TokenIDs || !a.Prompt || !a.Meta {
		s.t.Errorf("asked without what exact tokens need: %+v", a)
	}
	n := s.enter(l)
	what := s.faults(n)
	if time.Now().Before(l.ready) {
		message, _ := s.dialect.loading()
		s.leave(l, false)
		s.refuse(w, http.StatusServiceUnavailable, message)
		return
	}
	select {
	case <-time.After(s.takes):
	case <-r.Context().Done():
	}
	s.leave(l, what == none || what == aborted)
	said := s.model(a)
	if what == aborted {
		said.reason = "abort"
	}
	body, err := json.Marshal(s.dialect.answer(a, said))
	if err != nil {
		s.t.Error(err)
	}
	switch what {
	case broken:
		s.refuse(w, http.StatusInternalServerError, "CUDA error: an illegal memory access was encountered")
	case hung:
		<-r.Context().Done()
	case nonsense:
		w.Write([]byte("<html><body>It works!</body></html>"))
	case busy:
		status, message := s.dialect.full()
		s.refuse(w, status, message)
	case seconds:
		w.Header().Set("Retry-After", "1")
		s.refuse(w, http.StatusTooManyRequests, "Rate limit reached")
	case date:
		w.Header().Set("Retry-After", time.Now().Add(time.Second).UTC().Format(http.TimeFormat))
		s.refuse(w, http.StatusTooManyRequests, "Rate limit reached")
	case cut:
		w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		w.Write(body[:len(body)/2])
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	default:
		w.Write(body)
	}
}

// half of the requests fail, in turns with each thing that can go wrong, and of the rest every
// third one is told to come again.
func half(n int) fault {
	wrong := []fault{broken, cut, nonsense, aborted, busy, broken, cut, hung}
	switch {
	case n%2 == 0:
		return wrong[n/2%len(wrong)]
	case n%12 == 1:
		return seconds
	case n%12 == 7:
		return date
	}
	return none
}

func well(int) fault { return none }

// spoken is what the model says, and the tokens that it is made of.
type spoken struct {
	content string
	calls   []map[string]any
	reason  string
	prompt  []int32
	ids     []int32
}

// logprob of a token, not the same for all.
func logprob(id int32) float64 { return -math.Abs(math.Sin(float64(id))) }
