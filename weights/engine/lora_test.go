package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// base is a vLLM server with adapters. Its lists are as vLLM's: it says of what its requests hold
// in a metric whose old series stay.
type base struct {
	mu       sync.Mutex
	adapters map[string]string // folders by name
	holds    []string          // of the requests that run
	noted    []string          // series of the metric
	clock    int
	asked    []string
	lies     map[string]bool // adapters that compute as another one
	dies     int             // the side-car dies with this request: no later one comes through
	dieDone  bool
	down     bool
	most     int // that were loaded at once

	violations []string
}

func newBase() *base { return &base{adapters: map[string]string{}, lies: map[string]bool{}} }

// hold lets requests run that hold adapters.
func (b *base) hold(names ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.holds = names
	b.clock++
	b.noted = append(b.noted,
		fmt.Sprintf(`vllm:lora_requests_info{engine="0",max_lora="1",running_lora_adapters=%q,waiting_lora_adapters=""} 1.7600000%02de+09`,
			strings.Join(names, ","), b.clock))
}

// RoundTrip implements [http.RoundTripper].
func (b *base) RoundTrip(r *http.Request) (*http.Response, error) {
	var body struct {
		Name     string `json:"lora_name"`
		Path     string `json:"lora_path"`
		Model    string `json:"model"`
		Sampling struct {
			IDs []int32 `json:"logprob_token_ids"`
		} `json:"sampling_params"`
	}
	if r.Body != nil {
		text, _ := io.ReadAll(r.Body)
		if err := json.Unmarshal(text, &body); err != nil {
			return nil, err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked = append(b.asked, r.URL.Path)
	if b.down || b.dies > 0 && len(b.asked) > b.dies || b.dies == len(b.asked) && !b.dieDone {
		return nil, errors.New("connection refused")
	}
	w := httptest.NewRecorder()
	switch r.URL.Path {
	case "/v1/models":
		list := []string{`{"id":"base","root":"/models/base"}`}
		for _, name := range slices.Sorted(maps.Keys(b.adapters)) {
			list = append(list, fmt.Sprintf(`{"id":%q,"root":%q,"parent":"base"}`, name, b.adapters[name]))
		}
		fmt.Fprintf(w, `{"data":[%s]}`, strings.Join(list, ","))
	case "/v1/load_lora_adapter":
		if _, there := b.adapters[body.Name]; there {
			http.Error(w, "has already been loaded", http.StatusBadRequest)
			break
		}
		b.adapters[body.Name] = body.Path
		b.most = max(b.most, len(b.adapters))
		fmt.Fprint(w, "Success: LoRA adapter added")
	case "/v1/unload_lora_adapter":
		if slices.Contains(b.holds, body.Name) {
			b.violations = append(b.violations, body.Name+" was unloaded while a request held it")
		}
		if _, there := b.adapters[body.Name]; !there {
			http.Error(w, "not found", http.StatusNotFound)
			break
		}
		delete(b.adapters, body.Name)
		fmt.Fprint(w, "Success: LoRA adapter removed")
	case "/metrics":
		fmt.Fprintf(w, "# HELP vllm:num_requests_running\nvllm:num_requests_running{engine=\"0\",model_name=\"base\"} %d.0\n%s\n",
			len(b.holds), strings.Join(b.noted, "\n"))
	case "/inference/v1/generate":
		path, there := b.adapters[body.Model]
		data, err := os.ReadFile(filepath.Join(path, "weights"))
		if !there || err != nil {
			http.Error(w, "the model "+body.Model+" does not exist", http.StatusNotFound)
			break
		}
		logprob := "-" + string(data)
		if b.lies[body.Model] {
			logprob = "-77"
		}
		fmt.Fprintf(w, `{"choices":[{"logprobs":{"content":[{"token_id":1,"logprob":-9,"top_logprobs":[{"token_id":1,"logprob":-9},{"token_id":%d,"logprob":%s}]}]}}]}`,
			body.Sampling.IDs[0], logprob)
	default:
		http.NotFound(w, nil)
	}
	if b.dies == len(b.asked) {
		return nil, errors.New("connection reset")
	}
	return w.Result(), nil
}

// adapter is a version of a policy in a folder of its versions.
func adapter(t *testing.T, dir, policy string, n int64) Version {
	t.Helper()
	v := version(t, n)
	at := filepath.Join(dir, fmt.Sprintf("v%06d", n))
	if err := os.Rename(v.Dir, at); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(at, adapterConfig), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	return Version{Policy: policy, Version: n, Dir: at}
}

// keeps is a side-car of a policy's adapters.
func keeps(t *testing.T, b *base, policy, dir string) *side {
	t.Helper()
	e, err := NewLoRA("http://e:1/v1", "", policy, dir, 2, b)
	if err != nil {
		t.Fatal(err)
	}
	s := &side{Keeper: NewKeeper(e)}
	s.Tell = func(_ context.Context, state State) error {
		name := AdapterName(policy, state.Version.Version)
		b.mu.Lock()
		defer b.mu.Unlock()
		if _, there := b.adapters[name]; !there && !state.Lost {
			t.Errorf("told that it serves %s, and it has %v", name, b.adapters)
		}
		what := "serves "
		if state.Lost {
			what = "lost "
		}
		s.told = append(s.told, what+state.Version.Label())
		return nil
	}
	return s
}

// has checks which adapters the server has, and that none was taken from a request.
func (b *base) has(t *testing.T, want ...string) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if got := slices.Sorted(maps.Keys(b.adapters)); !slices.Equal(got, want) {
		t.Errorf("it has %q, want %q", got, want)
	}
	for _, v := range b.violations {
		t.Error(v)
	}
}

// TestAdapters: each version has a name, old ones go when there is no room, and neither those of
// others nor those that requests hold.
func TestAdapters(t *testing.T) {
	b, dir := newBase(), t.TempDir()
	s := keeps(t, b, "p", dir)
	bring := func(n int64) error {
		t.Helper()
		v := Version{Policy: "p", Version: n, Dir: filepath.Join(dir, fmt.Sprintf("v%06d", n))}
		if _, err := os.Stat(v.Dir); err != nil {
			v = adapter(t, dir, "p", n)
		}
		return s.Bring(t.Context(), v)
	}
	b.adapters["p@1"], b.adapters["other@1"] = adapter(t, t.TempDir(), "p", 1).Dir, "/elsewhere/v000001"
	for n := int64(7); n <= 11; n++ {
		for range 2 {
			if err := bring(n); err != nil {
				t.Fatal(err)
			}
		}
	}
	b.has(t, "other@1", "p@1", "p@10", "p@11")
	b.hold("p@11", "p@10", "other@1")
	if err := bring(12); !errors.Is(err, errHeld) {
		t.Errorf("both are held: %v", err)
	}
	b.has(t, "other@1", "p@1", "p@10", "p@11")
	b.hold("p@11", "p@1")
	if err := bring(12); err != nil {
		t.Error(err)
	}
	b.has(t, "other@1", "p@1", "p@11", "p@12")
	b.hold("p@11")
	if err := bring(11); err != nil { // back, without another load
		t.Error(err)
	}
	if err := bring(13); err != nil {
		t.Error(err)
	}
	b.has(t, "other@1", "p@1", "p@11", "p@13")
	if want := "serves 7, serves 8, serves 9, serves 10, serves 11, serves 12, serves 11, serves 13"; strings.Join(
		s.told, ", ") != want {
		t.Errorf("told %q", s.told)
	}
	if b.most > 4 {
		t.Errorf("%d adapters at once", b.most)
	}
}

// TestAdapterKeepsServing: a version that is no adapter, that the server cannot load or that
// computes something else does not take away the one before.
func TestAdapterKeepsServing(t *testing.T) {
	b, dir := newBase(), t.TempDir()
	s := keeps(t, b, "p", dir)
	if err := s.Bring(t.Context(), adapter(t, dir, "p", 1)); err != nil {
		t.Fatal(err)
	}
	if err := s.Bring(t.Context(), version(t, 2)); err == nil || !strings.Contains(err.Error(), "is no adapter") {
		t.Errorf("%v", err)
	}
	b.lies["p@3"] = true
	v := adapter(t, dir, "p", 3)
	if err := s.Bring(t.Context(), v); !errors.Is(err, errOther) {
		t.Errorf("%v", err)
	}
	b.has(t, "p@1")
	if want := []string{"serves 1"}; !slices.Equal(s.told, want) {
		t.Errorf("told %q", s.told)
	}
	b.lies["p@3"] = false
	if err := s.Bring(t.Context(), v); err != nil {
		t.Error(err)
	}
	b.mu.Lock()
	b.adapters = map[string]string{} // it was started again
	b.mu.Unlock()
	if err := s.Bring(t.Context(), v); err != nil {
		t.Error(err)
	}
	if want := "serves 1, serves 3, lost 3, serves 3"; strings.Join(s.told, ", ") != want {
		t.Errorf("told %q", s.told)
	}
	if needs, known := s.Needs(); !known || !slices.Contains(needs, 3) {
		t.Errorf("needs %v, %v", needs, known)
	}
	if _, known := keeps(t, b, "p", dir).Needs(); known {
		t.Error("a side-car that has not asked yet knows what the server reads")
	}
}

// TestAdaptersKilled: a side-car that dies with any request leaves what the next one finishes, and
// no request loses its adapter.
func TestAdaptersKilled(t *testing.T) {
	for step := 1; step <= 9; step++ {
		for _, done := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d done %v", step, done), func(t *testing.T) {
				b, dir := newBase(), t.TempDir()
				before := keeps(t, b, "p", dir)
				for n := int64(1); n <= 2; n++ {
					if err := before.Bring(t.Context(), adapter(t, dir, "p", n)); err != nil {
						t.Fatal(err)
					}
				}
				b.hold("p@2")
				v := adapter(t, dir, "p", 3)
				b.asked, b.dies, b.dieDone = nil, step, done
				before.Tell = func(context.Context, State) error { return errors.New("it is dead") }
				if err := before.Bring(t.Context(), v); err == nil {
					t.Fatal("it did not notice that it died")
				}
				b.dies = 0
				next := keeps(t, b, "p", dir)
				if err := next.Bring(t.Context(), v); err != nil {
					t.Fatal(err)
				}
				b.has(t, "p@2", "p@3")
				if want := []string{"serves 3"}; !slices.Equal(next.told, want) {
					t.Errorf("told %q", next.told)
				}
			})
		}
	}
}

// TestTenants: several policies on one base do not see each other.
func TestTenants(t *testing.T) {
	b, one, two := newBase(), t.TempDir(), t.TempDir()
	for n := int64(1); n <= 4; n++ {
		for policy, dir := range map[string]string{"p": one, "p-2": two} {
			if err := keeps(t, b, policy, dir).Bring(t.Context(), adapter(t, dir, policy, n)); err != nil {
				t.Fatal(err)
			}
		}
	}
	b.has(t, "p-2@3", "p-2@4", "p@3", "p@4")
}
