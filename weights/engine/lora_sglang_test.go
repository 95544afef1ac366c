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

// sglangBase is an SGLang server with adapters. It takes an adapter off its list at once, and
// answers when no request holds it any more.
type sglangBase struct {
	mu       sync.Mutex
	adapters map[string]string // folders by name
	holds    map[string]chan struct{}
	asked    []string
	lies     map[string]bool
	refuses  bool
	dies     int // the side-car dies with this request
	dieDone  bool
}

func (b *sglangBase) RoundTrip(r *http.Request) (*http.Response, error) {
	var body struct {
		Name string  `json:"lora_name"`
		Path string  `json:"lora_path"`
		IDs  []int32 `json:"input_ids"`
		From *int    `json:"logprob_start_len"`
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
	if b.dies > 0 && len(b.asked) > b.dies || b.dies == len(b.asked) && !b.dieDone {
		return nil, errors.New("connection refused")
	}
	w := httptest.NewRecorder()
	refuse := func(format string, args ...any) {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, `{"success":false,"error_message":%q}`, fmt.Sprintf(format, args...))
	}
	switch _, there := b.adapters[body.Name]; r.URL.Path {
	case "/v1/models":
		list := []string{`{"id":"org/base","root":"org/base"}`}
		for _, name := range slices.Sorted(maps.Keys(b.adapters)) {
			list = append(list, fmt.Sprintf(`{"id":%q,"root":%q,"parent":"org/base"}`, name, b.adapters[name]))
		}
		fmt.Fprintf(w, `{"data":[%s]}`, strings.Join(list, ","))
	case "/load_lora_adapter":
		if there || b.refuses {
			refuse("Failed to load LoRA adapter %s", body.Name)
			break
		}
		b.adapters[body.Name] = body.Path
		fmt.Fprint(w, `{"success":true,"loaded_adapters":{}}`)
	case "/unload_lora_adapter":
		if !there {
			refuse("LoRA with name %s does not exist. Loaded LoRAs: []", body.Name)
			break
		}
		delete(b.adapters, body.Name)
		if held := b.holds[body.Name]; held != nil {
			b.mu.Unlock()
			select {
			case <-held:
			case <-r.Context().Done():
			}
			b.mu.Lock()
			if err := r.Context().Err(); err != nil {
				return nil, err
			}
		}
		fmt.Fprint(w, `{"success":true}`)
	case "/generate":
		data, err := os.ReadFile(filepath.Join(b.adapters[body.Path], "weights"))
		if err != nil || body.From == nil || *body.From != 0 {
			refuse("The following requested LoRA adapters are not loaded: %s", body.Path)
			break
		}
		logprob := "-" + string(data)
		if b.lies[body.Path] {
			logprob = "-77"
		}
		list := []string{fmt.Sprintf("[null,%d,null]", body.IDs[0])}
		for _, id := range body.IDs[1:] {
			list = append(list, fmt.Sprintf("[%s,%d,null]", logprob, id))
		}
		fmt.Fprintf(w, `{"meta_info":{"input_token_logprobs":[%s]}}`, strings.Join(list, ","))
	default:
		http.NotFound(w, nil)
	}
	if b.dies == len(b.asked) {
		return nil, errors.New("connection reset")
	}
	return w.Result(), nil
}

func (b *sglangBase) has(t *testing.T, want ...string) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if got := slices.Sorted(maps.Keys(b.adapters)); !slices.Equal(got, want) {
		t.Errorf("it has %q, want %q", got, want)
	}
}

func newSGLangBase() *sglangBase {
	return &sglangBase{adapters: map[string]string{}, holds: map[string]chan struct{}{}, lies: map[string]bool{}}
}

// keepsSGLang is a side-car of a policy's adapters, which tells by which name turns ask.
func keepsSGLang(t *testing.T, b *sglangBase, policy, dir string) *side {
	t.Helper()
	e, err := NewSGLangLoRA("http://e:1/v1", "", policy, dir, 2, b)
	if err != nil {
		t.Fatal(err)
	}
	s := &side{Keeper: NewKeeper(e)}
	s.Tell = func(_ context.Context, state State) error {
		what := e.Model(state.Version.Version)
		if state.Lost {
			what = "lost " + state.Version.Label()
		}
		s.told = append(s.told, what)
		return nil
	}
	return s
}

// TestSGLangAdapters: each version is loaded beside those before it under a name of its
// own, by which turns ask for it; old ones go when there is no room, and the server is
// waited for while requests hold one. What cannot be loaded, or computes something else,
// leaves the one before at work.
func TestSGLangAdapters(t *testing.T) {
	b, dir := newSGLangBase(), t.TempDir()
	b.adapters["other@1"] = "/elsewhere/v000001"
	s := keepsSGLang(t, b, "p", dir)
	bring := func(n int64) error { return s.Bring(t.Context(), adapter(t, dir, "p", n)) }
	for n := int64(1); n <= 4; n++ {
		if err := bring(n); err != nil {
			t.Fatal(err)
		}
	}
	b.has(t, "other@1", "p@3", "p@4")
	held := make(chan struct{})
	b.holds["p@3"] = held
	brought := make(chan error)
	go func() { brought <- bring(5) }()
	select {
	case err := <-brought:
		t.Fatalf("an adapter that a request holds was not waited for: %v", err)
	case held <- struct{}{}:
	}
	if err := <-brought; err != nil {
		t.Fatal(err)
	}
	b.has(t, "other@1", "p@4", "p@5")
	b.refuses = true
	if err := bring(6); !errors.Is(err, errKept) || !strings.Contains(err.Error(), "Failed to load") {
		t.Errorf("a load that fails: %v", err)
	}
	b.refuses, b.lies["p@7"] = false, true
	if err := bring(7); !errors.Is(err, errOther) {
		t.Errorf("another fingerprint: %v", err)
	}
	b.has(t, "other@1", "p@5")
	b.adapters = map[string]string{} // it was started again
	if err := s.Bring(t.Context(), Version{Policy: "p", Version: 5, Dir: filepath.Join(dir, "v000005")}); err != nil {
		t.Error(err)
	}
	b.has(t, "p@5")
	// gone already
	if err := s.Engine.Refuse(t.Context(), Version{Policy: "p", Version: 99}); !errors.Is(err, errKept) {
		t.Errorf("an adapter that it does not have: %v", err)
	}
	if want := "org/base:p@1, org/base:p@2, org/base:p@3, org/base:p@4, org/base:p@5, lost 5, org/base:p@5"; strings.Join(
		s.told, ", ") != want {
		t.Errorf("told %q", s.told)
	}
}

// TestSGLangAdaptersKilled: a side-car that dies with any request leaves
// what the next one finishes.
func TestSGLangAdaptersKilled(t *testing.T) {
	for step := 1; ; step++ {
		finished := false
		for _, done := range []bool{false, true} {
			b, dir := newSGLangBase(), t.TempDir()
			before := keepsSGLang(t, b, "p", dir)
			for n := int64(1); n <= 2; n++ {
				if err := before.Bring(t.Context(), adapter(t, dir, "p", n)); err != nil {
					t.Fatal(err)
				}
			}
			v := adapter(t, dir, "p", 3)
			b.asked, b.dies, b.dieDone = nil, step, done
			err := before.Bring(t.Context(), v)
			finished = err == nil
			b.dies = 0
			next := keepsSGLang(t, b, "p", dir)
			if err := next.Bring(t.Context(), v); err != nil {
				t.Fatalf("request %d, done %v: %v", step, done, err)
			}
			b.has(t, "p@2", "p@3")
			if want := []string{"org/base:p@3"}; !slices.Equal(next.told, want) {
				t.Errorf("request %d, done %v: told %q", step, done, next.told)
			}
		}
		if finished {
			if step < 6 {
				t.Errorf("only %d requests", step-1)
			}
			return
		}
	}
}
