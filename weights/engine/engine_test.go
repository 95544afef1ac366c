package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// check fails where the server has, or had, other weights than its label says, or is left paused.
func check(t *testing.T, f *fake, v Version) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.label != v.Label() || f.weights != v.Label() || f.cached != v.Label() || f.paused {
		t.Errorf("label %s, weights %s, cache %s, paused %v: want version %d at work", f.label, f.weights,
			f.cached, f.paused, v.Version)
	}
	for _, v := range f.violations {
		t.Error(v)
	}
}

// each runs a test with a server of each kind.
func each(t *testing.T, test func(t *testing.T, f *fake)) {
	for _, kind := range []string{vllm, sglang, transfer} {
		t.Run(kind, func(t *testing.T) { test(t, fresh(kind)) })
	}
}

func TestBring(t *testing.T) {
	each(t, func(t *testing.T, f *fake) {
		s := sideOf(t, f)
		for _, n := range []int64{12, 12, 14} {
			f.held = n == 14 // requests in flight
			v := version(t, n)
			if err := s.Bring(t.Context(), v); err != nil {
				t.Fatal(err)
			}
			check(t, f, v)
			before := len(f.asked)
			if err := s.Bring(t.Context(), v); err != nil || len(f.asked) > before+2 {
				t.Errorf("%v; a server that serves the version was asked %q", err, f.asked[before:])
			}
		}
		// The second version 12 lies elsewhere: it is the same for the server,
		// and told with its place.
		if want := []string{"serves 12", "serves 12", "serves 14"}; !slices.Equal(s.told, want) {
			t.Errorf("told %q", s.told)
		}
	})
}

// TestExtension: a server whose workers have the Python package's extension reloads by it.
func TestExtension(t *testing.T) {
	f := fresh(vllm)
	f.extended = true
	v := version(t, 12)
	if err := sideOf(t, f).Bring(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	check(t, f, v)
}

// TestKilledAtEachStep: a side-car that dies with any request, done or not, leaves
// what the next one finishes.
func TestKilledAtEachStep(t *testing.T) {
	each(t, func(t *testing.T, whole *fake) {
		old, v := version(t, 11), version(t, 12)
		if err := sideOf(t, whole).Bring(t.Context(), old); err != nil {
			t.Fatal(err)
		}
		before := len(whole.asked)
		if err := sideOf(t, whole).Bring(t.Context(), v); err != nil {
			t.Fatal(err)
		}
		for step := 1; step <= len(whole.asked)-before; step++ {
			for _, done := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d done %v", step, done), func(t *testing.T) {
					f := fresh(whole.kind)
					if err := sideOf(t, f).Bring(t.Context(), old); err != nil {
						t.Fatal(err)
					}
					f.asked, f.dies, f.dieDone = nil, step, done
					killed := sideOf(t, f)
					ctx, kill := context.WithCancel(t.Context())
					defer kill()
					killed.Tell = func(context.Context, State) error { return errors.New("it is dead") }
					if err := killed.Bring(ctx, v); err == nil {
						t.Fatal("it did not notice that it died")
					}
					f.dies = 0
					next := sideOf(t, f)
					if err := next.Bring(t.Context(), v); err != nil {
						t.Fatal(err)
					}
					check(t, f, v)
					if want := []string{"serves 12"}; !slices.Equal(next.told, want) {
						t.Errorf("told %q", next.told)
					}
				})
			}
		}
	})
}

// TestFailedHalfWay: a server whose load fails goes on, says of no version that it has it, and is
// told of as lost; the next try mends it.
func TestFailedHalfWay(t *testing.T) {
	for kind, routes := range map[string][]string{
		vllm:   {"/pause", "/update_weight_version", "/collective_rpc", "/reset_prefix_cache", "/resume"},
		sglang: {"/pause_generation", "/update_weight_version", "/update_weights_from_disk", "/continue_generation"},
	} {
		for _, route := range routes {
			t.Run(kind+route, func(t *testing.T) {
				f := fresh(kind)
				s := sideOf(t, f)
				old, v := version(t, 11), version(t, 12)
				if err := s.Bring(t.Context(), old); err != nil {
					t.Fatal(err)
				}
				f.fails[route] = 1
				if err := s.Bring(t.Context(), v); err == nil {
					t.Error("it went well")
				}
				if f.paused && !strings.Contains(route, "resume") && !strings.Contains(route, "continue") {
					t.Error("it is left paused")
				}
				if f.label != f.weights && f.label != "12-loading" {
					t.Errorf("it has %s, and says %s", f.weights, f.label)
				}
				f.violations = nil // the cache of mixed weights under a label that is no version
				if err := s.Bring(t.Context(), v); err != nil {
					t.Fatal(err)
				}
				check(t, f, v)
				if want := []string{"serves 11", "lost 11", "serves 12"}; !slices.Equal(s.told, want) {
					t.Errorf("told %q", s.told)
				}
			})
		}
	}
}

// TestRestarted: a server that was started again is brought to its version at once, and nobody is
// told that it serves before it does.
func TestRestarted(t *testing.T) {
	each(t, func(t *testing.T, f *fake) {
		s, v := sideOf(t, f), version(t, 12)
		bring := func(wrong bool) {
			t.Helper()
			if err := s.Bring(t.Context(), v); err != nil != wrong {
				t.Errorf("%v", err)
			}
		}
		bring(false)
		f.restart() // between two looks
		bring(false)
		check(t, f, v)
		f.down = true
		bring(true)
		bring(true)
		f.restart()
		bring(false)
		check(t, f, v)
		f.down = true // its machine was away, and it was not
		bring(true)
		f.down = false
		bring(false)
		if want := []string{"serves 12", "lost 12", "serves 12", "lost 12", "serves 12", "lost 12",
			"serves 12"}; !slices.Equal(s.told, want) {
			t.Errorf("told %q", s.told)
		}
	})
}

// TestLies: a server that answers that it has loaded, and computes with other weights, as vLLM does
// with the head of a tied model on a CPU, is found out.
func TestLies(t *testing.T) {
	for kind, route := range map[string]string{vllm: "/collective_rpc", sglang: "/update_weights_from_disk"} {
		t.Run(kind, func(t *testing.T) {
			f := fresh(kind)
			s, old, v := sideOf(t, f), version(t, 11), version(t, 12)
			if err := s.Bring(t.Context(), old); err != nil {
				t.Fatal(err)
			}
			f.lies[route] = 1
			err := s.Bring(t.Context(), v)
			if kind == vllm && !errors.Is(err, errOther) || err == nil {
				t.Errorf("it is believed: %v", err)
			}
			if f.paused || f.label == "12" {
				t.Errorf("it is left paused (%v) with the label %s", f.paused, f.label)
			}
			if want := []string{"serves 11", "lost 11"}; !slices.Equal(s.told, want) {
				t.Errorf("told %q", s.told)
			}
			f.violations = nil
			if err := s.Bring(t.Context(), v); err != nil {
				t.Fatal(err)
			}
			check(t, f, v)
		})
	}
}

// TestHangs: a server that does not answer, as one that is paused may, is given
// up in time, and let go on.
func TestHangs(t *testing.T) {
	for _, route := range []string{"/weight_info", "/server_info", "/pause", "/update_weight_version",
		"/collective_rpc", "/reset_prefix_cache", "/v1/completions"} {
		t.Run(route, func(t *testing.T) {
			v := version(t, 12)
			synctest.Test(t, func(t *testing.T) {
				f := fresh(vllm)
				s := sideOf(t, f)
				f.hangs[route] = 1
				began := time.Now()
				if err := s.Bring(t.Context(), v); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%v", err)
				}
				if took := time.Since(began); took > loadTime || f.paused {
					t.Errorf("after %s, paused: %v", took, f.paused)
				}
				f.violations = nil
				if err := s.Bring(t.Context(), v); err != nil {
					t.Fatal(err)
				}
				check(t, f, v)
			})
		})
	}
}

// TestInterrupted: a side-car that is asked to end while the server loads lets it go on.
func TestInterrupted(t *testing.T) {
	each(t, func(t *testing.T, f *fake) {
		v := version(t, 12)
		synctest.Test(t, func(t *testing.T) {
			s := sideOf(t, f)
			f.hangs["/collective_rpc"], f.hangs["/update_weights_from_disk"], f.hangs["/update_weights"] = 1, 1, 1
			ctx, end := context.WithCancel(t.Context())
			ended := make(chan struct{})
			s.Aim(v)
			go func() {
				s.Keep(ctx)
				close(ended)
			}()
			synctest.Wait()
			if !f.paused {
				t.Fatal("it does not load")
			}
			end()
			<-ended
			if f.paused || len(s.told) > 0 {
				t.Errorf("paused: %v, told %q", f.paused, s.told)
			}
		})
	})
}

// TestKeep: a keeper goes to the newest version that it was told of, tries again, and does not wait
// for the end of a rest when a newer one comes.
func TestKeep(t *testing.T) {
	each(t, func(t *testing.T, f *fake) {
		versions := []Version{version(t, 1), version(t, 2), version(t, 3)}
		synctest.Test(t, func(t *testing.T) {
			s := sideOf(t, f)
			failed := 0
			s.Failed = func(Version, error, time.Duration) { failed++ }
			ctx, end := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				s.Keep(ctx)
				close(ended)
			}()
			f.down = true
			s.Aim(versions[0])
			time.Sleep(time.Hour)
			f.mu.Lock()
			f.down = false
			f.mu.Unlock()
			s.Aim(versions[1])
			synctest.Wait()
			check(t, f, versions[1])
			if failed < 240 || failed > 260 {
				t.Errorf("it was tried %d times in an hour", failed)
			}
			s.Aim(versions[2])
			synctest.Wait()
			check(t, f, versions[2])
			f.restart()
			time.Sleep(lookEvery)
			synctest.Wait()
			check(t, f, versions[2])
			end()
			<-ended
			if want := []string{"lost 1", "serves 2", "serves 3", "lost 3", "serves 3"}; !slices.Equal(s.told, want) {
				t.Errorf("told %q", s.told)
			}
		})
	})
}

// TestBack: a server that was away for long, and is back, has its version soon.
func TestBack(t *testing.T) {
	each(t, func(t *testing.T, f *fake) {
		v := version(t, 1)
		synctest.Test(t, func(t *testing.T) {
			s := sideOf(t, f)
			ctx, end := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				s.Keep(ctx)
				close(ended)
			}()
			f.down = true
			s.Aim(v)
			time.Sleep(time.Hour)
			f.mu.Lock()
			f.down = false
			f.mu.Unlock()
			time.Sleep(awayEvery + time.Second)
			synctest.Wait()
			check(t, f, v)
			end()
			<-ended
		})
	})
}

func TestFingerprintIsChecked(t *testing.T) {
	for text, says := range map[string]string{
		`{"tokens":[1],"logprobs":[],"tolerance":1}`:                   "1 tokens",
		`{"tokens":[1,2],"logprobs":[-1,-2],"tolerance":1}`:            "2 log-probabilities",
		`{"tokens":[1,2],"logprobs":[-1]}`:                             "tolerance 0",
		`{"tokens":[1,2],"logprobs":[1],"tolerance":1}`:                "no logarithm",
		`{"tokens":[1,2],"logprobs":[-9999],"tolerance":1}`:            "no log-probability",
		`{"tokens":[1,-2],"logprobs":[-1],"tolerance":1}`:              "the id -2",
		`{"tokens":[1,2],"logprobs":[-1],"tolerance":1`:                "unexpected end",
		strings.Repeat(" ", maxFingerprintSize) + `{"tokens":[1,2]}  `: "limit",
		`{"tokens":[1,2],"logprobs":[-1],"tolerance":1}`:               "",
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, FingerprintName), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := readFingerprint(dir)
		if says == "" && (err != nil || f == nil) ||
			says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("%.60s: %v", text, err)
		}
	}
}

func TestCommand(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	f := fresh("other")
	e, err := NewCommand([]string{"/bin/sh", "-c",
		`test "$RONDO_VERSION" = 12 && echo "$RONDO_POLICY $RONDO_VERSION $RONDO_WEIGHTS" >> "$0"`, out}, "http://e:1",
		"", f)
	if err != nil {
		t.Fatal(err)
	}
	v := Version{Policy: "p", Version: 12, Dir: "/models/v000012"}
	f.lies["/health"] = 100
	if err := e.Load(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	if label, err := e.Label(t.Context()); label != "12" || err != nil {
		t.Errorf("%q, %v", label, err)
	}
	if data, err := os.ReadFile(out); string(data) != "p 12 /models/v000012\n" {
		t.Errorf("the command saw %q (%v)", data, err)
	}
	f.down = true
	if _, err := e.Label(t.Context()); err == nil {
		t.Error("a server that is away was asked")
	}
	f.down = false
	if label, _ := e.Label(t.Context()); label != "" {
		t.Errorf("a server that was away serves %q", label)
	}
	v.Version = 13
	if err := e.Load(t.Context(), v); err == nil {
		t.Error("a command that fails went well")
	}
	if label, _ := e.Label(t.Context()); label != "" {
		t.Errorf("after a command that failed it serves %q", label)
	}
	if _, err := NewCommand(nil, "", "", nil); err == nil {
		t.Error("no command at all")
	}
}

// started is a server that listens from when a file is there.
type started string

func (s started) RoundTrip(*http.Request) (*http.Response, error) {
	if _, err := os.Stat(string(s)); err != nil {
		return nil, &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	return httptest.NewRecorder().Result(), nil
}

// TestCommandStarts: a server that nobody else starts is started by the
// command, also when it has died.
func TestCommandStarts(t *testing.T) {
	up := filepath.Join(t.TempDir(), "up")
	e, err := NewCommand([]string{"/bin/sh", "-c", `echo "$RONDO_VERSION" > "$0"`, up}, "http://e:1", "", started(up))
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	k := NewKeeper(e)
	k.Tell = func(_ context.Context, s State) error {
		told = append(told, fmt.Sprint(s.Version.Version, s.Lost))
		return nil
	}
	v := Version{Policy: "p", Version: 12, Dir: t.TempDir()}
	for range 2 {
		if err := k.Bring(t.Context(), v); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(up); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"12 false", "12 true", "12 false"}; !slices.Equal(told, want) {
		t.Errorf("told %q", told)
	}
}

func TestAddresses(t *testing.T) {
	for _, base := range []string{"", "e:1", "ftp://e", "http://user:secret@e:1", "http://e?x=1"} {
		if _, err := NewVLLM(base, "", nil); err == nil {
			t.Errorf("%q was taken", base)
		}
	}
}
