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
	server
	first engine.Update // of the last update
}

func (s *backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var err error
	switch r.URL.Path {
	case "/server_info":
		fmt.Fprint(w, `{"vllm_config":{"weight_transfer_config":{"backend":"rondo"}}}`)
		return
	case "/finish_weight_update":
		var body struct {
			Version string `json:"weight_version"`
		}
		err = json.NewDecoder(r.Body).Decode(&body)
		s.set(body.Version)
	case "/update_weights":
		err = s.update(r)
	default:
		s.server.ServeHTTP(w, r)
		return
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	fmt.Fprint(w, `{"success":true}`)
}

// update remembers the first part of an update, and reads what it names.
func (s *backend) update(r *http.Request) error {
	var body struct {
		Update struct {
			engine.Update
			Dir   string `json:"dir"`
			Apply bool   `json:"apply"`
		} `json:"update_info"`
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil || body.Update.Apply {
		return err
	}
	s.first = body.Update.Update
	files := map[string]string{}
	maps.Copy(files, s.first.Changes)
	for name, digest := range s.first.Files {
		files[filepath.Join(body.Update.Dir, name)] = digest
	}
	for path, digest := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if storage.Digest(data) != digest {
			return fmt.Errorf("%s has another digest", path)
		}
	}
	return nil
}

// TestBackend: a server with the backend is named a version's files and, where the folder has the
// version that it serves, what has changed since.
func TestBackend(t *testing.T) {
	r, to := clitest.NewRecorded(t, intake.Run), t.TempDir()
	publishLarge(t, r, 3)
	server := &backend{server: server{label: "default"}}
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
		server.set(c.label)
		output, err := clitest.Run(t, New, "weights", "fetch", "large", "--to", to, "--dir", r.Dir,
			"--version", c.version, "--engine", "vllm", "--engine-url", at.URL)
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
		if !slices.Equal(changes, c.changes) || len(server.first.Digest) != 64 || len(server.first.Files) != 1 ||
			(server.first.Base != "") != (c.changes != nil) {
			t.Errorf("version %s: %+v, want the changes %q", c.version, server.first, c.changes)
		}
	}
}
