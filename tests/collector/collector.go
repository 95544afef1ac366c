// Package collector is an OpenTelemetry collector for tests, which decodes
// what it is sent over HTTP.
package collector

import (
	"compress/gzip"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Span is a received span.
type Span struct {
	Trace, ID, Parent string // in hexadecimal; Parent is "" of a trace's first span
	Name              string
	Service, Instance string
	Attributes        map[string]string
	Links             []string // TRACE/SPAN each
	Failed            bool
	Start, End        uint64 // nanoseconds
}

// Collector keeps what it was sent.
type Collector struct {
	HTTP string // its base URL

	mu    sync.Mutex
	spans []Span
}

// Start runs a collector until the test ends.
func Start(t testing.TB) *Collector {
	t.Helper()
	c := &Collector{}
	web := httptest.NewServer(c)
	t.Cleanup(web.Close)
	c.HTTP = web.URL
	return c
}

// ServeHTTP takes a request of OTLP over HTTP.
func (c *Collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		plain, err := gzip.NewReader(body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		body = plain
	}
	data, err := io.ReadAll(body)
	request := &tracev1.TracesData{} // in bytes the same as an ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(data, request)
	}
	if err != nil || r.URL.Path != "/v1/traces" {
		http.Error(w, fmt.Sprint(r.URL.Path, ": ", err), http.StatusBadRequest)
		return
	}
	c.take(request)
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func (c *Collector) take(request *tracev1.TracesData) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range request.ResourceSpans {
		of := texts(resource.GetResource().GetAttributes())
		for _, scope := range resource.ScopeSpans {
			for _, s := range scope.Spans {
				c.spans = append(c.spans, read(s, of))
			}
		}
	}
}

func read(s *tracev1.Span, of map[string]string) Span {
	span := Span{
		Trace: hex.EncodeToString(s.TraceId), ID: hex.EncodeToString(s.SpanId),
		Parent: hex.EncodeToString(s.ParentSpanId), Name: s.Name,
		Service: of["service.name"], Instance: of["service.instance.id"], Attributes: texts(s.Attributes),
		Failed: s.GetStatus().GetCode() == tracev1.Status_STATUS_CODE_ERROR,
		Start:  s.StartTimeUnixNano, End: s.EndTimeUnixNano,
	}
	for _, l := range s.Links {
		span.Links = append(span.Links, hex.EncodeToString(l.TraceId)+"/"+hex.EncodeToString(l.SpanId))
	}
	for _, e := range s.Events {
		for key, value := range texts(e.Attributes) {
			span.Attributes[e.Name+"/"+key] = value
		}
	}
	if text := s.GetStatus().GetMessage(); text != "" {
		span.Attributes["status"] = text
	}
	return span
}

// texts are attributes as texts.
func texts(list []*commonv1.KeyValue) map[string]string {
	all := map[string]string{}
	for _, a := range list {
		switch v := a.GetValue().GetValue().(type) {
		case *commonv1.AnyValue_StringValue:
			all[a.Key] = v.StringValue
		case *commonv1.AnyValue_IntValue:
			all[a.Key] = fmt.Sprint(v.IntValue)
		case *commonv1.AnyValue_DoubleValue:
			all[a.Key] = fmt.Sprint(v.DoubleValue)
		case *commonv1.AnyValue_BoolValue:
			all[a.Key] = fmt.Sprint(v.BoolValue)
		default:
			all[a.Key] = a.GetValue().String()
		}
	}
	return all
}

// Spans are those that were received.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Span(nil), c.spans...)
}

// First is the first span of a trace, as links name it.
func (s Span) First() string { return s.Trace + "/" + s.ID }
