package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// fake is a server as the real ones are: it changes weights and label in steps, and answers 200
// to what it has not done.
type fake struct {
	mu      sync.Mutex
	asked   []string
	label   string
	weights string // the version of what it computes with
	cached  string // the version with which its prefix cache was computed
	paused  bool
	held    bool // requests in flight hold blocks of the cache

	down     bool           // nobody listens
	lies     map[string]int // the number of times that a route does nothing and answers 200
	fails    map[string]int // … fails half way
	hangs    map[string]int // … never answers, though it does what it was asked
	dies     int            // the side-car dies with this request: it may be done, but no later one comes through
	dieDone  bool
	kind     string
	extended bool           // its workers have rondo.vllm.Worker
	updating bool           // an update has begun on one of its workers at least
	verified map[string]any // the first part of the update
	damaged  map[string]bool

	violations []string
}

// Kinds of fakes.
const (
	vllm     = "vllm"
	sglang   = "sglang"
	transfer = "vllm with the backend"
)

func fresh(kind string) *fake {
	return &fake{label: "default", weights: "default", cached: "default", kind: kind, lies: map[string]int{},
		fails: map[string]int{}, hangs: map[string]int{}}
}

// restart lets the server begin anew.
func (f *fake) restart() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.label, f.weights, f.cached, f.paused, f.down = "default", "default", "default", false, false
	f.updating, f.verified = false, nil
}

// RoundTrip implements [http.RoundTripper].
func (f *fake) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	text := []byte("{}")
	if r.Body != nil {
		text, _ = io.ReadAll(r.Body)
	}
	var body map[string]any
	if err := json.Unmarshal(text, &body); err != nil {
		return nil, err
	}
	path, at := r.URL.Path, r.URL.Path
	if info, ok := body["update_info"].(map[string]any); ok && info["apply"] == true {
		at = "apply"
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, r.URL.RequestURI())
	if f.dies > 0 && len(f.asked) > f.dies || f.dies == len(f.asked) && !f.dieDone || f.down {
		return nil, errors.New("connection refused")
	}
	w := httptest.NewRecorder()
	hang := f.hangs[at] > 0 || f.paused && (path == "/v1/completions" || path == "/generate")
	switch {
	case take(f.lies, at):
		fmt.Fprint(w, `{"success":true}`)
	case take(f.fails, at):
		if path == "/collective_rpc" || path == "/update_weights_from_disk" || at == "apply" {
			f.weights = "mixed"
		}
		if strings.Contains(path, "update_weights") {
			f.updating, f.verified = false, nil
		}
		http.Error(w, `{"success":false}`, http.StatusInternalServerError)
	case f.kind != sglang:
		f.vllm(w, r.URL.RequestURI(), body)
	default:
		f.sglang(w, r.URL.RequestURI(), body)
	}
	if _, err := strconv.Atoi(f.label); err == nil && !f.paused && (f.label != f.weights || f.cached != f.weights) {
		f.violations = append(f.violations, fmt.Sprintf("after %s: label %s, weights %s, cache of %s", path,
			f.label, f.weights, f.cached))
	}
	if f.dies == len(f.asked) {
		return nil, errors.New("connection reset")
	}
	if hang {
		f.hangs[at]--
		f.mu.Unlock()
		<-r.Context().Done()
		f.mu.Lock()
		return nil, r.Context().Err()
	}
	return w.Result(), nil
}

func take(of map[string]int, path string) bool {
	if of[path] == 0 {
		return false
	}
	of[path]--
	return true
}

// load reads which version a folder holds.
func (f *fake) load(w http.ResponseWriter, dir any) bool {
	data, err := os.ReadFile(filepath.Join(fmt.Sprint(dir), "weights"))
	if err != nil || !f.paused {
		f.weights = "mixed"
		http.Error(w, `{"success":false,"message":"no weights, or not paused"}`, http.StatusInternalServerError)
		return false
	}
	f.weights = string(data)
	return true
}

func (f *fake) vllm(w http.ResponseWriter, uri string, body map[string]any) {
	path, query, _ := strings.Cut(uri, "?")
	switch path {
	case "/weight_info":
		fmt.Fprintf(w, `{"weight_version":%q}`, f.label)
	case "/server_info":
		if f.kind == transfer {
			fmt.Fprint(w,
				`{"vllm_config":{"parallel_config":{"worker_extension_cls":""},"weight_transfer_config":{"backend":"rondo"}}}`)
			return
		}
		if f.extended {
			fmt.Fprintf(w, `{"vllm_config":{"parallel_config":{"worker_extension_cls":%q}}}`, extension)
			return
		}
		fmt.Fprint(w, `{"vllm_config":{"parallel_config":{"worker_extension_cls":""},"weight_transfer_config":null}}`)
	case "/pause":
		f.paused = true
		if query != "mode=keep&clear_cache=false" {
			f.violations = append(f.violations, "paused with "+query)
		}
	case "/resume":
		f.paused = false
	case "/update_weight_version":
		f.label = body["new_version"].(string)
		fmt.Fprint(w, `{"success":true}`)
	case "/collective_rpc":
		method := "reload_weights"
		if f.extended {
			method = "reload_version"
		}
		if body["method"] == method && f.load(w, body["kwargs"].(map[string]any)["weights_path"]) {
			fmt.Fprint(w, `{"results":["None"]}`)
		}
	case "/start_weight_update", "/update_weights", "/finish_weight_update":
		f.transfer(w, path, body)
	case "/reset_prefix_cache":
		dropped := !f.held || strings.Contains(query, "reset_running_requests=true")
		if dropped {
			f.cached = f.weights
		}
		fmt.Fprintf(w, `{"success":%v}`, dropped)
	case "/v1/models":
		fmt.Fprint(w, `{"data":[{"id":"m"}]}`)
	case "/v1/completions":
		if body["cache_salt"] == "" || body["model"] != "m" {
			http.Error(w, "no salt", http.StatusBadRequest)
			return
		}
		fmt.Fprint(w, `{"choices":[{"prompt_logprobs":[null,`+
			fmt.Sprintf(`{"7":{"logprob":%v},"9":{"logprob":-99}},{"8":{"logprob":%v}}`, f.logprob(), f.logprob())+
			`]}]}`)
	default:
		http.NotFound(w, nil)
	}
}

// transfer is an update by the backend. Of several workers only the one that has
// refused it has ended it.
func (f *fake) transfer(w http.ResponseWriter, path string, body map[string]any) {
	refuse := func(why string) { http.Error(w, why, http.StatusInternalServerError) }
	info, _ := body["update_info"].(map[string]any)
	switch {
	case path == "/start_weight_update" && f.updating:
		refuse("it is updating")
	case path == "/start_weight_update":
		f.updating, f.verified = true, nil
	case !f.updating:
		refuse("it has not begun")
	case path == "/finish_weight_update":
		f.updating, f.verified = false, nil
		if label, ok := body["weight_version"].(string); ok {
			f.label = label
		}
	case info["apply"] == true:
		if f.verified == nil || f.verified["digest"] != info["digest"] {
			refuse("another version was verified")
			return
		}
		from := f.weights
		if f.load(w, f.verified["dir"]) && f.verified["base"] != nil && from != f.verified["base"] {
			f.weights = "mixed"
		}
	case info["base"] != nil && (info["base"] != f.weights || f.damaged["changes"]) ||
		info["base"] == nil && f.damaged["files"]:
		refuse("damaged")
	default:
		f.verified = info
	}
}

// logprob is what the weights say of any token.
func (f *fake) logprob() float64 {
	n, err := strconv.ParseFloat(f.weights, 64)
	if err != nil {
		return -50
	}
	return -n
}

func (f *fake) sglang(w http.ResponseWriter, uri string, body map[string]any) {
	switch uri {
	case "/get_model_info":
		fmt.Fprintf(w, `{"model_path":"x","weight_version":%q}`, f.label)
	case "/pause_generation":
		f.paused = true
		f.held = f.held && body["mode"] != "retract"
	case "/continue_generation":
		f.paused = false
	case "/update_weight_version":
		f.label = body["new_version"].(string)
		fmt.Fprint(w, `{"success":true}`)
	case "/update_weights_from_disk":
		if body["abort_all_requests"] != false || body["flush_cache"] != true || f.held ||
			!f.load(w, body["model_path"]) {
			return
		}
		f.label, f.cached = body["weight_version"].(string), f.weights
		fmt.Fprint(w, `{"success":true,"message":"","num_paused_requests":0}`)
	case "/generate":
		fmt.Fprintf(w, `{"meta_info":{"input_token_logprobs":[[null,3,null],[%v,7,null],[%v,8,null]]}}`, f.logprob(),
			f.logprob())
	default:
		http.NotFound(w, nil)
	}
}

// version is a folder with the weights of a version, and with its fingerprint.
func version(t *testing.T, n int64) Version {
	t.Helper()
	v := Version{Policy: "p", Version: n, Dir: t.TempDir()}
	f := Fingerprint{Tokens: []int32{3, 7, 8}, Logprobs: []float64{-float64(n), -float64(n)}, Tolerance: 0.1}
	text, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"weights": []byte(v.Label()), FingerprintName: text} {
		if err := os.WriteFile(filepath.Join(v.Dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return v
}

// side is a side-car of a fake, and what it has told.
type side struct {
	*Keeper
	told []string
}

func sideOf(t *testing.T, f *fake) *side {
	t.Helper()
	var e Engine
	var err error
	if e, err = NewVLLM("http://e:1/v1/", "", f); f.kind == sglang {
		e, err = NewSGLang("http://e:1", "", f)
	}
	if err != nil {
		t.Fatal(err)
	}
	if e, ok := e.(*VLLM); ok {
		e.Update = func(_ context.Context, v Version, from int64) (*Update, error) {
			u := &Update{Digest: v.Label()}
			if from > 0 {
				u.Base = fmt.Sprint(from)
			}
			return u, nil
		}
	}
	s := &side{Keeper: NewKeeper(e)}
	s.Tell = func(_ context.Context, state State) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		what := "serves " + state.Version.Label()
		if state.Lost {
			what = "lost " + state.Version.Label()
		} else if f.label != state.Version.Label() || f.weights != f.label || f.paused {
			t.Errorf("told that it serves %s, but it has %s with the label %s (paused: %v)", state.Version.Label(),
				f.weights, f.label, f.paused)
		}
		s.told = append(s.told, what)
		return nil
	}
	return s
}
