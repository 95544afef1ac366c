package tracing

import (
	"compress/gzip"
	"context"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/rondo-rl/rondo/retry"
)

// connected makes a collector of the environment that tries again at once.
func connected(t *testing.T, endpoint string) *collector {
	t.Helper()
	c, err := newCollector(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	c.retry = retry.Policy{First: time.Nanosecond, Most: time.Nanosecond}
	t.Cleanup(func() { _ = c.Stop(context.Background()) })
	return c
}

var spans = []*tracev1.ResourceSpans{{SchemaUrl: "one"}}

// TestUpload: spans reach the URL that the variables name, with their headers, compressed and over
// TLS, and again while the collector is busy.
func TestUpload(t *testing.T) {
	var requests []string
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := io.Reader(r.Body)
		if r.Header.Get("Content-Encoding") == "gzip" {
			body, _ = gzip.NewReader(body)
		}
		data, err := io.ReadAll(body)
		var got tracev1.TracesData
		if err != nil || proto.Unmarshal(data, &got) != nil || len(got.ResourceSpans) != 1 ||
			got.ResourceSpans[0].SchemaUrl != "one" {
			t.Errorf("got %v, %v", &got, err)
		}
		requests = append(requests, r.URL.Path+" "+r.Header.Get("Content-Encoding")+" "+r.Header.Get("X-Key")+" "+
			r.Header.Get("Content-Type"))
		if len(requests) < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	authority := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
		Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", server.URL+"/own/path")
	t.Setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", authority)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key = a%2Cb , other=1")
	t.Setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
	if err := connected(t, "").UploadTraces(t.Context(), spans); err != nil {
		t.Fatal(err)
	}
	if want := slices.Repeat([]string{"/own/path gzip a,b application/x-protobuf"}, 3); !slices.Equal(requests, want) {
		t.Errorf("requests %q, want %q", requests, want)
	}
	t.Setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "")
	requests = requests[:0]
	if err := connected(t, server.URL+"/base/").UploadTraces(t.Context(), spans); err != nil || len(requests) != 3 ||
		!strings.HasPrefix(requests[0], "/base/v1/traces  ") {
		t.Errorf("requests %q, %v", requests, err)
	}
}

// TestUploadFails: what the collector has not taken is an error, and a refusal is not sent again.
func TestUploadFails(t *testing.T) {
	partial := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 3)
	partial = protowire.AppendString(protowire.AppendTag(partial, 2, protowire.BytesType), "too old")
	for name, c := range map[string]struct {
		status int
		body   []byte
		want   string
	}{
		"rejected": {200, protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), partial),
			`rejects 3 spans: "too old"`},
		"refused":          {400, []byte("no key"), `answers 400 Bad Request: "no key"`},
		"taken":            {200, nil, ""},
		"taken for later":  {202, nil, ""},
		"not the protocol": {200, []byte("<html>"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			requests := 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				requests++
				w.WriteHeader(c.status)
				_, _ = w.Write(c.body)
			}))
			defer server.Close()
			err := connected(t, server.URL).UploadTraces(t.Context(), spans)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) || requests != 1 {
				t.Errorf("%v after %d requests, want %q after 1", err, requests, c.want)
			}
		})
	}
}

// TestWrongVariables: a value that is not understood is refused, and no error
// shows what may be a key.
func TestWrongVariables(t *testing.T) {
	for variable, value := range map[string]string{
		"PROTOCOL": "grpc", "COMPRESSION": "zstd", "TIMEOUT": "10s", "HEADERS": "hunter2", "CERTIFICATE": "/nothing",
		"CLIENT_CERTIFICATE": "/nothing", "ENDPOINT": "localhost:4317",
	} {
		t.Run(variable, func(t *testing.T) {
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
			t.Setenv("OTEL_EXPORTER_OTLP_TRACES_"+variable, value)
			_, err := newCollector("")
			if err == nil || !strings.Contains(err.Error(), "OTEL_EXPORTER_OTLP_TRACES_"+variable) ||
				strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%v", err)
			}
		})
	}
}
