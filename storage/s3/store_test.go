package s3_test

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/s3"
	"github.com/rondo-rl/rondo/storage/storagetest"
)

// config names a prefix of its own in a test server's bucket.
func config(endpoint string) s3.Config {
	return s3.Config{Endpoint: endpoint, Bucket: "rondo", Prefix: "tests/" + rand.Text(),
		AccessKey: storagetest.AccessKey,
		SecretKey: storagetest.SecretKey, CreateBucket: true}
}

func open(t *testing.T, c s3.Config) *s3.Store {
	t.Helper()
	s, err := s3.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// memoryServer is an S3 server in this process.
func memoryServer(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(gofakes3.New(s3mem.New()).Server())
	t.Cleanup(server.Close)
	return server.URL
}

func TestConformanceInMemory(t *testing.T) {
	t.Parallel()
	endpoint := memoryServer(t)
	storagetest.Run(t, func(t *testing.T) storage.Store { return open(t, config(endpoint)) })
}

func TestConformanceVersityGateway(t *testing.T) {
	t.Parallel()
	endpoint := storagetest.S3Dev(t)
	storagetest.Run(t, func(t *testing.T) storage.Store { return open(t, config(endpoint)) })
}

// front puts a handler before a server: it may answer itself, or pass on.
func front(t *testing.T, endpoint string, handle func(w http.ResponseWriter, r *http.Request,
	next http.Handler)) string {
	t.Helper()
	target, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	// The signature covers the host, so the server behind must see the one that the client used;
	// the memory server does not mind.
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handle(w, r, proxy) }))
	t.Cleanup(server.Close)
	return server.URL
}

// losesAnswers passes requests on, but the connection breaks before the answers to the next
// conditional writes that it is armed for.
func losesAnswers(t *testing.T) (endpoint string, armed *atomic.Int32) {
	armed = new(atomic.Int32)
	endpoint = front(t, memoryServer(t), func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		conditional := r.Method == http.MethodPut &&
			(r.Header.Get("If-Match") != "" || r.Header.Get("If-None-Match") != "")
		if !conditional || armed.Add(-1) < 0 {
			next.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	})
	return endpoint, armed
}

func TestOwnWriteIsRecognisedAfterALostAnswer(t *testing.T) {
	t.Parallel()
	endpoint, armed := losesAnswers(t)
	s := open(t, config(endpoint))
	for _, lost := range []int32{1, 2} {
		armed.Store(lost)
		key := "k" + rand.Text()
		if err := s.PutIfAbsent(t.Context(), key, []byte("mine")); err != nil {
			t.Errorf("PutIfAbsent after %d lost answers: %v", lost, err)
		}
		armed.Store(0)
		if err := s.PutIfAbsent(t.Context(), key, []byte("mine")); !errors.Is(err, storage.ErrExists) {
			t.Errorf("second PutIfAbsent: %v", err)
		}
	}
	armed.Store(1)
	first, err := s.CompareAndSwap(t.Context(), "pointer", "", []byte("1"))
	if err != nil {
		t.Fatalf("create after a lost answer: %v", err)
	}
	armed.Store(1)
	second, err := s.CompareAndSwap(t.Context(), "pointer", first, []byte("2"))
	if err != nil {
		t.Fatalf("swap after a lost answer: %v", err)
	}
	if data, etag, err := s.Load(t.Context(), "pointer"); err != nil || string(data) != "2" || etag != second {
		t.Errorf("Load = %q %s, %v; want the swap's ETag %s", data, etag, err, second)
	}
}

func TestLostAnswerAndAnotherWriter(t *testing.T) {
	t.Parallel()
	endpoint, armed := losesAnswers(t)
	s := open(t, config(endpoint))
	if err := s.Put(t.Context(), "k", []byte("theirs")); err != nil {
		t.Fatal(err)
	}
	armed.Store(1)
	if err := s.PutIfAbsent(t.Context(), "k", []byte("mine")); !errors.Is(err, storage.ErrExists) {
		t.Errorf("PutIfAbsent: %v, want ErrExists", err)
	}
	armed.Store(1)
	_, err := s.CompareAndSwap(t.Context(), "k", "0123456789abcdef0123456789abcdef", []byte("mine"))
	if err == nil || errors.Is(err, storage.ErrConflict) || !strings.Contains(err.Error(), "outcome is unknown") {
		t.Errorf("CompareAndSwap: %v, want an unknown outcome: the loser cannot tell whether it wrote before the other",
			err)
	}
}

func TestAnswersAreLostForGood(t *testing.T) {
	t.Parallel()
	endpoint, armed := losesAnswers(t)
	s := open(t, config(endpoint))
	armed.Store(1 << 20)
	if err := s.PutIfAbsent(t.Context(), "k", []byte("mine")); err != nil {
		t.Errorf("PutIfAbsent, which did happen: %v", err)
	}
}

func TestServerThatAsksForPatience(t *testing.T) {
	t.Parallel()
	var busy atomic.Int32
	endpoint := front(t, memoryServer(t), func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if busy.Add(-1) >= 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		next.ServeHTTP(w, r)
	})
	s := open(t, config(endpoint))
	busy.Store(2)
	if err := s.PutIfAbsent(t.Context(), "k", []byte("x")); err != nil {
		t.Errorf("PutIfAbsent: %v", err)
	}
	busy.Store(2)
	if data, err := s.Get(t.Context(), "k"); err != nil || string(data) != "x" {
		t.Errorf("Get = %q, %v", data, err)
	}
}

func TestBrokenBodyIsReadAgain(t *testing.T) {
	t.Parallel()
	var breaks atomic.Int32
	endpoint := front(t, memoryServer(t), func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, "/big") || breaks.Add(-1) < 0 {
			next.ServeHTTP(w, r)
			return
		}
		recorded := httptest.NewRecorder()
		next.ServeHTTP(recorded, r)
		for name, values := range recorded.Header() {
			w.Header()[name] = values
		}
		_, _ = io.CopyN(w, recorded.Body, 1000)
		panic(http.ErrAbortHandler)
	})
	s := open(t, config(endpoint))
	data := strings.Repeat("0123456789", 1000)
	if err := s.Put(t.Context(), "big", []byte(data)); err != nil {
		t.Fatal(err)
	}
	breaks.Store(2)
	if got, err := s.Get(t.Context(), "big"); err != nil || string(got) != data {
		t.Errorf("Get = %d bytes, %v", len(got), err)
	}
	breaks.Store(1 << 20)
	if _, err := s.Get(t.Context(), "big"); err == nil {
		t.Error("Get of a body that always breaks succeeded")
	}
}

// TestServersThatIgnoreConditionsAreRefused: such servers exist, and would
// lose updates without a word.
func TestServersThatIgnoreConditionsAreRefused(t *testing.T) {
	t.Parallel()
	for _, header := range []string{"If-Match", "If-None-Match"} {
		endpoint := front(t, memoryServer(t), func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			r.Header.Del(header)
			next.ServeHTTP(w, r)
		})
		_, err := s3.Open(t.Context(), config(endpoint))
		if err == nil || !strings.Contains(err.Error(), "conditional write") {
			t.Errorf("server that ignores %s: %v", header, err)
		}
	}
}

func TestProbeLeavesNothing(t *testing.T) {
	t.Parallel()
	s := open(t, config(memoryServer(t)))
	for info, err := range s.List(t.Context(), "") {
		t.Errorf("left behind: %+v, %v", info, err)
	}
}

func TestMissingBucket(t *testing.T) {
	t.Parallel()
	c := config(memoryServer(t))
	c.CreateBucket = false
	if _, err := s3.Open(t.Context(), c); err == nil || !strings.Contains(err.Error(), "create=true") {
		t.Errorf("missing bucket: %v", err)
	}
}

func TestErrorsNameNoCredentials(t *testing.T) {
	t.Parallel()
	const access, secret = "AKIDNOBODY", "very-secret-key"
	c := config(storagetest.S3Dev(t))
	c.AccessKey, c.SecretKey = access, secret
	_, wrong := s3.Open(t.Context(), c)
	c.AccessKey = storagetest.AccessKey
	_, unsigned := s3.Open(t.Context(), c)
	c.Endpoint = "http://127.0.0.1:1"
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, cancelled := s3.Open(ctx, c)
	_, unreachable := s3.Open(t.Context(), c)
	for what, err := range map[string]error{"wrong key": wrong, "wrong secret": unsigned, "cancelled": cancelled,
		"unreachable": unreachable} {
		t.Run(what, func(t *testing.T) {
			if err == nil {
				t.Errorf("%s: no error", what)
				return
			}
			if text := err.Error(); strings.Contains(text, secret) || strings.Contains(text, access) ||
				strings.Contains(text, "Signature=") {
				t.Errorf("%s: the error names credentials: %s", what, text)
			}
			t.Logf("%s: %v", what, err)
		})
	}
}

// TestBucketThatMayNotBeSeen: who may not list the whole bucket is not told whether it is there,
// and may use its part of it all the same.
func TestBucketThatMayNotBeSeen(t *testing.T) {
	t.Parallel()
	endpoint := front(t, memoryServer(t), func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Method == http.MethodHead && strings.Trim(r.URL.Path, "/") == "rondo" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
	c := config(endpoint)
	if _, err := s3.Open(t.Context(), c); err == nil || !strings.Contains(err.Error(), "bucket does not exist") {
		t.Errorf("a bucket that is not there: %v", err)
	}
	made := c
	made.Bucket = "other"
	open(t, made)
	c.Endpoint = front(t, endpoint, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		r.URL.Path = strings.Replace(r.URL.Path, "/rondo/", "/other/", 1)
		next.ServeHTTP(w, r)
	})
	if err := open(t, c).Put(t.Context(), "k", nil); err != nil {
		t.Error(err)
	}
}
