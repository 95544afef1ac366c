package registry_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/rondo-rl/rondo/sandbox/internal/registry"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
)

// noise is text that does not compress well.
func noise(bytes int) string {
	random := rand.New(rand.NewPCG(1, 2))
	text := make([]byte, bytes)
	for i := range text {
		text[i] = byte(random.Uint32())
	}
	return string(text)
}

// unpacked is what the tree of an image has.
func unpacked(t *testing.T, image *registry.Image) (map[string]string, error) {
	t.Helper()
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := image.Unpack(t.Context(), root); err != nil {
		return nil, err
	}
	found := map[string]string{}
	err = fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || name == "etc/hosts" {
			return err
		}
		text, err := root.ReadFile(name)
		found[name] = string(text)
		return err
	})
	return found, err
}

func same(found, want map[string]string) bool { return maps.Equal(found, want) }

// TestImageOfARegistry: three layers of three formats, of which one takes a file away, for
// this machine's processor.
func TestImageOfARegistry(t *testing.T) {
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	h := sandboxtest.NewRegistry(t)
	encoder, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"a": noise(200_000), "c": noise(100_000), "d": "d"}
	one := h.Image(t, runtime.GOARCH,
		h.Add("application/vnd.docker.image.rootfs.diff.tar.gzip",
			sandboxtest.Zip(sandboxtest.Layer(t, map[string]string{"a": want["a"], "b": "b"}))),
		h.Add(ocispec.MediaTypeImageLayerZstd, encoder.EncodeAll(sandboxtest.Layer(t,
			map[string]string{"c": want["c"], ".wh.b": ""}), nil)),
		h.Add(ocispec.MediaTypeImageLayer, sandboxtest.Layer(t, map[string]string{"d": "d"})))
	h.Index(t, map[string]ocispec.Descriptor{"mips": h.Image(t, "mips"), runtime.GOARCH: one})
	for name, id := range map[string]string{"by its tag": "", "by its manifest": one.Digest.String(),
		"by its index": h.Tag} {
		t.Run(name, func(t *testing.T) {
			image, err := registry.Find(t.Context(), h.Name(), id)
			if err != nil {
				t.Fatal(err)
			}
			if image.IDs[0] != one.Digest.String() || id != "" && !slices.Contains(image.IDs, id) {
				t.Errorf("it is known as %q, want %s first, and %q among them", image.IDs, one.Digest, id)
			}
			if image.Workdir != "/work" || !slices.Contains(image.Env, "GREETING=a=b") {
				t.Errorf("it works in %q with %q", image.Workdir, image.Env)
			}
			if found, err := unpacked(t, image); err != nil || !same(found, want) {
				t.Errorf("%d files, %v, want %d", len(found), err, len(want))
			}
		})
	}
	t.Run("the tag has moved on", func(t *testing.T) {
		h.Index(t, map[string]ocispec.Descriptor{runtime.GOARCH: h.Image(t, runtime.GOARCH,
			h.Add(ocispec.MediaTypeImageLayer, sandboxtest.Layer(t, map[string]string{"new": "new"})))})
		image, err := registry.Find(t.Context(), h.Name(), one.Digest.String())
		if err != nil || image.IDs[0] != one.Digest.String() {
			t.Errorf("%v, %v, want %s still", image, err, one.Digest)
		}
		image, err = registry.Find(t.Context(), h.Name(), digest.FromString("no image").String())
		if err != nil || image.IDs[0] == one.Digest.String() {
			t.Errorf("%v, %v, want what the name is now", image, err)
		}
	})
}

// TestBrokenDownload: a layer whose connection breaks off again and again is read to its end, where
// the registry sends parts.
func TestBrokenDownload(t *testing.T) {
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	h := sandboxtest.NewRegistry(t)
	want := map[string]string{"a": noise(300_000)}
	long := h.Add(ocispec.MediaTypeImageLayerGzip, sandboxtest.Zip(sandboxtest.Layer(t, want)))
	h.Index(t, map[string]ocispec.Descriptor{runtime.GOARCH: h.Image(t, runtime.GOARCH, long)})
	h.Cut[long.Digest.String()] = 70_000
	for name, try := range map[string]struct {
		parts bool
		bytes int64 // of each connection
		want  string
	}{"in parts": {true, 70_000, ""}, "whole alone": {false, 70_000, "sends no parts"},
		"nothing comes": {true, 0, "EOF"}} {
		t.Run(name, func(t *testing.T) {
			h.Parts, h.Cut[long.Digest.String()] = try.parts, try.bytes
			image, err := registry.Find(t.Context(), h.Name(), "")
			if err != nil {
				t.Fatal(err)
			}
			found, err := unpacked(t, image)
			if try.want == "" && (err != nil || !same(found, want)) ||
				try.want != "" && (err == nil || !strings.Contains(err.Error(), try.want)) {
				t.Errorf("%d files, %v, want %q", len(found), err, try.want)
			}
		})
	}
}

// TestKeysOfDockerLogin: the registry is shown the keys that `docker login` left for it, and a
// refusal says who refused.
func TestKeysOfDockerLogin(t *testing.T) {
	h := sandboxtest.NewRegistry(t)
	h.Keys = "me:secret"
	h.Index(t, map[string]ocispec.Descriptor{runtime.GOARCH: h.Image(t, runtime.GOARCH)})
	dir := t.TempDir()
	t.Setenv("DOCKER_CONFIG", dir)
	if _, err := registry.Find(t.Context(), h.Name(), ""); err == nil ||
		!strings.Contains(err.Error(), "registry 127.0.0.1") {
		t.Errorf("without keys: %v", err)
	}
	host, _, _ := strings.Cut(h.Name(), "/")
	text := fmt.Sprintf(`{"auths": {%q: {"auth": %q}}}`, host, base64.StdEncoding.EncodeToString([]byte(h.Keys)))
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := registry.Find(t.Context(), h.Name(), ""); err != nil {
		t.Errorf("with keys: %v", err)
	}
}

// TestHostileRegistry: what is not what its digest says is not taken, and what cannot be had is
// said in words without secrets.
func TestHostileRegistry(t *testing.T) {
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	good := sandboxtest.Zip(sandboxtest.Layer(t, map[string]string{"a": "a"}))
	gone := httptest.NewServer(nil)
	gone.Close()
	for name, try := range map[string]struct {
		make func(*testing.T, *sandboxtest.Registry)
		want string
	}{
		"no such name": {func(*testing.T, *sandboxtest.Registry) {}, "has none of this name"},
		"another processor": {func(t *testing.T, h *sandboxtest.Registry) {
			h.Index(t, map[string]ocispec.Descriptor{"mips": h.Image(t, "mips")})
		}, "has none for linux/"},
		"one, of another processor": {func(t *testing.T,
			h *sandboxtest.Registry) {
			h.Tag = h.Image(t, "mips").Digest.String()
		}, "has none for linux/"},
		"another content": {func(t *testing.T, h *sandboxtest.Registry) {
			l := h.Add(ocispec.MediaTypeImageLayerGzip, good)
			h.Tag = h.Image(t, runtime.GOARCH, l).Digest.String()
			// a field that gzip passes over
			h.Objects[l.Digest.String()] = bytes.Replace(bytes.Clone(good), good[:9],
				append(bytes.Clone(good[:8]), good[8]^1), 1)
		}, "layer 1 of 1"},
		"more bytes": {func(t *testing.T, h *sandboxtest.Registry) {
			l := h.Add(ocispec.MediaTypeImageLayerGzip, good)
			h.Tag = h.Image(t, runtime.GOARCH, l).Digest.String()
			h.Objects[l.Digest.String()] = append(bytes.Clone(good), 0)
		}, "layer 1 of 1"},
		"a long manifest": {func(t *testing.T, h *sandboxtest.Registry) {
			h.Tag = h.AddJSON(t, ocispec.MediaTypeImageManifest,
				map[string]string{"mediaType": ocispec.MediaTypeImageManifest,
					"x": strings.Repeat("x", 4<<20)}).Digest.String()
		}, "registry"},
		"many layers": {func(t *testing.T, h *sandboxtest.Registry) {
			h.Tag = h.Image(t, runtime.GOARCH, slices.Repeat([]ocispec.Descriptor{h.Add(ocispec.MediaTypeImageLayer,
				nil)}, 513)...).Digest.String()
		}, "at most 512"},
		"a strange layer": {func(t *testing.T, h *sandboxtest.Registry) {
			h.Tag = h.Image(t, runtime.GOARCH, h.Add("application/vnd.in-toto+json", []byte("{}"))).Digest.String()
		}, "application/vnd.in-toto+json"},
		"a strange digest": {func(t *testing.T, h *sandboxtest.Registry) {
			h.Tag = h.Image(t, runtime.GOARCH, ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayer,
				Digest: "md5:00", Size: 1}).Digest.String()
		}, "digest"},
		"other layers than the configuration's": {func(t *testing.T, h *sandboxtest.Registry) {
			h.Tag = h.Image(t, runtime.GOARCH, h.Add(ocispec.MediaTypeImageLayerGzip, good)).Digest.String()
			var manifest ocispec.Manifest
			if err := json.Unmarshal(h.Objects[h.Tag], &manifest); err != nil {
				t.Fatal(err)
			}
			manifest.Layers[0] = h.Add(ocispec.MediaTypeImageLayerGzip,
				sandboxtest.Zip(sandboxtest.Layer(t, map[string]string{"a": "planted"})))
			h.Tag = h.AddJSON(t, manifest.MediaType, manifest).Digest.String()
		}, "the image's configuration says"},
		"fewer layers than the configuration's": {func(t *testing.T, h *sandboxtest.Registry) {
			h.Tag = h.Image(t, runtime.GOARCH, h.Add(ocispec.MediaTypeImageLayerGzip, good)).Digest.String()
			var manifest ocispec.Manifest
			if err := json.Unmarshal(h.Objects[h.Tag], &manifest); err != nil {
				t.Fatal(err)
			}
			manifest.Layers = nil
			h.Tag = h.AddJSON(t, manifest.MediaType, manifest).Digest.String()
		}, "its configuration has 1 layers, its manifest 0"},
		"refused at a signed address": {func(t *testing.T, h *sandboxtest.Registry) {
			h.Tag = h.Image(t, runtime.GOARCH, h.Add(ocispec.MediaTypeImageLayerGzip, good)).Digest.String()
			refuses := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
				_ *http.Request) {
				w.WriteHeader(http.StatusForbidden)
			}))
			t.Cleanup(refuses.Close)
			h.Elsewhere = refuses.URL + "/blob?signature=s3cret"
		}, "status 403"},
		"of another length at a signed address": {func(t *testing.T, h *sandboxtest.Registry) {
			h.Tag = h.Image(t, runtime.GOARCH, h.Add(ocispec.MediaTypeImageLayerGzip, good)).Digest.String()
			short := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
				_ *http.Request) {
				fmt.Fprint(w, "short")
			}))
			t.Cleanup(short.Close)
			h.Elsewhere = short.URL + "/blob?signature=s3cret"
		}, "mismatch Content-Length"},
		"signed address": {func(t *testing.T, h *sandboxtest.Registry) {
			h.Tag = h.Image(t, runtime.GOARCH, h.Add(ocispec.MediaTypeImageLayerGzip, good)).Digest.String()
			h.Elsewhere = gone.URL + "/blob?signature=s3cret"
		}, "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			h := sandboxtest.NewRegistry(t)
			try.make(t, h)
			image, err := registry.Find(t.Context(), h.Name(), "")
			if err == nil {
				_, err = unpacked(t, image)
			}
			if err == nil || !strings.Contains(err.Error(), try.want) || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("%v, want %q", err, try.want)
			}
		})
	}
}
