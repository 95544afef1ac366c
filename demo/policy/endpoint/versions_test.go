package endpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rondo-rl/rondo/demo/policy"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/weights/safetensors"
)

// versionFile has weights that tell its version by what they answer.
func versionFile(t *testing.T, version int64) []byte {
	t.Helper()
	values := make([]float32, policy.Dimension)
	for i := range values {
		values[i] = float32(version) * float32(i%7-3)
	}
	var b bytes.Buffer
	if err := safetensors.Write(&b, []safetensors.Data{safetensors.NewF32(weightsTensor, []int64{policy.Dimension},
		values)}, nil); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func ask(t *testing.T, s http.Handler, model string) (int, map[string]any) {
	t.Helper()
	return post(t, s, strings.Replace(question, `"repair"`, fmt.Sprintf("%q", model), 1))
}

// A version that a request names answers, whatever is loaded, and is read from the store once.
func TestPinnedVersions(t *testing.T) {
	var fetched atomic.Int64
	files := map[int64][]byte{1: versionFile(t, 1), 2: versionFile(t, 2), 7: []byte("of another architecture")}
	s := NewServer(func(_ context.Context, name string, version int64) ([]byte, error) {
		fetched.Add(1)
		if file, ok := files[version]; ok && name == "repair" {
			return file, nil
		}
		return nil, fmt.Errorf("fetch: %w", storage.ErrNotFound)
	})
	if err := s.Load("repair", 3, versionFile(t, 3)); err != nil {
		t.Fatal(err)
	}
	answers := map[string]string{}
	for _, model := range []string{"repair", "repair@0", "repair@1", "repair@2", "repair@3", "unknown@0"} {
		code, answer := ask(t, s, model)
		if code != http.StatusOK || answer["model"] != model {
			t.Fatalf("%s: %d %v", model, code, answer)
		}
		want := 3.0
		if _, number, pinned := strings.Cut(model, "@"); pinned {
			want = float64(number[0] - '0')
		}
		if answer["weight_version"] != want {
			t.Errorf("%s is version %v", model, answer["weight_version"])
		}
		answers[model] = fmt.Sprint(answer["choices"])
	}
	if answers["repair"] != answers["repair@3"] || answers["repair@0"] != answers["unknown@0"] ||
		answers["repair@1"] == answers["repair@2"] || answers["repair@1"] == answers["repair@0"] {
		t.Error("versions answer for each other")
	}
	before := fetched.Load()
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for _, model := range []string{"repair@1", "repair@2"} {
				if code, answer := ask(t, s, model); code != http.StatusOK ||
					fmt.Sprint(answer["choices"]) != answers[model] {
					t.Errorf("%s: another answer than before", model)
				}
			}
		})
	}
	group.Wait()
	if n := fetched.Load(); n != before {
		t.Errorf("%d versions were fetched again", n-before)
	}
	for _, model := range []string{"repair@9", "other@1", "repair@", "repair@x", "repair@-1", "@1", "repair@1@2",
		"repair@99999999999999999999", "repair@7"} {
		code, answer := ask(t, s, model)
		if code != http.StatusNotFound || !strings.Contains(fmt.Sprint(answer["error"]), "model") {
			t.Errorf("%s: %d %v", model, code, answer)
		}
	}
}

// A store that is away for a moment is not a version that does not exist, and is asked again.
func TestStoreIsAway(t *testing.T) {
	away := true
	s := NewServer(func(context.Context, string, int64) ([]byte, error) {
		if away {
			return nil, errors.New("connection refused")
		}
		return versionFile(t, 1), nil
	})
	if code, answer := ask(t, s, "repair@1"); code != http.StatusServiceUnavailable {
		t.Errorf("%d %v", code, answer)
	}
	away = false
	if code, answer := ask(t, s, "repair@1"); code != http.StatusOK || answer["weight_version"] != 1.0 {
		t.Errorf("%d %v", code, answer)
	}
}

// The versions that are kept are bounded.
func TestPinnedVersionsAreBounded(t *testing.T) {
	file := versionFile(t, 1)
	s := NewServer(func(context.Context, string, int64) ([]byte, error) { return file, nil })
	for version := range pinnedModels + 10 {
		if _, err := s.model(t.Context(), fmt.Sprintf("repair@%d", version+1)); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.pinned.cache.Len(); n != pinnedModels {
		t.Errorf("%d versions are kept", n)
	}
}
