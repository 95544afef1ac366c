package registry

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// hub is a registry with one image, app/tool:1, that gives to those who have a token, as public ones do.
type hub struct {
	*httptest.Server
	objects   map[string][]byte // by digest
	tag       string            // the digest of app/tool:1
	cut       map[string]int64  // digests of blobs whose connection breaks off behind so many bytes
	keys      string            // NAME:PASSWORD that a token takes; "" for none
	parts     bool              // it sends parts of blobs
	elsewhere string            // where blobs are, signed; "" for here
}

func newHub(t *testing.T) *hub {
	h := &hub{objects: map[string][]byte{}, cut: map[string]int64{}, parts: true}
	h.Server = httptest.NewServer(http.HandlerFunc(h.serve))
	t.Cleanup(h.Close)
	return h
}

func (h *hub) name() string { return strings.TrimPrefix(h.URL, "http://") + "/app/tool:1" }

const token = "let-me-in"

func (h *hub) serve(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/token" {
		name, password, _ := r.BasicAuth()
		if h.keys != "" && name+":"+password != h.keys {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		fmt.Fprintf(w, `{"token": %q}`, token)
		return
	}
	if r.Header.Get("Authorization") != "Bearer "+token {
		w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="%s/token",service="hub"`, h.URL))
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	kind, id, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v2/app/tool/"), "/")
	if id == "1" {
		id = h.tag
	}
	body, ok := h.objects[id]
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	if kind == "manifests" {
		var said struct{ MediaType string }
		_ = json.Unmarshal(body, &said)
		if said.MediaType == "" { // a blob is no manifest
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", said.MediaType)
		w.Header().Set("Docker-Content-Digest", id)
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write(body)
		return
	}
	if h.elsewhere != "" {
		http.Redirect(w, r, h.elsewhere, http.StatusTemporaryRedirect)
		return
	}
	at, broken := h.cut[id]
	if broken && r.Method == http.MethodGet {
		w = &cutWriter{ResponseWriter: w, left: at}
	}
	if !h.parts {
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write(body)
		return
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
}

// cutWriter breaks the connection off.
type cutWriter struct {
	http.ResponseWriter
	left int64
}

func (w *cutWriter) Write(p []byte) (int, error) {
	if int64(len(p)) <= w.left {
		w.left -= int64(len(p))
		return w.ResponseWriter.Write(p)
	}
	_, _ = w.ResponseWriter.Write(p[:w.left])
	w.ResponseWriter.(http.Flusher).Flush()
	panic(http.ErrAbortHandler)
}

// add keeps bytes, and answers how others name them.
func (h *hub) add(mediaType string, content []byte) ocispec.Descriptor {
	d := ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(content), Size: int64(len(content))}
	h.objects[d.Digest.String()] = content
	return d
}

func (h *hub) addJSON(t *testing.T, mediaType string, value any) ocispec.Descriptor {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return h.add(mediaType, text)
}

// image adds an image for a processor.
func (h *hub) image(t *testing.T, architecture string, layers ...ocispec.Descriptor) ocispec.Descriptor {
	t.Helper()
	described := ocispec.Image{Platform: ocispec.Platform{OS: "linux", Architecture: architecture}}
	described.Config.Env, described.Config.WorkingDir = []string{"PATH=/bin", "GREETING=a=b"}, "/work"
	manifest := ocispec.Manifest{MediaType: ocispec.MediaTypeImageManifest, Config: h.addJSON(t, ocispec.MediaTypeImageConfig, described), Layers: layers}
	manifest.SchemaVersion = 2
	return h.addJSON(t, manifest.MediaType, manifest)
}

// index adds an index of images, as app/tool:1.
func (h *hub) index(t *testing.T, images map[string]ocispec.Descriptor) {
	t.Helper()
	index := ocispec.Index{MediaType: ocispec.MediaTypeImageIndex}
	index.SchemaVersion = 2
	for architecture, image := range images {
		image.Platform = &ocispec.Platform{OS: "linux", Architecture: architecture}
		index.Manifests = append(index.Manifests, image)
	}
	h.tag = h.addJSON(t, index.MediaType, index).Digest.String()
}

// layer is a tar of files.
func layer(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for name, content := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func zipped(plain []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write(plain)
	_ = w.Close()
	return out.Bytes()
}

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
func unpacked(t *testing.T, image *Image) (map[string]string, error) {
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

// TestImageOfARegistry: three layers of three formats, of which one takes a file away, for this machine's processor.
func TestImageOfARegistry(t *testing.T) {
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	h := newHub(t)
	encoder, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"a": noise(200_000), "c": noise(100_000), "d": "d"}
	one := h.image(t, runtime.GOARCH,
		h.add("application/vnd.docker.image.rootfs.diff.tar.gzip", zipped(layer(t, map[string]string{"a": want["a"], "b": "b"}))),
		h.add(ocispec.MediaTypeImageLayerZstd, encoder.EncodeAll(layer(t, map[string]string{"c": want["c"], ".wh.b": ""}), nil)),
		h.add(ocispec.MediaTypeImageLayer, layer(t, map[string]string{"d": "d"})))
	h.index(t, map[string]ocispec.Descriptor{"mips": h.image(t, "mips"), runtime.GOARCH: one})
	for name, id := range map[string]string{"by its tag": "", "by its manifest": one.Digest.String(), "by its index": h.tag} {
		t.Run(name, func(t *testing.T) {
			image, err := Find(t.Context(), h.name(), id)
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
		h.index(t, map[string]ocispec.Descriptor{runtime.GOARCH: h.image(t, runtime.GOARCH, h.add(ocispec.MediaTypeImageLayer, layer(t, map[string]string{"new": "new"})))})
		image, err := Find(t.Context(), h.name(), one.Digest.String())
		if err != nil || image.IDs[0] != one.Digest.String() {
			t.Errorf("%v, %v, want %s still", image, err, one.Digest)
		}
		image, err = Find(t.Context(), h.name(), digest.FromString("no image").String())
		if err != nil || image.IDs[0] == one.Digest.String() {
			t.Errorf("%v, %v, want what the name is now", image, err)
		}
	})
}

// TestBrokenDownload: a layer whose connection breaks off again and again is read to its end, where the registry sends parts.
func TestBrokenDownload(t *testing.T) {
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	h := newHub(t)
	want := map[string]string{"a": noise(300_000)}
	long := h.add(ocispec.MediaTypeImageLayerGzip, zipped(layer(t, want)))
	h.index(t, map[string]ocispec.Descriptor{runtime.GOARCH: h.image(t, runtime.GOARCH, long)})
	h.cut[long.Digest.String()] = 70_000
	for name, try := range map[string]struct {
		parts bool
		bytes int64 // of each connection
		want  string
	}{"in parts": {true, 70_000, ""}, "whole alone": {false, 70_000, "sends no parts"}, "nothing comes": {true, 0, "EOF"}} {
		t.Run(name, func(t *testing.T) {
			h.parts, h.cut[long.Digest.String()] = try.parts, try.bytes
			image, err := Find(t.Context(), h.name(), "")
			if err != nil {
				t.Fatal(err)
			}
			found, err := unpacked(t, image)
			if try.want == "" && (err != nil || !same(found, want)) || try.want != "" && (err == nil || !strings.Contains(err.Error(), try.want)) {
				t.Errorf("%d files, %v, want %q", len(found), err, try.want)
			}
		})
	}
}

// TestKeysOfDockerLogin: the registry is shown the keys that `docker login` left for it, and a refusal says who refused.
func TestKeysOfDockerLogin(t *testing.T) {
	h := newHub(t)
	h.keys = "me:secret"
	h.index(t, map[string]ocispec.Descriptor{runtime.GOARCH: h.image(t, runtime.GOARCH)})
	dir := t.TempDir()
	t.Setenv("DOCKER_CONFIG", dir)
	if _, err := Find(t.Context(), h.name(), ""); err == nil || !strings.Contains(err.Error(), "registry 127.0.0.1") {
		t.Errorf("without keys: %v", err)
	}
	host, _, _ := strings.Cut(h.name(), "/")
	text := fmt.Sprintf(`{"auths": {%q: {"auth": %q}}}`, host, base64.StdEncoding.EncodeToString([]byte(h.keys)))
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Find(t.Context(), h.name(), ""); err != nil {
		t.Errorf("with keys: %v", err)
	}
}

// TestHostileRegistry: what is not what its digest says is not taken, and what cannot be had is said in words without secrets.
func TestHostileRegistry(t *testing.T) {
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	good := zipped(layer(t, map[string]string{"a": "a"}))
	gone := httptest.NewServer(nil)
	gone.Close()
	for name, try := range map[string]struct {
		make func(*testing.T, *hub)
		want string
	}{
		"no such name":              {func(*testing.T, *hub) {}, "has none of this name"},
		"another processor":         {func(t *testing.T, h *hub) { h.index(t, map[string]ocispec.Descriptor{"mips": h.image(t, "mips")}) }, "has none for linux/"},
		"one, of another processor": {func(t *testing.T, h *hub) { h.tag = h.image(t, "mips").Digest.String() }, "has none for linux/"},
		"another content": {func(t *testing.T, h *hub) {
			l := h.add(ocispec.MediaTypeImageLayerGzip, good)
			h.tag = h.image(t, runtime.GOARCH, l).Digest.String()
			h.objects[l.Digest.String()] = bytes.Replace(bytes.Clone(good), good[:9], append(bytes.Clone(good[:8]), good[8]^1), 1) // a field that gzip passes over
		}, "layer 1 of 1"},
		"more bytes": {func(t *testing.T, h *hub) {
			l := h.add(ocispec.MediaTypeImageLayerGzip, good)
			h.tag = h.image(t, runtime.GOARCH, l).Digest.String()
			h.objects[l.Digest.String()] = append(bytes.Clone(good), 0)
		}, "layer 1 of 1"},
		"a long manifest": {func(t *testing.T, h *hub) {
			h.tag = h.addJSON(t, ocispec.MediaTypeImageManifest, map[string]string{"mediaType": ocispec.MediaTypeImageManifest, "x": strings.Repeat("x", maxDocument)}).Digest.String()
		}, "registry"},
		"many layers": {func(t *testing.T, h *hub) {
			h.tag = h.image(t, runtime.GOARCH, slices.Repeat([]ocispec.Descriptor{h.add(ocispec.MediaTypeImageLayer, nil)}, maxLayers+1)...).Digest.String()
		}, "at most 512"},
		"a strange layer": {func(t *testing.T, h *hub) {
			h.tag = h.image(t, runtime.GOARCH, h.add("application/vnd.in-toto+json", []byte("{}"))).Digest.String()
		}, "application/vnd.in-toto+json"},
		"a strange digest": {func(t *testing.T, h *hub) {
			h.tag = h.image(t, runtime.GOARCH, ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayer, Digest: "md5:00", Size: 1}).Digest.String()
		}, "digest"},
		"signed address": {func(t *testing.T, h *hub) {
			h.tag = h.image(t, runtime.GOARCH, h.add(ocispec.MediaTypeImageLayerGzip, good)).Digest.String()
			h.elsewhere = gone.URL + "/blob?signature=s3cret"
		}, "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHub(t)
			try.make(t, h)
			image, err := Find(t.Context(), h.name(), "")
			if err == nil {
				_, err = unpacked(t, image)
			}
			if err == nil || !strings.Contains(err.Error(), try.want) || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("%v, want %q", err, try.want)
			}
		})
	}
}

func TestNames(t *testing.T) {
	for name, want := range map[string]string{
		"debian":                                "docker.io/library/debian:latest",
		"debian:12":                             "docker.io/library/debian:12",
		"swebench/sweb.eval:v1":                 "docker.io/swebench/sweb.eval:v1",
		"ghcr.io/a/b/c":                         "ghcr.io/a/b/c:latest",
		"localhost/a":                           "localhost/a:latest",
		"host:5000/a:1":                         "host:5000/a:1",
		"a:1@" + digest.FromString("").String(): "docker.io/library/a@" + digest.FromString("").String(),
	} {
		if got, err := parse(name); err != nil || got.String() != want {
			t.Errorf("%s is %s, %v, want %s", name, got, err, want)
		}
	}
	for _, name := range []string{"Debian", "a//b", "a:b:c", "host:5000/"} {
		if got, err := parse(name); err == nil {
			t.Errorf("%s is %s", name, got)
		}
	}
}
