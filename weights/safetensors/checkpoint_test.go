package safetensors_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/weights/safetensors"
)

func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func shard(t *testing.T, names ...string) string {
	t.Helper()
	var tensors []safetensors.Data
	for _, name := range names {
		tensors = append(tensors, safetensors.NewF32(name, []int64{1}, []float32{float32(len(name))}))
	}
	var b bytes.Buffer
	if err := safetensors.Write(&b, tensors, nil); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestCheckpoint(t *testing.T) {
	files := map[string]string{"model-00001-of-00002.safetensors": shard(t, "a", "bb"),
		"model-00002-of-00002.safetensors": shard(t, "ccc"), "config.json": "{}"}
	c, err := safetensors.Open(folder(t, files))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	index, err := c.Index()
	if err != nil {
		t.Fatal(err)
	}
	for name, file := range map[string]string{"bb": "model-00001-of-00002.safetensors",
		"ccc": "model-00002-of-00002.safetensors"} {
		found, ok := c.Tensor(name)
		values, err := found.ReadF32(found.File)
		if !ok || err != nil || found.File.Name != file || values[0] != float32(len(name)) {
			t.Errorf("tensor %s: %v in %s (%v)", name, values, found.File.Name, err)
		}
	}
	files[safetensors.IndexName] = string(index)
	indexed, err := safetensors.Open(folder(t, files))
	if err != nil {
		t.Fatal(err)
	}
	defer indexed.Close()
}

func TestCheckpointRefuses(t *testing.T) {
	for want, files := range map[string]map[string]string{
		"tensor \"a\" is in": {"1.safetensors": shard(t, "a"), "2.safetensors": shard(t, "a")},
		"0 files end in":     {"config.json": "{}"},
		"names 1 of the 2 tens": {"1.safetensors": shard(t, "a", "b"),
			safetensors.IndexName: `{"weight_map":{"a":"1.safetensors"}}`},
		"and not in \"2.safete": {"1.safetensors": shard(t, "a"),
			safetensors.IndexName: `{"weight_map":{"a":"2.safetensors"}}`},
		"\"b\" is in no file": {"1.safetensors": shard(t, "a"),
			safetensors.IndexName: `{"weight_map":{"b":"1.safetensors"}}`},
		"index.json: invalid":   {"1.safetensors": shard(t, "a"), safetensors.IndexName: `nonsense`},
		"it has no weight_map":  {"1.safetensors": shard(t, "a"), safetensors.IndexName: `{"weight_maps":{}}`},
		"place of \"a\" is not": {"1.safetensors": shard(t, "a"), safetensors.IndexName: `{"weight_map":{"a":null}}`},
		"key \"a\" appears twice": {"1.safetensors": shard(t, "a"),
			safetensors.IndexName: `{"weight_map":{"a":"2.safetensors","a":"1.safetensors"}}`},
		"something follows": {"1.safetensors": shard(t, "a"),
			safetensors.IndexName: `{"weight_map":{"a":"1.safetensors"}}{}`},
		"the 1 tensors of \"2.s": {"1.safetensors": shard(t, "a"), "2.safetensors": shard(t, "b"),
			safetensors.IndexName: `{"weight_map":{"a":"1.safetensors"}}`},
		"1.safetensors: safeten": {"1.safetensors": "short"},
	} {
		t.Run(want, func(t *testing.T) {
			if _, err := safetensors.Open(folder(t, files)); !errors.Is(err, storage.ErrCorrupt) ||
				!strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want %q", err, want)
			}
		})
	}
}
