package embedder

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/index/embed"
)

const secret = "sk-test-0123456789"

// server follows what OpenAI publishes of its embeddings:
// https://platform.openai.com/docs/api-reference/embeddings.
type server struct {
	*httptest.Server
	mu       sync.Mutex
	faults   []http.HandlerFunc // of the next requests
	requests [][]string
	inFlight int
	most     int
}

func serve(t *testing.T) *server {
	s := &server{}
	s.Server = httptest.NewServer(http.HandlerFunc(s.answer))
	t.Cleanup(s.Close)
	t.Setenv(keyVariable, secret)
	return s
}

func (s *server) answer(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	s.inFlight++
	s.most = max(s.most, s.inFlight)
	var fault http.HandlerFunc
	if len(s.faults) > 0 {
		fault, s.faults = s.faults[0], s.faults[1:]
	}
	s.mu.Unlock()
	defer func() { s.mu.Lock(); s.inFlight--; s.mu.Unlock() }()
	if fault != nil {
		fault(w, r)
		return
	}
	var request struct {
		Model          string
		Input          []string
		Dimensions     int
		EncodingFormat string `json:"encoding_format"`
	}
	refuse := func(status int, format string, args ...any) {
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"error":{"message":%q,"type":"invalid_request_error"}}`, fmt.Sprintf(format, args...))
	}
	decoder := json.NewDecoder(strings.NewReader(string(body)))
	decoder.DisallowUnknownFields()
	switch err := decoder.Decode(&request); {
	case r.Header.Get("Authorization") != "Bearer "+secret:
		refuse(401, "Incorrect API key provided: %s", strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
		return
	case r.Method != http.MethodPost || r.URL.Path != "/v1/embeddings" ||
		r.Header.Get("Content-Type") != "application/json":
		refuse(404, "Unknown request URL: %s %s", r.Method, r.URL)
		return
	case err != nil:
		refuse(400, "%v", err)
		return
	case request.Model != "small":
		refuse(404, "The model `%s` does not exist", request.Model)
		return
	case len(request.Input) == 0 || len(request.Input) > 2048 || slices.Contains(request.Input, ""):
		refuse(400, "'$.input' is invalid")
		return
	}
	s.mu.Lock()
	s.requests = append(s.requests, request.Input)
	s.mu.Unlock()
	size := request.Dimensions
	if size == 0 {
		size = 4
	}
	type entry struct {
		Object    string    `json:"object"`
		Index     int       `json:"index"`
		Embedding []float64 `json:"embedding"`
	}
	var data []entry
	for i, text := range request.Input {
		v := make([]float64, size)
		v[0], v[1] = 1, float64(len(text))
		data = append(data, entry{"embedding", i, v})
	}
	slices.Reverse(data) // the index counts, not the order
	json.NewEncoder(w).Encode(map[string]any{"object": "list", "data": data, "model": request.Model,
		"usage": map[string]int{"prompt_tokens": 1, "total_tokens": 1}})
}

func (s *server) open(t *testing.T, query string) *remote {
	t.Helper()
	e, err := Open(s.URL+"/v1"+query+"#small", "")
	if err != nil {
		t.Fatal(err)
	}
	r := e.(*remote)
	r.again.First = time.Millisecond
	return r
}

func TestRemote(t *testing.T) {
	s := serve(t)
	r := s.open(t, "")
	if r.Dimensions() != 4 || len(r.ID()) > embed.MaxID || !strings.HasPrefix(r.ID(), "remote-") {
		t.Errorf("%d dimensions, ID %q", r.Dimensions(), r.ID())
	}
	if wide := s.open(t, "?dimensions=7"); wide.Dimensions() != 7 || wide.ID() == r.ID() {
		t.Errorf("%d dimensions, and IDs %q and %q", wide.Dimensions(), wide.ID(), r.ID())
	}
	var texts []string
	for i := range 300 {
		texts = append(texts, strings.Repeat("x", i*10))
	}
	texts = append(texts, " \n", "\xff", strings.Repeat("ü", maxText))
	s.requests = nil
	vectors, err := r.Embed(t.Context(), texts)
	if err != nil || len(vectors) != len(texts) {
		t.Fatalf("%d vectors, %v", len(vectors), err)
	}
	for i, v := range vectors[:300] {
		length := math.Hypot(1, float64(i*10))
		if i == 0 {
			if v[0] != 0 || v[1] != 0 || len(v) != 4 {
				t.Errorf("the empty text has the vector %v", v)
			}
		} else if math.Abs(float64(v[0])-1/length) > 1e-6 || math.Abs(float64(v[1])-float64(i*10)/length) > 1e-6 {
			t.Fatalf("text %d has the vector %v", i, v)
		}
	}
	sent := 0
	for _, list := range s.requests {
		size := 0
		for _, text := range list {
			size += len(text)
		}
		if len(list) > batchTexts || size > batchBytes {
			t.Errorf("%d texts of %d bytes at once", len(list), size)
		}
		sent += len(list)
	}
	if sent != 300 || s.most > inFlight {
		t.Errorf("%d texts sent, %d requests at once", sent, s.most)
	}
}

func TestRemoteTriesAgain(t *testing.T) {
	status := func(code int, after string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if after != "" {
				w.Header().Set("Retry-After", after)
			}
			w.WriteHeader(code)
		}
	}
	broken := func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) }
	half := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		io.WriteString(w, `{"data":[`)
	}
	for name, c := range map[string]struct {
		faults []http.HandlerFunc
		want   string // in the error; none where it comes right
		least  time.Duration
	}{
		"too many requests":      {faults: []http.HandlerFunc{status(429, "1")}, least: time.Second},
		"without saying when":    {faults: []http.HandlerFunc{status(429, "")}},
		"overload and a restart": {faults: []http.HandlerFunc{status(500, ""), status(503, ""), broken, half}},
		"for good": {faults: slices.Repeat([]http.HandlerFunc{status(502, "")}, askAgain.Tries),
			want: "after 6 tries"},
		"a wrong request": {faults: []http.HandlerFunc{status(400, "")}, want: "400"},
		"no right":        {faults: []http.HandlerFunc{status(403, "")}, want: "403"},
		"somewhere else":  {faults: []http.HandlerFunc{status(307, "")}, want: "307"},
		"not all": {faults: []http.HandlerFunc{said(`{"data":[{"index":0,"embedding":[1,0,0,0]}]}`)},
			want: "1 vectors for 2 texts"},
		"one twice": {faults: []http.HandlerFunc{said(
			`{"data":[{"index":0,"embedding":[1,0,0,0]},{"index":0,"embedding":[1,0,0,0]}]}`)},
			want: "there twice"},
		"out of range": {faults: []http.HandlerFunc{said(
			`{"data":[{"index":0,"embedding":[1,0,0,0]},{"index":-1,"embedding":[1,0,0,0]}]}`)},
			want: "out of range"},
		"uneven": {faults: []http.HandlerFunc{said(
			`{"data":[{"index":0,"embedding":[1,0,0,0]},{"index":1,"embedding":[1]}]}`)}, want: "4 and 1"},
		"other dimensions": {faults: []http.HandlerFunc{said(
			`{"data":[{"index":0,"embedding":[1]},{"index":1,"embedding":[1]}]}`)}, want: "1 dimensions, and 4"},
		"no numbers": {faults: []http.HandlerFunc{said(
			`{"data":[{"index":0,"embedding":[]},{"index":1,"embedding":[]}]}`)}, want: "dimensions"},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t)
			r := s.open(t, "")
			s.faults = c.faults
			began := time.Now()
			vectors, err := r.Embed(t.Context(), []string{"a", "b"})
			switch {
			case c.want == "" && (err != nil || len(vectors) != 2):
				t.Error(err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("the error is %v, want one with %q", err, c.want)
			case time.Since(began) < c.least:
				t.Errorf("tried again after %s, before the server wanted to be asked", time.Since(began))
			}
		})
	}
}

func said(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, text) }
}

func TestRemoteEndsWithItsContext(t *testing.T) {
	s := serve(t)
	r := s.open(t, "")
	s.faults = []http.HandlerFunc{func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "50")
		w.WriteHeader(http.StatusServiceUnavailable)
	}}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := r.Embed(ctx, []string{"a"}); err == nil {
		t.Error("no error after the context ended")
	}
}

func TestRemoteTellsNoKey(t *testing.T) {
	s := serve(t)
	t.Setenv(keyVariable, "sk-other-secret")
	_, err := Open(s.URL+"/v1#small", "") // the server repeats the key
	if err == nil || !strings.Contains(err.Error(), "401") || strings.Contains(err.Error(), "sk-other-secret") {
		t.Errorf("the error is %v", err)
	}
	t.Setenv(keyVariable, "sk-two lines\n")
	if _, err := Open(s.URL+"/v1#small", ""); err == nil || strings.Contains(err.Error(), "sk-two") {
		t.Errorf("the error is %v", err)
	}
}

func TestOpenStatic(t *testing.T) {
	for _, spec := range []string{"", "static"} {
		if e, err := Open(spec, ""); err != nil || e.ID() != embed.Static().ID() {
			t.Error(spec, e, err)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	s := serve(t)
	for _, c := range []struct{ spec, want string }{
		{"word2vec", "want static"},
		{"model2vec:" + t.TempDir(), "want static"},
		{"https://user:pass@host/v1#m", "without credentials"},
		{"https://#m", "https://HOST"},
		{s.URL + "/v1", "names no model"},
		{s.URL + "/v1?dimensions=0#small", "dimensions"},
		{s.URL + "/v1?size=3#small", "size"},
		{s.URL + "/v1#large", "does not exist"},
		{s.URL + "/v2#small", "404"},
	} {
		_, err := Open(c.spec, "")
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "pass") {
			t.Errorf("%s: the error is %v, want one with %q", c.spec, err, c.want)
		}
	}
}

// TestDimensionsAreRemembered: a server is asked for them once, and again
// when its answers are others.
func TestDimensionsAreRemembered(t *testing.T) {
	s := serve(t)
	memory := filepath.Join(t.TempDir(), "embedders")
	open := func(query string, wantAsked int) embed.Embedder {
		t.Helper()
		s.requests = nil
		e, err := Open(s.URL+"/v1"+query+"#small", memory)
		if err != nil || len(s.requests) != wantAsked {
			t.Fatalf("%v; the server was asked %d times, want %d", err, len(s.requests), wantAsked)
		}
		return e
	}
	first, again := open("", 1), open("", 0)
	if again.Dimensions() != 4 || again.ID() != first.ID() {
		t.Errorf("remembered as %s of %d dimensions", again.ID(), again.Dimensions())
	}
	open("?dimensions=7", 1)
	s.faults = []http.HandlerFunc{func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"object":"list","data":[{"object":"embedding","index":0,"embedding":[1,2,3]}]}`)
	}}
	if _, err := again.Embed(t.Context(), []string{"text"}); err == nil ||
		!strings.Contains(err.Error(), "another model") {
		t.Errorf("three dimensions instead of four: %v", err)
	}
	open("", 1)
	entries, err := os.ReadDir(memory)
	if err != nil || len(entries) != 2 {
		t.Fatalf("%d memories, %v", len(entries), err)
	}
	for _, e := range entries {
		if err := os.WriteFile(filepath.Join(memory, e.Name()), []byte("99999999999999999999"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	open("", 1)
}
