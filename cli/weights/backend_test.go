package weights

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/services/intake"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/weights/engine"
)

// backend is a vLLM server with the backend rondo.
type backend struct {
	label string
	first engine.Update // of the last update
}

func (s *backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body struct {
		New     string `json:"new_version"`
		Version string `json:"weight_version"`
		Update  struct {
			engine.Update
			Dir   string `json:"dir"`
			Apply bool   `json:"apply"`
		} `json:"update_info"`
	}
	if r.Method == http.MethodPost {
		_ = json.NewDecoder(r.Body).Decode(&body)
	}
	switch r.URL.Path {
	case "/weight_info":
		fmt.Fprintf(w, `{"weight_version":%q}`, s.label)
		return
	case "/server_info":
		fmt.Fprint(w, `{"vllm_config":{"weight_transfer_config":{"backend":"rondo"}}}`)
		return
	case "/update_weight_version":
		s.label = body.New
	case "/finish_weight_update":
		s.label = body.Version
	case "/update_weights":
		if !body.Update.Apply {
			s.first = body.Update.Update
		}
		files := maps.Clone(body.Update.Changes)
		for name, digest := range body.Update.Files {
			if files == nil {
				files = map[string]string{}
			}
			files[filepath.Join(body.Update.Dir, name)] = digest
		}
		for path, digest := range files {
			if data, err := os.ReadFile(path); err != nil || storage.Digest(data) != digest {
				http.Error(w, "another digest", http.StatusInternalServerError)
				return
			}
		}
	}
	fmt.Fprint(w, `{"success":true}`)
}

// TestBackend: a server with the backend is named a version's files and, where the folder has the version that it serves, what has changed since.
func TestBackend(t *testing.T) {
	r, to := clitest.NewRecorded(t, intake.Run), t.TempDir()
	publishLarge(t, r, 3)
	server := &backend{label: "default"}
	at := httptest.NewServer(server)
	defer at.Close()
	for _, c := range []struct {
		version, label string
		changes        []string // files of them
		says           string
	}{
		{"1", "default", nil, "activated version 1"},
		{"2", "1", []string{".v000002.from000001/changes-00001.safetensors"}, "activated version 2"},
		{"1", "2", []string{".v000001.from000002/changes-00001.safetensors"}, "activated version 1"},
		{"3", "2-loading", nil, "activated version 3"},
		{"2", "9", nil, "whole version 2: changes from version 9 to 2: "},
	} {
		server.label = c.label
		output, err := clitest.Run(t, New, "weights", "fetch", "large", "--to", to, "--dir", r.Dir, "--version", c.version, "--engine", "vllm", "--engine-url", at.URL)
		if err != nil || !strings.Contains(output, c.says) || server.label != c.version {
			t.Fatalf("version %s: %v, label %s\n%s", c.version, err, server.label, output)
		}
		var changes []string
		for path := range server.first.Changes {
			name, err := filepath.Rel(to, path)
			if err != nil {
				t.Fatal(err)
			}
			changes = append(changes, name)
		}
		if !slices.Equal(changes, c.changes) || len(server.first.Digest) != 64 || len(server.first.Files) != 1 || (server.first.Base != "") != (c.changes != nil) {
			t.Errorf("version %s: %+v, want the changes %q", c.version, server.first, c.changes)
		}
	}
}
