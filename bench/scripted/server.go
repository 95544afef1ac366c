// Package scripted is an inference server for benchmarks: it answers at once, with token
// ids and log-probabilities.
package scripted

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/rondo-rl/rondo/retry"
)

const (
	// vocabulary is the number of token ids, as in models of today.
	vocabulary = 151_936
	// taskTokens are those of the first prompt, and answerTokens what a tool's
	// answer adds to the next.
	taskTokens   = 600
	answerTokens = 60
	// mostRequest bounds a request in bytes.
	mostRequest = 256 << 20
)

// Server answers requests for chat completions: in each turn but the last
// one the model calls a tool.
type Server struct {
	Tokens  int // sampled in a turn
	asked   func(turn int)
	think   func(turn int) time.Duration
	mu      sync.Mutex
	turns   int // of a rollout
	next    int
	open    map[int]*conversation
	longest []byte // the last request of the longest conversation that was answered
	gates   *Gates
}

// conversation is what the server keeps of one: the ids so far as JSON, and how many there were at
// each prompt. What is sampled follows from its number and the turn's.
type conversation struct {
	ids   []byte
	count int
	marks []mark
}

type mark struct{ bytes, count int }

// Begin makes the server ready for rollouts of a number of turns; asked is told of each turn. Both
// it and the gates may be nil.
func (s *Server) Begin(turns int, gates *Gates, asked func(turn int)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if asked == nil {
		asked = func(int) {}
	}
	s.gates, s.turns, s.asked, s.open, s.longest = gates, turns, asked, map[int]*conversation{}, nil
}

// ServeHTTP answers as vLLM does: which model there is, and the next turn of the
// conversation that is asked for.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.Method == http.MethodGet {
		fmt.Fprintf(w, `{"data":[{"id":"bench","owned_by":"vllm","max_model_len":%d}]}`, 1<<24)
		return
	}
	body, err := read(http.MaxBytesReader(w, r.Body, mostRequest), r.ContentLength)
	if err != nil {
		http.Error(w, `{"error":{"message":"the request is too long"}}`, http.StatusBadRequest)
		return
	}
	turn := bytes.Count(body, []byte(`"role":"assistant"`))
	if !s.gate().pass(r.Context(), turn) {
		return
	}
	think, streamed := s.thinks(turn), bytes.Contains(body, []byte(`"stream":true`))
	if streamed {
		think /= 2 // half of it until the first token
	}
	if !retry.Sleep(r.Context(), think) {
		return
	}
	said, asked := s.answer(body, turn)
	asked(turn) // before the answer is there, so that nothing that follows it is counted earlier
	if streamed {
		said.stream(r.Context(), w, think/pieces)
		return
	}
	answer := said.whole()
	w.Header().Set("Content-Length", strconv.Itoa(len(answer))) // as vLLM and SGLang say it
	w.Write(answer)
}

// read reads a request into one buffer where its length is known: what the script costs, benchmarks
// must tell from what they measure.
func read(body io.Reader, length int64) ([]byte, error) {
	var text bytes.Buffer
	if length > 0 && length <= mostRequest {
		text.Grow(int(length) + bytes.MinRead)
	}
	_, err := text.ReadFrom(body)
	return text.Bytes(), err
}

// Think says how long turns take from now on.
func (s *Server) Think(each func(turn int) time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.think = each
}

func (s *Server) thinks(turn int) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.think == nil {
		return 0
	}
	return s.think(turn)
}

func (s *Server) gate() *Gates {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gates
}

// Longest is the body of the last request of the longest conversation that was answered.
func (s *Server) Longest() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.longest
}

// marker is in the first answer of a conversation, and so in each later request.
const marker = "conversation-"

func (s *Server) answer(body []byte, turn int) (said, func(turn int)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	number := s.number(body)
	c := s.open[number]
	if c == nil {
		c = &conversation{}
		s.open[number] = c
	}
	rng := rand.New(rand.NewPCG(uint64(number), uint64(turn)))
	zipf := rand.NewZipf(rng, 1.1, 8, vocabulary-1)
	delta := answerTokens
	if turn == 0 {
		delta = taskTokens
	}
	prompt := ids(zipf, delta)
	sampled := ids(zipf, s.Tokens)
	for len(c.marks) <= turn { // asked again, it says the same
		c.add(prompt)
		c.marks = append(c.marks, mark{len(c.ids), c.count})
		c.add(sampled)
	}
	if len(body) > len(s.longest) {
		s.longest = body
	}
	logprobs := make([]float32, len(sampled))
	for i := range logprobs { // half of the tokens are all but certain, and all 24 bits are in use
		logprobs[i] = -float32(min(20, math.Exp(2.5*rng.NormFloat64()-3)))
	}
	return said{
		turn: turn, calls: turn < s.turns-1, text: s.said(number, turn),
		prompt: c.ids[:c.marks[turn].bytes], prompted: c.marks[turn].count, ids: sampled, logprobs: logprobs,
	}, s.asked
}

// number is that of the conversation of a request.
func (s *Server) number(body []byte) int {
	if _, rest, found := bytes.Cut(body, []byte(marker)); found && len(rest) >= 6 {
		if n, err := strconv.Atoi(string(rest[:6])); err == nil {
			return n
		}
	}
	s.next++
	return s.next
}

func (c *conversation) add(ids []int32) {
	for _, id := range ids {
		if c.count > 0 {
			c.ids = append(c.ids, ',')
		}
		c.ids = strconv.AppendInt(c.ids, int64(id), 10)
		c.count++
	}
}

// ids follow a Zipf distribution, scattered over the vocabulary.
func ids(zipf *rand.Zipf, n int) []int32 {
	list := make([]int32, n)
	for i := range list {
		list[i] = int32(zipf.Uint64() * 77_773 % vocabulary) // a prime: no two ranks share an id
	}
	return list
}

// said is the text of a turn, of four bytes for a token.
func (s *Server) said(number, turn int) string {
	text := fmt.Sprintf("%s%06d, turn %d:", marker, number, turn)
	for i := 0; len(text) < 4*s.Tokens; i++ {
		text += " " + words[(number+turn*7+i*i)%len(words)]
	}
	return text
}

var words = []string{"the", "test", "of", "main", "returns", "an", "error", "where", "a", "value", "is", "read",
	"before", "it", "was", "set"}
