package gateway

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/inference/memory"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/services/gateway/dialects"
)

// pipes is a listener whose connections are in memory, so that time can be made up.
type pipes struct{ conns chan net.Conn }

func (p pipes) Accept() (net.Conn, error) {
	conn, ok := <-p.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}
func (pipes) Close() error   { return nil }
func (pipes) Addr() net.Addr { return &net.UnixAddr{} }

// connected serves a handler to one client that is there.
func connected(t *testing.T, h http.HandlerFunc) net.Conn {
	t.Helper()
	there, here := net.Pipe()
	listener := pipes{make(chan net.Conn, 1)}
	listener.conns <- there
	server := &http.Server{Handler: h, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	go server.Serve(listener)
	t.Cleanup(func() { here.Close(); close(listener.conns); server.Close() })
	return here
}

// answers reads an answer in the background: its status, and the error that ended it.
func answers(conn net.Conn) <-chan *http.Response {
	done := make(chan *http.Response, 1)
	go func() {
		defer close(done)
		r := bufio.NewReader(conn)
		if resp, err := http.ReadResponse(r, nil); err == nil {
			done <- resp
		}
		io.Copy(io.Discard, r)
	}()
	return done
}

const head = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n"

// TestSlowBodies: a client that sends nothing, or a byte now and then, is told so; it has its
// memory for a minute at most.
func TestSlowBodies(t *testing.T) {
	for name, every := range map[string]time.Duration{"nothing": 0, "a byte now and then": 10 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			g := &Gateway{memory: newMemory(), metrics: testMetrics(t), mux: http.NewServeMux(),
				logger: slog.New(slog.DiscardHandler)}
			g.handle("/", dialects.Chat{}, func(w *stream, r *http.Request, tn *tenant) error {
				share := g.memory.Share("")
				defer share.End()
				_, err := body(w, r, share, maxBody)
				return err
			})
			conn := connected(t, g.ServeHTTP)
			began, got := time.Now(), answers(conn)
			io.WriteString(conn, head)
			if every > 0 {
				go func() {
					for _, err := io.WriteString(conn, "x"); err == nil; _, err = io.WriteString(conn, "x") {
						time.Sleep(every)
					}
				}()
			}
			resp := <-got
			if resp == nil || resp.StatusCode != http.StatusRequestTimeout {
				t.Errorf("%s: it is answered %+v", name, resp)
			}
			if took := time.Since(began); took > bodyTime+time.Second || every == 0 && took != idleTime {
				t.Errorf("%s: it took %s", name, took)
			}
			conn.Close()
			time.Sleep(every) // in which the writer finds that out
			synctest.Wait()
		})
	}
}

// TestBodyThatNobodyReads: who is refused before the request is read keeps no connection.
func TestBodyThatNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &Gateway{metrics: testMetrics(t), mux: http.NewServeMux(), logger: slog.New(slog.DiscardHandler)}
		g.handle("/", dialects.Chat{}, func(*stream, *http.Request,
			*tenant) error {
			return problem(http.StatusNotFound, "not_found", "no")
		})
		conn := connected(t, g.ServeHTTP)
		began, got := time.Now(), answers(conn)
		io.WriteString(conn, head)
		<-got
		<-got // closed with the connection
		if took := time.Since(began); took > bodyTime+time.Second {
			t.Errorf("the connection lasted %s", took)
		}
	})
}

// TestMemoryOfRequests: where the memory is spent a request waits, and is told to come again;
// with others gone it gets on.
func TestMemoryOfRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(3<<20, 1<<20)
		b.Wait = memoryWait
		for _, tenant := range []string{"a", "b", "c"} {
			if err := b.Share(tenant).Grow(t.Context(), 1<<20); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		_, err := read(t, b, strings.Repeat("x", 1000))
		var r *refusal
		if !errors.As(err, &r) || r.status != http.StatusServiceUnavailable || r.after == 0 ||
			time.Since(began) != memoryWait {
			t.Errorf("after %s it is told %v", time.Since(began), err)
		}
		b = memory.New(3<<20, 1<<20)
		if _, err := read(t, b, `{"messages":[`+strings.Repeat(`{},`, 10000)+`{}]}`); !errors.As(err, &r) ||
			r.status != http.StatusRequestEntityTooLarge {
			t.Errorf("a request whose values need more than one may have: %v", err)
		}
		if _, err := read(t, b, `{"messages":[{"role":"user","content":"a"}]}`); err != nil {
			t.Error(err)
		}
	})
}

// read takes a request of a client in as a call does.
func read(t *testing.T, b *memory.Budget, text string) (a *ask, err error) {
	conn := connected(t, func(w http.ResponseWriter, r *http.Request) {
		share := b.Share("d")
		defer share.End()
		var got []byte
		if got, err = body(newStream(w), r, share, maxBody); err == nil {
			a, err = decode(r.Context(), share, dialects.Chat{}, got)
		}
	})
	got := answers(conn)
	req, _ := http.NewRequestWithContext(context.Background(), http.MethodPost,
		"http://localhost/", strings.NewReader(text))
	go req.Write(conn)
	<-got
	return a, err
}

// TestMemoryOfImages: the memory for a request's images is taken before they are read; they are
// found however they are escaped.
func TestMemoryOfImages(t *testing.T) {
	data, long := strings.Repeat("AAA/", leastImage), strings.Repeat("it is so. ", leastImage)
	for text, want := range map[string]int{
		`{"data":"` + data + `"}`: len(data), `{"data":"` + strings.ReplaceAll(data, "/", `\/`) +
			`"}`: len(data) / 4 * 5, `{"data":"` + long + `"}`: 0,
		`{"data":"` + data[:leastImage-1] + `"}`: 0, `["` + data + `","` + data + `"]`: 2 * len(data),
	} {
		if n := base64Bytes([]byte(text)); n != int64(want) {
			t.Errorf("%.20s…: %d bytes may be images, want %d", text, n, want)
		}
	}
	text := []byte(`{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,` + data + `"}}]}]}`)
	for most, want := range map[int]string{(perByte + 1) * len(text): "takes more than",
		(perByte + perPixels + 1) * len(text): "no image"} {
		share := memory.New(1<<20, int64(most)).Share("t")
		if _, err := decode(t.Context(), share, dialects.Chat{}, text); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("with %d bytes: %v, want %q", most, err, want)
		}
		share.End()
	}
}

// TestSlowReader: a client that reads a little of each piece in time has the answer's
// memory for takeTime at most.
func TestSlowReader(t *testing.T) {
	for name, write := range map[string]func(w *stream) error{
		"of the end": func(w *stream) error {
			w.until = time.Now().Add(takeTime)
			for {
				if err := w.event(dialects.Piece{Data: strings.Repeat("x", 4096)}); err != nil {
					return err
				}
			}
		},
		"of what came before": func(w *stream) error {
			l := newLive(&tenant{}, &ask{cfg: &runfile.RunConfig{}, Request: &dialects.Request{Stream: true}})
			l.follow(inference.Delta{Content: strings.Repeat("x", 4<<20)})
			l.end()
			return w.tell(dialects.Chat{}, &ask{Request: &dialects.Request{}}, l)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ended := make(chan error, 1)
				conn := connected(t, func(plain http.ResponseWriter,
					_ *http.Request) {
					ended <- write(newStream(plain))
				})
				go func() {
					for buffer := make([]byte, 16<<10); ; time.Sleep(writeTime / 8) { // soon enough for each piece
						if _, err := conn.Read(buffer); err != nil {
							return
						}
					}
				}()
				began := time.Now()
				io.WriteString(conn, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
				err := <-ended
				if took := time.Since(began); err == nil || took < takeTime-writeTime || took > takeTime+time.Second {
					t.Errorf("it took %s: %v", took, err)
				}
				conn.Close()
				time.Sleep(writeTime) // in which the reader finds that out
				synctest.Wait()
			})
		})
	}
}

// TestWhoReadsAlong: an answer is told while it comes to a client that wants a stream, but to no
// agent of the run's own, by tokens, or with columns beside the tokens.
func TestWhoReadsAlong(t *testing.T) {
	for name, c := range map[string]struct {
		agent  *Agent
		cfg    runfile.RunConfig
		stream bool
		want   bool
	}{
		"a stream":     {stream: true, want: true},
		"no stream":    {},
		"an agent":     {agent: &Agent{}, stream: true},
		"by tokens":    {cfg: runfile.RunConfig{EndpointAPI: runfile.APITokens}, stream: true},
		"with columns": {cfg: runfile.RunConfig{TokenColumns: &runfile.TokenColumns{}}, stream: true},
	} {
		if l := newLive(&tenant{agent: c.agent}, &ask{cfg: &c.cfg,
			Request: &dialects.Request{Stream: c.stream}}); l.follows != c.want {
			t.Errorf("%s: %t", name, l.follows)
		}
	}
}

// TestBrowsers: a page of elsewhere, also under a name that leads here, gets nothing
// from a gateway without keys.
func TestBrowsers(t *testing.T) {
	log := natstest.Log(t)
	for name, c := range map[string]struct {
		host   string
		header map[string]string
		keys   bool
		want   int
	}{
		"a harness":              {"127.0.0.1:8790", nil, false, 404},
		"localhost":              {"localhost:8790", nil, false, 404},
		"a name below localhost": {"a.localhost", nil, false, 404},
		"IPv6":                   {"[::1]:8790", nil, false, 404},
		"another loopback":       {"127.8.0.1", nil, false, 404},
		"rebound":                {"evil.example:8790", nil, false, 403},
		"rebound, alike":         {"localhost.evil.example", nil, false, 403},
		"rebound, by number":     {"127.0.0.1.evil.example", nil, false, 403},
		"another machine's":      {"192.168.0.7:8790", nil, false, 403},
		"no host":                {"", nil, false, 403},
		"another site":           {"127.0.0.1:8790", map[string]string{"Origin": "https://evil.example"}, false, 403},
		"another port": {"127.0.0.1:8790", map[string]string{"Origin": "http://127.0.0.1:3000"}, false,
			403},
		"a file":                   {"127.0.0.1:8790", map[string]string{"Origin": "null"}, false, 403},
		"by what the browser says": {"127.0.0.1:8790", map[string]string{"Sec-Fetch-Site": "cross-site"}, false, 403},
		"itself": {"127.0.0.1:8790", map[string]string{"Origin": "http://127.0.0.1:8790"}, false,
			404},
		"who has a key": {"gateway.example",
			map[string]string{"Origin": "https://app.example", "Authorization": "Bearer k"}, true, 404},
		"who has none": {"gateway.example", map[string]string{"Origin": "https://app.example"}, true, 401},
	} {
		t.Run(name, func(t *testing.T) {
			opts := DefaultOptions()
			if c.keys {
				opts.Tenants = []Tenant{WithKey("a", "k")}
			}
			g, err := New(pipeline.Env{Log: log, Logger: slog.New(slog.DiscardHandler)}, nil, opts)
			if err != nil {
				t.Fatal(err)
			}
			for _, path := range []string{"POST /elsewhere", "POST /rollouts/nobody/finish"} {
				method, path, _ := strings.Cut(path, " ")
				w := &recorder{header: http.Header{}}
				r, err := http.NewRequestWithContext(t.Context(), method, "http://x"+path, strings.NewReader("{}"))
				if err != nil {
					t.Fatal(err)
				}
				r.Host = c.host
				for k, v := range c.header {
					r.Header.Set(k, v)
				}
				if g.ServeHTTP(w, r); w.status != c.want {
					t.Errorf("%s: POST %s is answered %d, want %d", name, path, w.status, c.want)
				}
			}
		})
	}
}

// recorder keeps an answer's status.
type recorder struct {
	header http.Header
	status int
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) WriteHeader(status int)      { r.status = status }
func (r *recorder) Write(p []byte) (int, error) { return len(p), nil }
