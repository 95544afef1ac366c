package tracing

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/rondo-rl/rondo/retry"
)

// collector sends spans over HTTP, by the standard variables that the package
// otlptracehttp knows. That package is not used because it compiles gRPC and gRPC's
// gateway, for the one message that it sends.
type collector struct {
	url     string
	headers http.Header
	gzip    bool
	client  *http.Client
	retry   retry.Policy
}

const (
	// sendFor bounds how long the same spans are sent again and again.
	sendFor = time.Minute
	// answerSize bounds what is read of a collector's answer.
	answerSize = 64 << 10
)

// setting is a standard variable: that of traces, or that of all signals.
func setting(name string) (variable, value string) {
	for _, variable = range []string{"OTEL_EXPORTER_OTLP_TRACES_" + name, "OTEL_EXPORTER_OTLP_" + name} {
		if value = strings.TrimSpace(os.Getenv(variable)); value != "" {
			break
		}
	}
	return variable, value
}

// newCollector reads the environment. It does not wait for the collector. The endpoint is a base
// URL; "" is that of the environment.
func newCollector(endpoint string) (*collector, error) {
	if variable, protocol := setting("PROTOCOL"); protocol != "" && protocol != "http/protobuf" {
		return nil, fmt.Errorf("%s is %q: use http/protobuf, which collectors take on port 4318", variable, protocol)
	}
	c := &collector{headers: http.Header{}, client: &http.Client{Timeout: 10 * time.Second},
		retry: retry.Policy{First: 5 * time.Second, Most: 30 * time.Second}}
	variable := "--otlp-endpoint"
	exact := ""
	if endpoint == "" {
		variable, endpoint = setting("ENDPOINT")
		if variable == "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT" {
			exact = endpoint
		}
	}
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("%s: name a URL such as http://127.0.0.1:4318", variable)
	}
	c.url = cmp.Or(exact, u.JoinPath("v1/traces").String())

	variable, list := setting("HEADERS")
	for pair := range strings.SplitSeq(list, ",") {
		name, value, found := strings.Cut(pair, "=")
		text, err := url.PathUnescape(value)
		switch name = strings.TrimSpace(name); {
		case strings.TrimSpace(pair) == "":
		case !found || name == "" || err != nil:
			// its text may be a key
			return nil, fmt.Errorf("%s: write name=value, and a comma between two of them", variable)
		default:
			c.headers.Set(name, strings.TrimSpace(text))
		}
	}
	variable, compression := setting("COMPRESSION")
	if c.gzip = compression == "gzip"; !c.gzip && compression != "" && compression != "none" {
		return nil, fmt.Errorf("%s is %q: use gzip or none", variable, compression)
	}
	if variable, text := setting("TIMEOUT"); text != "" {
		ms, err := strconv.ParseUint(text, 10, 31)
		if err != nil || ms == 0 {
			return nil, fmt.Errorf("%s is %q: use milliseconds", variable, text)
		}
		c.client.Timeout = time.Duration(ms) * time.Millisecond
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if transport.TLSClientConfig, err = certificates(); err != nil {
		return nil, err
	}
	c.client.Transport = transport
	return c, nil
}

// certificates are those of the collector and of this client.
func certificates() (*tls.Config, error) {
	settings := &tls.Config{}
	if variable, path := setting("CERTIFICATE"); path != "" {
		pem, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", variable, err)
		}
		if settings.RootCAs = x509.NewCertPool(); !settings.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s: %s holds no certificate", variable, path)
		}
	}
	variable, own := setting("CLIENT_CERTIFICATE")
	_, key := setting("CLIENT_KEY")
	if own != "" || key != "" {
		pair, err := tls.LoadX509KeyPair(own, key)
		if err != nil {
			return nil, fmt.Errorf("%s and its key: %w", variable, err)
		}
		settings.Certificates = []tls.Certificate{pair}
	}
	return settings, nil
}

// Start implements otlptrace.Client.
func (c *collector) Start(context.Context) error { return nil }

// Stop implements otlptrace.Client.
func (c *collector) Stop(context.Context) error {
	c.client.CloseIdleConnections()
	return nil
}

// UploadTraces implements otlptrace.Client. It sends again while the
// collector says that it is busy.
func (c *collector) UploadTraces(ctx context.Context, spans []*tracev1.ResourceSpans) error {
	ctx, cancel := context.WithTimeout(ctx, sendFor)
	defer cancel()
	// in bytes the same as an ExportTraceServiceRequest
	body, err := proto.Marshal(&tracev1.TracesData{ResourceSpans: spans})
	if err != nil {
		return err
	}
	if c.gzip {
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		if _, err := w.Write(body); err != nil {
			return err
		}
		if err := w.Close(); err != nil {
			return err
		}
		body = packed.Bytes()
	}
	for failed := 1; ; failed++ {
		busy, wait, err := c.send(ctx, body)
		wait = max(wait, c.retry.Delay(failed))
		if end, _ := ctx.Deadline(); !busy || time.Until(end) < wait || !retry.Sleep(ctx, wait) {
			return err
		}
	}
}

// send sends once. busy says that it should be sent again, after a wait.
func (c *collector) send(ctx context.Context, body []byte) (busy bool, wait time.Duration, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return false, 0, err
	}
	request.Header = c.headers.Clone()
	request.Header.Set("Content-Type", "application/x-protobuf")
	if c.gzip {
		request.Header.Set("Content-Encoding", "gzip")
	}
	answer, err := c.client.Do(request)
	if err != nil {
		return false, 0, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, answerSize))
	if err != nil {
		return false, 0, err
	}
	if answer.StatusCode/100 == 2 {
		return false, 0, rejected(text)
	}
	switch answer.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		busy = true
	}
	seconds, _ := strconv.ParseUint(answer.Header.Get("Retry-After"), 10, 16)
	return busy, time.Duration(seconds) * time.Second,
		fmt.Errorf("the collector answers %s: %.200q", answer.Status, text)
}

// rejected is the error of an answer, an ExportTraceServiceResponse, by which the collector
// has not taken all spans.
func rejected(answer []byte) error {
	partial, _ := field(answer, 1)
	_, spans := field(partial, 1)
	message, _ := field(partial, 2)
	if spans > 0 {
		return fmt.Errorf("the collector rejects %d spans: %.200q", spans, message)
	}
	return nil
}

// field is the last value of a field of a message, as bytes or as a number.
func field(message []byte, number protowire.Number) (text []byte, value uint64) {
	for len(message) > 0 {
		n, kind, size := protowire.ConsumeTag(message)
		if size < 0 {
			return nil, 0
		}
		message = message[size:]
		if size = protowire.ConsumeFieldValue(n, kind, message); size < 0 {
			return nil, 0
		}
		switch {
		case n != number:
		case kind == protowire.BytesType:
			text, _ = protowire.ConsumeBytes(message)
		case kind == protowire.VarintType:
			value, _ = protowire.ConsumeVarint(message)
		}
		message = message[size:]
	}
	return text, value
}
