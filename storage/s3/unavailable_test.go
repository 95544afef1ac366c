package s3

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/storage"
)

// TestUnavailableServer: whatever a server fails with, but for what it says of an object, is
// ErrUnavailable, for reads and for writes.
func TestUnavailableServer(t *testing.T) {
	t.Parallel()
	answer := func(status int, code string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/xml")
			w.WriteHeader(status)
			fmt.Fprintf(w, `<?xml version="1.0"?><Error><Code>%s</Code><Message>m</Message></Error>`, code)
		}
	}
	hangUp := func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			conn.Close()
		}
	}
	for name, c := range map[string]struct {
		serve http.HandlerFunc // nil: nobody listens
		want  bool
	}{
		"503":             {answer(http.StatusServiceUnavailable, "ServiceUnavailable"), true},
		"slow down":       {answer(http.StatusServiceUnavailable, "SlowDown"), true},
		"500":             {answer(http.StatusInternalServerError, "InternalError"), true},
		"502":             {answer(http.StatusBadGateway, ""), true},
		"too many":        {answer(http.StatusTooManyRequests, "TooManyRequests"), true},
		"full":            {answer(http.StatusInsufficientStorage, "XMinioStorageFull"), true},
		"quota":           {answer(http.StatusForbidden, "QuotaExceeded"), true},
		"keys refused":    {answer(http.StatusForbidden, "AccessDenied"), true},
		"no bucket":       {answer(http.StatusNotFound, "NoSuchBucket"), true},
		"broken line":     {hangUp, true},
		"nobody listens":  {nil, true},
		"no such object":  {answer(http.StatusNotFound, "NoSuchKey"), false},
		"range not there": {answer(http.StatusRequestedRangeNotSatisfiable, "InvalidRange"), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			address := listener.Addr().String()
			if c.serve == nil {
				listener.Close()
			} else {
				server := &httptest.Server{Listener: listener,
					Config: &http.Server{Handler: c.serve, ReadHeaderTimeout: time.Minute}}
				server.Start()
				defer server.Close()
			}
			s, err := connect(Config{Endpoint: "http://" + address, Bucket: "bucket", AccessKey: "a", SecretKey: "b"})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			_, err = s.GetRange(t.Context(), "key", 0, 1)
			if got := errors.Is(err, storage.ErrUnavailable); got != c.want {
				t.Errorf("get: unavailable is %v of %v", got, err)
			}
			if !c.want {
				return
			}
			if err := s.Put(t.Context(), "key", []byte("data")); !errors.Is(err, storage.ErrUnavailable) {
				t.Errorf("put: %v", err)
			}
			if err := s.PutIfAbsent(t.Context(), "key", []byte("data")); !errors.Is(err, storage.ErrUnavailable) {
				t.Errorf("put if absent: %v", err)
			}
		})
	}
}
