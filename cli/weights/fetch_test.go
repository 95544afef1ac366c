package weights

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/services/intake"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/weights"
	"github.com/rondo-rl/rondo/weights/safetensors"
)

// publish makes a version, in the store and in the catalogue.
func publish(t *testing.T, r *clitest.Recorded, version int64) {
	t.Helper()
	var file bytes.Buffer
	if err := safetensors.Write(&file, []safetensors.Data{safetensors.NewF32("w", []int64{2},
		[]float32{float32(version), 1})}, nil); err != nil {
		t.Fatal(err)
	}
	published, err := weights.Publish(t.Context(), r.Log.Store(), "small", version,
		weights.Content{Name: "model.safetensors", Data: file.Bytes()},
		weights.Content{Name: "config.json", Data: []byte("{}")})
	if err != nil {
		t.Fatal(err)
	}
	servicetest.Append(t, r.Log, servicetest.Event(t, events.Catalogue, events.WeightsPublishedType,
		"small", events.Ordinal(version),
		events.WeightsPublished{Policy: "small", Version: version, Run: "first", Manifest: published.Ref}))
}

// publishLarge makes versions that differ in one element of 64, large enough for a delta.
func publishLarge(t *testing.T, r *clitest.Recorded, versions int64) {
	t.Helper()
	values := make([]float32, 3<<17)
	for version := range versions {
		for i := int(version); i < len(values); i += 64 {
			values[i] += float32(i)
		}
		var file bytes.Buffer
		if err := safetensors.Write(&file, []safetensors.Data{safetensors.NewF32("w", []int64{int64(len(values))},
			values)}, nil); err != nil {
			t.Fatal(err)
		}
		published, err := weights.Publish(t.Context(), r.Log.Store(), "large", version+1,
			weights.Content{Name: "model.safetensors", Data: file.Bytes()})
		if err != nil {
			t.Fatal(err)
		}
		servicetest.Append(t, r.Log, servicetest.Event(t, events.Catalogue, events.WeightsPublishedType,
			"large", events.Ordinal(version+1),
			events.WeightsPublished{Policy: "large", Version: version + 1, Run: "first", Manifest: published.Ref}))
	}
}

// TestDeltas: what a version's delta takes, and what a side-car has read, stands in the output.
func TestDeltas(t *testing.T) {
	r, to := clitest.NewRecorded(t), t.TempDir()
	publishLarge(t, r, 3)
	d, err := weights.FetchDelta(t.Context(), r.Log.Store(), "large", 3)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ args, says string }{
		{"show large --json", fmt.Sprintf(`"delta":{"base":2,"base_manifest":%q,"ref":%q,"sha256":%q,"size":%d}`,
			d.BaseManifest, d.Key, d.SHA256, d.Size)},
		{"show large", fmt.Sprintf("delta from version 2  %d bytes", d.Size)},
		{"show large", "    others  "},
		{"list large", fmt.Sprintf("  %d  ", d.Size)},
		{"diff large", fmt.Sprintf("; the delta has %d bytes (", d.Size)},
		{"fetch large --version 1 --to " + to, " read, "},
		{"fetch large --version 2 --json --to " + to, `"deltas":1`},
		{"fetch large --json --to " + to, fmt.Sprintf(`"read":%d,"deltas":1`, d.Size)},
		{"fetch large --json --to " + to, `"read":0`},
	} {
		output, err := clitest.Run(t, New, append([]string{"weights", "--dir", r.Dir}, strings.Fields(c.args)...)...)
		if err != nil || !strings.Contains(output, c.says) {
			t.Errorf("%s: %v\n%s\nwant %s", c.args, err, output, c.says)
		}
	}
	if err := r.Log.Store().Put(t.Context(), d.Key, []byte("damaged")); err != nil {
		t.Fatal(err)
	}
	other := t.TempDir()
	for _, args := range []string{"fetch large --version 2 --to " + other, "fetch large --to " + other} {
		output, err := clitest.Run(t, New, append([]string{"weights", "--dir", r.Dir}, strings.Fields(args)...)...)
		if said := strings.Contains(output, "whole version 3: "); err != nil ||
			said != !strings.Contains(args, "--version 2") {
			t.Errorf("%s: %v\n%s", args, err, output)
		}
	}
}

// server is a vLLM server that can be started again.
type server struct {
	mu    sync.Mutex
	label string
	dir   string
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var body struct {
		New    string            `json:"new_version"`
		Kwargs map[string]string `json:"kwargs"`
	}
	if r.Method == http.MethodPost {
		_ = json.NewDecoder(r.Body).Decode(&body)
	}
	switch r.URL.Path {
	case "/weight_info":
		fmt.Fprintf(w, `{"weight_version":%q}`, s.label)
		return
	case "/update_weight_version":
		s.label = body.New
	case "/collective_rpc":
		s.dir = body.Kwargs["weights_path"]
		if _, err := os.Stat(filepath.Join(s.dir, "model.safetensors")); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}
	fmt.Fprint(w, `{"success":true}`)
}

func (s *server) set(label string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.label = label
}

// told are the statements about a replica, as the log has them.
func told(t *testing.T, r *clitest.Recorded) (all []string) {
	t.Helper()
	for e, err := range r.Log.All(t.Context(), events.Catalogue, 1) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Type != events.WeightsActivatedType {
			continue
		}
		a, err := events.Data[events.WeightsActivated](e)
		if err != nil || !a.Lost && len(a.Digest) != 64 {
			t.Errorf("%+v, %v", a, err)
		}
		all = append(all, fmt.Sprintf("%s %d %v", a.Replica, a.Version, a.Lost))
	}
	return all
}

func TestFetchOnce(t *testing.T) {
	r, to := clitest.NewRecorded(t, intake.Run), t.TempDir()
	publish(t, r, 3)
	publish(t, r, 4)
	output, err := clitest.Run(t, New, "weights", "fetch", "small", "--to", to, "--dir", r.Dir, "--json")
	if err != nil || !strings.Contains(output, `"event":"fetched","policy":"small","version":4`) {
		t.Fatalf("%s, %v", output, err)
	}
	if _, err := os.Stat(filepath.Join(to, "current", "config.json")); err != nil {
		t.Error(err)
	}
	engine := &server{label: "default"}
	at := httptest.NewServer(engine)
	defer at.Close()
	output, err = clitest.Run(t, New, "weights", "fetch", "small", "--to", to, "--dir", r.Dir, "--version", "3",
		"--engine", "vllm", "--engine-url", at.URL)
	if err != nil || !strings.Contains(output, "activated version 3 at "+at.URL+"/v1") {
		t.Errorf("%s, %v", output, err)
	}
	if engine.label != "3" || engine.dir != filepath.Join(to, "v000003") {
		t.Errorf("%+v", engine)
	}
	if got := told(t, r); len(got) != 1 || got[0] != at.URL+"/v1 3 false" {
		t.Errorf("told %q", got)
	}
	for _, c := range []struct{ args, says string }{
		{"fetch other --to " + t.TempDir(), "nothing was published for policy other"},
		{"fetch small --to " + to + " --version 9", "policy small has no version 9: `rondo weights list small`"},
		{"fetch small", `--to is missing`},
		{"fetch small --to " + to + " --engine-url http://e", "need --engine"},
		{"fetch small --to " + to + " --engine vllm", "needs --engine-url"},
		{"fetch small --to " + to + " --engine tgi --engine-url http://e", `--engine "tgi"`},
		{"fetch small --to " + to + " --engine command", "--exec"},
		{"fetch small --to " + to + " --follow --version 3", "--version"},
		{"fetch small --to " + to + " --keep 0", "--keep 0"},
		{"fetch small --to " + to + " --engine vllm --engine-url http://a --engine-url http://b --replica x",
			"1 --replica for 2"},
	} {
		_, err := clitest.Run(t, New, append([]string{"weights", "--dir", r.Dir}, strings.Fields(c.args)...)...)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.args, err)
		}
	}
}

// TestFollow: a side-car brings its server to each version, and anew after a restart, and
// removes what nobody needs.
func TestFollow(t *testing.T) {
	r, to := clitest.NewRecorded(t, intake.Run), t.TempDir()
	publish(t, r, 1)
	engine := &server{label: "default"}
	at := httptest.NewServer(engine)
	defer at.Close()
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		root := app.New(New)
		root.SetArgs([]string{"weights", "fetch", "small", "--to", to, "--dir", r.Dir, "--follow", "--engine", "vllm",
			"--engine-url", at.URL, "--replica", "http://r/v1", "-q"})
		root.SetOut(io.Discard)
		ended <- root.ExecuteContext(ctx)
	}()
	want := []string{}
	until := func(next ...string) {
		t.Helper()
		want = append(want, next...)
		natstest.Eventually(t, "the server is told of", func() bool { return len(told(t, r)) >= len(want) })
		if got := told(t, r); strings.Join(got, ", ") != strings.Join(want, ", ") {
			t.Fatalf("told %q, want %q", got, want)
		}
	}
	until("http://r/v1 1 false")
	for version := int64(2); version <= 4; version++ {
		publish(t, r, version)
		until(fmt.Sprintf("http://r/v1 %d false", version))
	}
	engine.set("default") // it was started again
	until("http://r/v1 4 true", "http://r/v1 4 false")
	if _, err := clitest.Run(t, New, "weights", "fetch", "small", "--to", to, "--dir", r.Dir); err == nil ||
		!strings.Contains(err.Error(), "another process") {
		t.Errorf("two side-cars: %v", err)
	}
	end()
	if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(to, "v*")); err != nil || len(left) > 3 {
		t.Errorf("%v are left (%v)", left, err)
	}
}
