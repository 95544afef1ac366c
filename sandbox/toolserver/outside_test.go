package toolserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rondo-rl/rondo/sandbox/tools"
	"github.com/rondo-rl/rondo/sandbox/toolset"
	"github.com/rondo-rl/rondo/wording"
)

const key = "secret-key-of-the-wiki"

// at serves a handler, and gives sessions that show it the key.
func at(t *testing.T, handler http.Handler) (*Sessions, toolset.Server) {
	t.Helper()
	web := httptest.NewServer(handler)
	t.Cleanup(web.Close)
	s := New(nil, func(url string) string {
		if strings.HasPrefix(url, web.URL) {
			return key
		}
		return ""
	})
	t.Cleanup(s.Close)
	return s, toolset.Server{Name: "wiki", URL: web.URL + "/mcp", Timeout: wording.Duration(time.Minute)}
}

// asks asks the tool echo.
func asks(t *testing.T, s *Sessions, server toolset.Server, text string) (tools.Served, error) {
	t.Helper()
	arguments, err := json.Marshal(asked{text})
	if err != nil {
		t.Fatal(err)
	}
	return s.Call(t.Context(), server, "echo", arguments)
}

// TestOutside asks a server over HTTP, in a session and without one. Its key is shown to it
// alone, and nobody sees it.
func TestOutside(t *testing.T) {
	t.Parallel()
	for _, stateless := range []bool{false, true} {
		var sessions atomic.Int64
		own := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { sessions.Add(1); return newServer() },
			&mcp.StreamableHTTPOptions{Stateless: stateless})
		s, server := at(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer "+key {
				http.Error(w, "who are you?", http.StatusUnauthorized)
				return
			}
			own.ServeHTTP(w, r)
		}))
		if listed, err := s.List(t.Context(), server); err != nil || len(listed) != 8 {
			t.Fatalf("%v %v", listed, err)
		}
		for _, text := range []string{"one", "two"} {
			if got, err := asks(t, s, server, text); err != nil || got.Content != text || got.Failed {
				t.Errorf("%+v, %v", got, err)
			}
		}
		if got, err := asks(t, s, server, "it is "+key+"!"); err != nil || got.Content != "it is [redacted]!" {
			t.Errorf("%+v, %v", got, err)
		}
		stranger := New(nil, nil)
		if got, err := asks(t, stranger, server, ""); !errors.Is(err, ErrUnreachable) ||
			!strings.Contains(err.Error(), "Unauthorized") {
			t.Errorf("without a key: %+v, %v", got, err)
		}
		stranger.Close()
	}
}

// TestForgottenSession: a server that started again knows no session; the
// call is made in a new one.
func TestForgottenSession(t *testing.T) {
	t.Parallel()
	var handler atomic.Pointer[mcp.StreamableHTTPHandler]
	begin := func() {
		handler.Store(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return newServer() }, nil))
	}
	begin()
	s, server := at(t, http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		handler.Load().ServeHTTP(w, r)
	}))
	for range 2 {
		if got, err := asks(t, s, server, "here"); err != nil || got.Content != "here" {
			t.Errorf("%+v, %v", got, err)
		}
		begin()
	}
}

// broken answers initialize as a server does, and then what it is made for.
func broken(then http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var message struct {
			ID     json.RawMessage
			Method string
		}
		if err := json.NewDecoder(r.Body).Decode(&message); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		answer := func(body string) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,%s}`, message.ID, body)
		}
		switch {
		case message.Method == "server/discover":
			answer(`"error":{"code":-32601,"message":"unknown"}`)
		case message.Method == "initialize":
			answer(`"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"b","version":"1"}}`)
		case strings.HasPrefix(message.Method, "notifications/"):
			w.WriteHeader(http.StatusAccepted)
		default:
			then(w, r)
		}
	})
}

// result is an answer to the third request, the first behind those that begin a session.
func result(result string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":3,"result":%s}`, result)
	}
}

// TestServersThatCannotBeAsked are of the infrastructure, and tell no key.
func TestServersThatCannotBeAsked(t *testing.T) {
	t.Parallel()
	var elsewhere atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	defer other.Close()
	for name, then := range map[string]http.HandlerFunc{
		"Service Unavailable": func(w http.ResponseWriter,
			_ *http.Request) {
			w.WriteHeader(http.StatusServiceUnavailable)
		},
		"Temporary Redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL+"/?"+key, http.StatusTemporaryRedirect)
		},
		"Forbidden": func(w http.ResponseWriter,
			_ *http.Request) {
			http.Error(w, key, http.StatusForbidden)
		},
		`it answered with "text/html"`: func(w http.ResponseWriter,
			_ *http.Request) {
			fmt.Fprintf(w, "<html>%s</html>", key)
		},
		"unexpected EOF": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", "1000")
			fmt.Fprint(w, `{"jsonrpc":`)
		},
		"EOF": func(w http.ResponseWriter, _ *http.Request) {
			if connection, _, err := http.NewResponseController(w).Hijack(); err == nil {
				connection.Close()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, server := at(t, broken(then))
			got, err := asks(t, s, server, "")
			if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), name) ||
				strings.Contains(err.Error(), key) {
				t.Errorf("%s: %+v, %v", name, got, err)
			}
		})
	}
	if elsewhere.Load() != 0 {
		t.Error("a redirect was followed")
	}
	s := New(nil, nil)
	defer s.Close()
	if got, err := asks(t, s, toolset.Server{Name: "gone", URL: "http://127.0.0.1:1"},
		""); !errors.Is(err, ErrUnreachable) {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestHostileServersOutside end in an answer that says what was wrong.
func TestHostileServersOutside(t *testing.T) {
	t.Parallel()
	until := func(r *http.Request, each func() error) {
		for r.Context().Err() == nil && each() == nil {
		}
	}
	stream := func(event string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			until(r, func() error { _, err := fmt.Fprint(w, event); return err })
		}
	}
	for name, c := range map[string]struct {
		then http.HandlerFunc
		want string
	}{
		"an endless answer": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			until(r, func() error { _, err := fmt.Fprint(w, strings.Repeat(" ", 1<<16)); return err })
		}, "more than 4 MiB"},
		"an endless stream of messages": {stream("data: " +
			`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1,"message":"` +
			strings.Repeat("m", 1<<14) + `"}}` + "\n\n"), "more than 4 MiB"},
		"an endless event": {stream("data: " + strings.Repeat("a", 1<<16)), "more than 4 MiB"},
		"no content":       {result(`{"content":[null]}`), "cannot be understood"},
		"a number":         {result(`5`), "cannot be understood"},
		"an unknown kind":  {result(`{"content":[{"type":"video"}]}`), "cannot be understood"},
		"a question": {result(`{"resultType":"input_required","inputRequests":{}}`),
			"asks for something"},
		"silence": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
			"did not answer within"},
		"an error": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":3,"error":{"code":-32602,"message":"not so, %s"}}`, key)
		}, "the server wiki answered: not so, [redacted]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, server := at(t, broken(c.then))
			if name == "silence" {
				server.Timeout = wording.Duration(200 * time.Millisecond)
			}
			if got, err := asks(t, s, server, ""); err != nil || !got.Failed ||
				!strings.Contains(got.Content, c.want) || strings.Contains(got.Content, key) {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

// TestListings that cannot be recorded are refused.
func TestListings(t *testing.T) {
	t.Parallel()
	many := strings.Repeat(`{"name":"a","inputSchema":{"type":"object"}},`, toolset.MaxServerTools)
	for want, listed := range map[string]string{
		"lists no tools":      `{"tools":[]}`,
		"more than 128 tools": `{"tools":[` + many + `{"name":"b","inputSchema":{"type":"object"}}]}`,
		"shows the key": `{"tools":[{"name":"a","description":"ask with ` + key +
			`","inputSchema":{"type":"object"}}]}`,
		"answered: no such thing": `null,"error":{"code":-32601,"message":"no such thing"}`,
	} {
		t.Run(want, func(t *testing.T) {
			s, server := at(t, broken(result(listed)))
			if listed, err := s.List(t.Context(), server); err == nil || !strings.Contains(err.Error(), want) ||
				strings.Contains(err.Error(), key) {
				t.Errorf("%s: %v, %v", want, listed, err)
			}
		})
	}
	endless := 0
	s, server := at(t, broken(func(w http.ResponseWriter, _ *http.Request) {
		endless++
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%d,"result":{"tools":[],"nextCursor":"more"}}`, endless+2)
	}))
	if listed, err := s.List(t.Context(), server); err == nil || !strings.Contains(err.Error(), "more than 32 parts") {
		t.Errorf("endless pages: %v, %v", listed, err)
	}
}
