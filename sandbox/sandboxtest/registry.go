package sandboxtest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Registry is a registry with one image, app/tool:1, that gives to those who have a
// token, as public ones do.
type Registry struct {
	*httptest.Server
	Objects   map[string][]byte // by digest
	Tag       string            // the digest of app/tool:1
	Cut       map[string]int64  // digests of blobs whose connection breaks off behind so many bytes
	Keys      string            // NAME:PASSWORD that a token takes; "" for none
	Parts     bool              // it sends parts of blobs
	Elsewhere string            // where blobs are, signed; "" for here
	Read      atomic.Int64      // layers that were asked for
	Wait      chan struct{}     // each request waits until it takes something; nil is no wait
}

// NewRegistry starts one without an image.
func NewRegistry(t *testing.T) *Registry {
	h := &Registry{Objects: map[string][]byte{}, Cut: map[string]int64{}, Parts: true}
	h.Server = httptest.NewServer(http.HandlerFunc(h.serve))
	t.Cleanup(h.Close)
	return h
}

// Name is that of its image.
func (h *Registry) Name() string { return strings.TrimPrefix(h.URL, "http://") + "/app/tool:1" }

const token = "let-me-in"

func (h *Registry) serve(w http.ResponseWriter, r *http.Request) {
	if h.Wait != nil {
		<-h.Wait
	}
	if r.URL.Path == "/token" {
		name, password, _ := r.BasicAuth()
		if h.Keys != "" && name+":"+password != h.Keys {
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
		id = h.Tag
	}
	body, ok := h.Objects[id]
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
	if h.Elsewhere != "" {
		http.Redirect(w, r, h.Elsewhere, http.StatusTemporaryRedirect)
		return
	}
	if !json.Valid(body) {
		h.Read.Add(1)
	}
	at, broken := h.Cut[id]
	if broken && r.Method == http.MethodGet {
		w = &cutWriter{ResponseWriter: w, left: at}
	}
	if !h.Parts {
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

// Add keeps bytes, and answers how others name them.
func (h *Registry) Add(mediaType string, content []byte) ocispec.Descriptor {
	d := ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(content), Size: int64(len(content))}
	h.Objects[d.Digest.String()] = content
	return d
}

// AddJSON is Add of a document.
func (h *Registry) AddJSON(t *testing.T, mediaType string, value any) ocispec.Descriptor {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return h.Add(mediaType, text)
}

// Image adds an image for a processor.
func (h *Registry) Image(t *testing.T, architecture string, layers ...ocispec.Descriptor) ocispec.Descriptor {
	t.Helper()
	described := ocispec.Image{Platform: ocispec.Platform{OS: "linux", Architecture: architecture}}
	described.RootFS.Type = "layers"
	for _, layer := range layers {
		described.RootFS.DiffIDs = append(described.RootFS.DiffIDs, h.plain(t, layer))
	}
	described.Config.Env, described.Config.WorkingDir = []string{"PATH=/bin", "GREETING=a=b"}, "/work"
	manifest := ocispec.Manifest{MediaType: ocispec.MediaTypeImageManifest,
		Config: h.AddJSON(t, ocispec.MediaTypeImageConfig, described), Layers: layers}
	manifest.SchemaVersion = 2
	return h.AddJSON(t, manifest.MediaType, manifest)
}

// plain is the digest of a layer that is not compressed.
func (h *Registry) plain(t *testing.T, layer ocispec.Descriptor) digest.Digest {
	t.Helper()
	var from io.Reader = bytes.NewReader(h.Objects[layer.Digest.String()])
	var err error
	switch {
	case strings.HasSuffix(layer.MediaType, "gzip"):
		from, err = gzip.NewReader(from)
	case strings.HasSuffix(layer.MediaType, "zstd"):
		from, err = zstd.NewReader(from)
	}
	if err != nil {
		t.Fatal(err)
	}
	sum, err := digest.FromReader(from)
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// Index adds an index of images, as app/tool:1.
func (h *Registry) Index(t *testing.T, images map[string]ocispec.Descriptor) {
	t.Helper()
	index := ocispec.Index{MediaType: ocispec.MediaTypeImageIndex}
	index.SchemaVersion = 2
	for architecture, image := range images {
		image.Platform = &ocispec.Platform{OS: "linux", Architecture: architecture}
		index.Manifests = append(index.Manifests, image)
	}
	h.Tag = h.AddJSON(t, index.MediaType, index).Digest.String()
}

// Layer is a tar of files.
func Layer(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for name, content := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(content))}); err != nil {
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

// Zip compresses a layer by gzip.
func Zip(plain []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write(plain)
	_ = w.Close()
	return out.Bytes()
}
